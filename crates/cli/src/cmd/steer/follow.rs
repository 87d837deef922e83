//! `heddle attach --follow`: keeping up with a server whose workers restart.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use heddle_steer::process::Serving;
use heddle_steer::request::{Answer, Error, ErrorKind, Policy, Request};
use serde_json::{Value, json};

use super::attach::{self, Attached};
use super::find::{self, Group};
use super::wanted::Wanted;
use super::{detach, refused, unexpected};
use crate::exit::Outcome;
use crate::out;
use heddle_steer::client::Steering;

/// How often the server is looked at.
const EVERY: Duration = Duration::from_secs(1);
/// In how many looks a socket must fail to be added for that to be told: a reload has moments in which one is not ready yet.
const TOLD: u32 = 2;
/// How long a server may be without a socket before it counts as ended, if nobody said which process it is.
const GONE: Duration = Duration::from_secs(5);

/// What is followed.
struct Follower<'a> {
    steering: &'a Steering,
    /// In the network namespace of what was attached first: elsewhere, the same address means other sockets.
    wanted: Wanted,
    policy: &'a Policy,
    attached: Vec<Attached>,
    /// The sockets that are executors, by inode.
    known: BTreeSet<u64>,
    /// In how many looks each of those could not be made one that are none.
    failed: BTreeMap<u64, u32>,
    /// When there was a socket.
    seen: Instant,
    json: bool,
}

/// An event as a line of JSON.
pub fn event(kind: &str, more: Value) -> Value {
    let mut event = json!({ "event": kind });
    if let (Some(event), Value::Object(more)) = (event.as_object_mut(), more) {
        event.extend(more);
    }
    event
}

/// Looks at the server each second until it ends, or `stop`; then detaches.
pub fn run(
    steering: &Steering,
    wanted: &Wanted,
    policy: &Policy,
    attached: Vec<Attached>,
    stop: &AtomicBool,
    json: bool,
) -> anyhow::Result<Outcome> {
    let (known, failed) = (inodes(&attached), BTreeMap::new());
    let namespace = attached.first().map(|one| one.group.namespace());
    let wanted = Wanted { namespace, ..wanted.clone() };
    let seen = Instant::now();
    let mut follower = Follower { steering, wanted, policy, attached, known, failed, seen, json };
    while !stop.load(Ordering::Relaxed) {
        if !follower.look()? {
            follower.say("ended", "The server has ended.", json!({}))?;
            break;
        }
        pause(stop);
    }
    follower.end()?;
    Ok(Outcome::Done)
}

fn inodes(attached: &[Attached]) -> BTreeSet<u64> {
    attached.iter().flat_map(|one| &one.group.sockets).map(|socket| socket.inode).collect()
}

/// A second, or less if there is reason.
fn pause(stop: &AtomicBool) {
    let begin = Instant::now();
    while begin.elapsed() < EVERY && !stop.load(Ordering::Relaxed) {
        sleep(Duration::from_millis(50));
    }
}

impl Follower<'_> {
    /// Adds what is new; whether there is a server still.
    fn look(&mut self) -> anyhow::Result<bool> {
        let groups = match find::groups(&self.wanted) {
            Ok(groups) => groups,
            // The process is no more.
            Err(error) if error.kind == ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(refused(error)),
        };
        if groups.is_empty() {
            // A reload may leave a moment without sockets; the process, if it was named, says whether it is one.
            return Ok(self.wanted.pid.is_some() || self.seen.elapsed() < GONE);
        }
        self.seen = Instant::now();
        if !self.all_there()? {
            return self.again().map(|()| true);
        }
        // The kernel may use the number of a closed socket again.
        let there: BTreeSet<u64> =
            groups.iter().flat_map(|group| &group.sockets).map(|socket| socket.inode).collect();
        self.known.retain(|inode| there.contains(inode));
        self.failed.retain(|inode, _| there.contains(inode));
        for group in groups {
            self.add(&group)?;
        }
        Ok(true)
    }

    /// Whether what was attached still is: if all workers ended at once, it is not; nor is anything while those that follow
    /// them are too few to choose among.
    fn all_there(&self) -> anyhow::Result<bool> {
        let list = self.steering.list().map_err(refused)?;
        Ok(!self.attached.is_empty()
            && self.attached.iter().all(|one| list.iter().any(|a| a.id == one.attachment.id)))
    }

    fn again(&mut self) -> anyhow::Result<()> {
        for one in std::mem::take(&mut self.attached) {
            // Of several groups some may be left.
            let _ = detach::one(self.steering, &one.attachment);
        }
        // The server may be half-way through its start: then the next look finds more.
        if let Ok(attached) = attach::all(self.steering, &self.wanted, self.policy) {
            self.known = inodes(&attached);
            self.attached = attached;
            for one in &self.attached {
                let id = one.attachment.id;
                let text = format!("All workers had ended: attached again, as {id}.");
                let more = json!({ "attachment": one.attachment });
                say(self.json, "attached", &text, more)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, group: &Group) -> anyhow::Result<()> {
        let attachment = self.attached.iter().map(|one| &one.attachment).find(|a| {
            a.protocol == group.protocol.name() && a.address == group.address.to_string()
        });
        let Some(id) = attachment.map(|attachment| attachment.id) else { return Ok(()) };
        let new = |socket: &&Serving| !self.known.contains(&socket.inode);
        let new: Vec<Serving> = group.sockets.iter().filter(new).cloned().collect();
        for socket in new {
            let label = socket.label();
            // Gone already, if it cannot be copied; then the next look does not meet it.
            let Ok(copy) = socket.copy() else { continue };
            let request = Request::AddExecutor { id, index: None, label: label.clone() };
            match self.steering.serve(request, vec![copy]) {
                Ok((Answer::Executor(index), _)) => {
                    self.known.insert(socket.inode);
                    self.failed.remove(&socket.inode);
                    let text = format!("Attachment {id}: {label} is executor {index} now.");
                    let more = json!({ "id": id, "index": index, "label": label });
                    self.say("executor", &text, more)?;
                }
                Ok((other, _)) => return Err(unexpected(&other)),
                Err(error) => self.failed(id, &socket, &error)?,
            }
        }
        Ok(())
    }

    /// The next look tries again; it is told once.
    fn failed(&mut self, id: u32, socket: &Serving, error: &Error) -> anyhow::Result<()> {
        let looks = self.failed.entry(socket.inode).or_default();
        *looks = looks.saturating_add(1);
        if *looks != TOLD {
            return Ok(());
        }
        let label = socket.label();
        let text = format!("Attachment {id}: {label} cannot be added: {error}");
        self.say("failed", &text, json!({ "id": id, "label": label, "error": error.text }))
    }

    fn say(&self, kind: &str, text: &str, more: Value) -> anyhow::Result<()> {
        say(self.json, kind, text, more)
    }

    fn end(&self) -> anyhow::Result<()> {
        for one in &self.attached {
            let id = one.attachment.id;
            detach::one(self.steering, &one.attachment).map_err(refused)?;
            self.say("detached", &format!("Detached {id}."), json!({ "id": id }))?;
        }
        Ok(())
    }
}

fn say(json: bool, kind: &str, text: &str, more: Value) -> anyhow::Result<()> {
    let line = if json { event(kind, more).to_string() } else { text.to_owned() };
    Ok(out::text(&format!("{line}\n"))?)
}
