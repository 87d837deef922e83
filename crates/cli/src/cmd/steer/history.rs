//! Attachments that ended by themselves.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use heddle_steer::client::Steering;
use heddle_steer::request::{Attachment, Ended};

use super::policy;

/// Returns those of the caller. An older heddled knows none.
pub fn ended(steering: &Steering) -> Vec<Ended> {
    steering.ended().unwrap_or_default()
}

/// Describes the end of attachment `id`, if it ended by itself.
pub fn note(steering: &Steering, id: u32) -> Option<String> {
    ended(steering).iter().rev().find(|ended| ended.attachment.id == id).map(describe)
}

/// `Attachment 3 (jiq at tcp 127.0.0.1:80) ended 5 min ago: ...`
pub fn describe(ended: &Ended) -> String {
    let Attachment { id, policy: name, parameters, protocol, address, .. } = &ended.attachment;
    let policy = policy::display(name, parameters);
    let (ago, why) = (age(ended.at_ms), &ended.why);
    format!("Attachment {id} ({policy} at {protocol} {address}) ended {ago} ago: {why}.")
}

/// How long ago `unix_ms` was, in its largest unit or two.
pub fn age(unix_ms: u64) -> String {
    let begin = UNIX_EPOCH + Duration::from_millis(unix_ms);
    let seconds = SystemTime::now().duration_since(begin).unwrap_or_default().as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86400, seconds / 3600 % 24),
    }
}
