//! Attachments that ended by themselves, as they are told of.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use heddle_steer::client::Steering;
use heddle_steer::request::{Attachment, Ended};

use super::policy;

/// Those of the caller. A heddled of an older version knows none.
pub fn all(steering: &Steering) -> Vec<Ended> {
    steering.ended().unwrap_or_default()
}

/// What there is to say of attachment `id`, if it ended by itself.
pub fn note(steering: &Steering, id: u32) -> Option<String> {
    all(steering).iter().rev().find(|ended| ended.attachment.id == id).map(text)
}

/// `Attachment 3 (jiq at tcp 127.0.0.1:80) ended 5 min ago: ...`
pub fn text(ended: &Ended) -> String {
    let Attachment { id, policy: name, parameters, protocol, address, .. } = &ended.attachment;
    let policy = policy::display(name, parameters);
    let (ago, why) = (since(ended.at_ms), &ended.why);
    format!("Attachment {id} ({policy} at {protocol} {address}) ended {ago} ago: {why}.")
}

/// How long ago that was, in its largest unit or two.
pub fn since(unix_ms: u64) -> String {
    let begin = UNIX_EPOCH + Duration::from_millis(unix_ms);
    let seconds = SystemTime::now().duration_since(begin).unwrap_or_default().as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86400, seconds / 3600 % 24),
    }
}
