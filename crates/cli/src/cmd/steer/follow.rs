//! `heddle steer attach --follow`: adds the sockets of restarted workers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use heddle_steer::process::Serving;
use heddle_steer::request::{Answer, Error, ErrorKind, Policy, Request};
use serde_json::{Value, json};

use super::attach::{self, Attached};
use super::find::{self, Group};
use super::selector::Selector;
use super::{detach, refused, unexpected};
use crate::exit::Outcome;
use crate::out;
use heddle_steer::client::Steering;

/// How often the server is inspected.
const INTERVAL: Duration = Duration::from_secs(1);
/// How many inspections must fail to add a socket before that is reported: during a reload a socket may not be
/// ready yet.
const REPORTED_FAILURE: u32 = 2;
/// How long a server may be without a socket before it counts as ended, if its process was not named.
const GONE_AFTER: Duration = Duration::from_secs(5);

/// The state of following one server.
struct Follower<'a> {
    steering: &'a Steering,
    /// Confined to the network namespace of the first attachment: elsewhere, the same address means other sockets.
    selector: Selector,
    policy: &'a Policy,
    attached: Vec<Attached>,
    /// Inodes of the sockets that are executors.
    executors: BTreeSet<u64>,
    /// Consecutive failures to add a socket, by inode.
    failures: BTreeMap<u64, u32>,
    /// When a socket was last found.
    last_seen: Instant,
    json: bool,
}

/// Returns an event as a JSON object.
pub fn event(kind: &str, more: Value) -> Value {
    let mut event = json!({ "event": kind });
    if let (Some(event), Value::Object(more)) = (event.as_object_mut(), more) {
        event.extend(more);
    }
    event
}

/// Inspects the server each second until it ends or `stop` is set, then detaches.
pub fn run(
    steering: &Steering,
    selector: &Selector,
    policy: &Policy,
    attached: Vec<Attached>,
    stop: &AtomicBool,
    json: bool,
) -> anyhow::Result<Outcome> {
    let (executors, failures) = (inodes(&attached), BTreeMap::new());
    let namespace = attached.first().map(|one| one.group.namespace());
    let selector = Selector { namespace, ..selector.clone() };
    let last_seen = Instant::now();
    let mut follower =
        Follower { steering, selector, policy, attached, executors, failures, last_seen, json };
    while !stop.load(Ordering::Relaxed) {
        if !follower.poll()? {
            follower.report("ended", "The server has ended.", json!({}))?;
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

/// Waits for the interval, or until `stop` is set.
fn pause(stop: &AtomicBool) {
    let begin = Instant::now();
    while begin.elapsed() < INTERVAL && !stop.load(Ordering::Relaxed) {
        sleep(Duration::from_millis(50));
    }
}

impl Follower<'_> {
    /// Adds new sockets. Returns whether the server still exists.
    fn poll(&mut self) -> anyhow::Result<bool> {
        let groups = match find::groups(&self.selector) {
            Ok(groups) => groups,
            // The process has ended.
            Err(error) if error.kind == ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(refused(error)),
        };
        if groups.is_empty() {
            // A reload may briefly leave no sockets; a named process shows whether it is a reload.
            return Ok(self.selector.pid.is_some() || self.last_seen.elapsed() < GONE_AFTER);
        }
        self.last_seen = Instant::now();
        if !self.is_intact()? {
            return self.reattach().map(|()| true);
        }
        // The kernel may use the number of a closed socket again.
        let there: BTreeSet<u64> =
            groups.iter().flat_map(|group| &group.sockets).map(|socket| socket.inode).collect();
        self.executors.retain(|inode| there.contains(inode));
        self.failures.retain(|inode, _| there.contains(inode));
        for group in groups {
            self.add(&group)?;
        }
        Ok(true)
    }

    /// Whether everything is still attached. It is not if all workers ended at once, or while their successors
    /// are too few to choose among.
    fn is_intact(&self) -> anyhow::Result<bool> {
        let list = self.steering.list().map_err(refused)?;
        Ok(!self.attached.is_empty()
            && self.attached.iter().all(|one| list.iter().any(|a| a.id == one.attachment.id)))
    }

    fn reattach(&mut self) -> anyhow::Result<()> {
        for one in std::mem::take(&mut self.attached) {
            // Of several groups some may remain.
            let _ = detach::one(self.steering, &one.attachment);
        }
        // If the server is still starting, the next inspection finds more.
        if let Ok(attached) = attach::all(self.steering, &self.selector, self.policy) {
            self.executors = inodes(&attached);
            self.attached = attached;
            for one in &self.attached {
                let id = one.attachment.id;
                let text = format!("All workers had ended: reattached as {id}.");
                let more = json!({ "attachment": one.attachment });
                report(self.json, "attached", &text, more)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, group: &Group) -> anyhow::Result<()> {
        let attachment = self.attached.iter().map(|one| &one.attachment).find(|a| {
            a.protocol == group.protocol.name() && a.address == group.address.to_string()
        });
        let Some(id) = attachment.map(|attachment| attachment.id) else { return Ok(()) };
        let new = |socket: &&Serving| !self.executors.contains(&socket.inode);
        let new: Vec<Serving> = group.sockets.iter().filter(new).cloned().collect();
        for socket in new {
            let label = socket.label();
            // A socket that cannot be copied is gone already; the next inspection will not find it.
            let Ok(copy) = socket.copy() else { continue };
            let request = Request::AddExecutor { id, index: None, label: label.clone() };
            match self.steering.serve(request, vec![copy]) {
                Ok((Answer::Executor(index), _)) => {
                    self.executors.insert(socket.inode);
                    self.failures.remove(&socket.inode);
                    let text = format!("Attachment {id}: {label} is now executor {index}.");
                    let more = json!({ "id": id, "index": index, "label": label });
                    self.report("executor", &text, more)?;
                }
                Ok((other, _)) => return Err(unexpected(&other)),
                Err(error) => self.add_failed(id, &socket, &error)?,
            }
        }
        Ok(())
    }

    /// Counts a failure, and reports it once; the next inspection tries again.
    fn add_failed(&mut self, id: u32, socket: &Serving, error: &Error) -> anyhow::Result<()> {
        let failures = self.failures.entry(socket.inode).or_default();
        *failures = failures.saturating_add(1);
        if *failures != REPORTED_FAILURE {
            return Ok(());
        }
        let label = socket.label();
        let text = format!("Attachment {id}: {label} cannot be added: {error}");
        self.report("failed", &text, json!({ "id": id, "label": label, "error": error.text }))
    }

    fn report(&self, kind: &str, text: &str, more: Value) -> anyhow::Result<()> {
        report(self.json, kind, text, more)
    }

    fn end(&self) -> anyhow::Result<()> {
        for one in &self.attached {
            let id = one.attachment.id;
            detach::one(self.steering, &one.attachment).map_err(refused)?;
            self.report("detached", &format!("Detached {id}."), json!({ "id": id }))?;
        }
        Ok(())
    }
}

fn report(json: bool, kind: &str, text: &str, more: Value) -> anyhow::Result<()> {
    let line = if json { event(kind, more).to_string() } else { text.to_owned() };
    Ok(out::text(&format!("{line}\n"))?)
}
