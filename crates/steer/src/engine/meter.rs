//! What users' policies cost between two checks of the daemon's watch, and who may attach none for a while.
//!
//! The kernel adds the time of a run at its end, and only if counting was on when the run began. So counting
//! is on from the moment the first policy of a user other than root is attached until a check finds none: no
//! decision is too long to be counted, and a policy cannot behave well only while it is measured. What ended
//! between two checks is reported by the second. Counting costs every BPF program on the machine two clock
//! reads per run; root's own policies are sampled.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use heddle_bpf::{Program, count_run_time};

use super::keeper::Keeper;
use super::stats::{Cost, Counted, MAX_SAMPLE, failed};
use super::{Caller, Engine, State, Stored};
use crate::request::{Attachment, Error, ErrorKind, Status};

/// Maximum ended attachments per user since the last check; the oldest are dropped first.
const MAX_ENDED: usize = 256;
/// How long a user is barred from attaching if a policy cost too much and ended before it could be evicted.
const BAR: Duration = Duration::from_secs(60);

/// An attachment, and the program in which its decisions are counted.
pub(super) type Deciding = (Attachment, Result<Program, Error>);

/// What the engine keeps for the watch.
#[derive(Debug)]
pub(super) struct Accounting {
    kept: Arc<KeptDescriptors>,
    keeper: Keeper,
    /// Barred users, with the end of the bar.
    barred: Mutex<BTreeMap<u32, Instant>>,
}

/// Descriptors, opened by the keeper; the threads that close them share its table.
#[derive(Debug, Default)]
struct KeptDescriptors {
    counting: Mutex<Option<OwnedFd>>,
    /// Attachments of users other than root that ended since the last check.
    ended: Mutex<Ended<Program>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Attachments that have ended, with their programs: a decision may be under way.
#[derive(Debug)]
struct Ended<P>(VecDeque<(Attachment, P)>);

impl<P> Default for Ended<P> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<P> Ended<P> {
    /// One user's many entries push out no other user's.
    fn push(&mut self, attachment: Attachment, program: P) {
        let uid = attachment.uid;
        self.0.push_front((attachment, program));
        let mut own = 0;
        self.0.retain(|(attachment, _)| {
            own += usize::from(attachment.uid == uid);
            attachment.uid != uid || own <= MAX_ENDED
        });
    }
}

impl KeptDescriptors {
    fn count(&self) -> Result<bool, Error> {
        let mut counting = lock(&self.counting);
        if counting.is_some() {
            return Ok(false);
        }
        *counting = Some(count_run_time().map_err(|error| failed(&error))?);
        Ok(true)
    }
}

impl Accounting {
    /// Creates one with the descriptors of the calling thread.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn new() -> io::Result<Self> {
        Ok(Self { kept: Arc::default(), keeper: Keeper::start()?, barred: Mutex::default() })
    }

    /// Turns on the kernel's counting; returns whether it was off. Call with the lock, before a user's policy
    /// can decide anything.
    pub fn count(&self) -> Result<bool, Error> {
        let kept = Arc::clone(&self.kept);
        self.keeper.run(move || kept.count())?
    }

    /// Refuses users who are barred.
    pub fn admit(&self, caller: Caller) -> Result<(), Error> {
        let mut barred = lock(&self.barred);
        let now = Instant::now();
        barred.retain(|_, until| *until > now);
        let Some(until) = barred.get(&caller.uid) else { return Ok(()) };
        let (uid, seconds) = (caller.uid, (*until - now).as_secs() + 1);
        let text = format!(
            "a policy of user {uid} cost too much and ended before it could be taken away: attach again in {seconds} s"
        );
        Err(Error::new(ErrorKind::Denied, text))
    }

    /// Notes that an attachment in `state`, whose pins still exist, is about to end.
    pub fn ends(&self, state: &State, stored: &Stored) {
        if stored.attachment.uid == 0 || stored.attachment.status != Status::Active {
            return;
        }
        let (kept, state) = (Arc::clone(&self.kept), state.clone());
        let attachment = stored.attachment.clone();
        // Without a descriptor only its cost is lost.
        let _ = self.keeper.run(move || {
            if let Ok(program) = state.program(attachment.id) {
                lock(&kept.ended).push(attachment, program);
            }
        });
    }
}

impl Engine {
    /// Bars user `uid` from attaching, for a minute.
    pub fn bar(&self, uid: u32) {
        lock(&self.accounting.barred).insert(uid, Instant::now() + BAR);
    }

    /// Unless a policy has been attached meanwhile.
    fn stop_counting(&self) -> Result<(), Error> {
        if lock(&self.accounting.kept.counting).is_none() {
            return Ok(());
        }
        let _turn = self.turns.change(true);
        let _lock = self.state.lock()?;
        if self.state.list()?.iter().all(|attachment| attachment.uid == 0) {
            *lock(&self.accounting.kept.counting) = None;
        }
        Ok(())
    }

    /// Returns the current policies, users' newest first and root's last, and those that ended since the last
    /// call.
    fn deciding(&self) -> Result<Vec<Deciding>, Error> {
        // So that each is in exactly one of the two.
        let _turn = self.turns.change(true);
        let _lock = self.state.lock()?;
        let mut list = self.state.list()?;
        let ended = std::mem::take(&mut lock(&self.accounting.kept.ended).0);
        list.retain(|attachment| attachment.status == Status::Active);
        list.sort_by_key(|attachment| (attachment.uid == 0, Reverse(attachment.id)));
        let with = |attachment: Attachment| {
            let program = self.state.program(attachment.id);
            (attachment, program)
        };
        let ended = ended.into_iter().map(|(attachment, program)| (attachment, Ok(program)));
        Ok(list.into_iter().map(with).chain(ended).collect())
    }
}

/// What policies cost between two calls. Call from a thread with the descriptors of the engine's creator.
#[derive(Debug)]
pub struct Meter {
    asked: Instant,
    /// The counts at the last call, by the kernel's program id.
    last: BTreeMap<u32, Counted>,
}

impl Default for Meter {
    fn default() -> Self {
        Self { asked: Instant::now(), last: BTreeMap::new() }
    }
}

/// What each policy has cost, or why that is unknown.
pub type Costs = Vec<(Attachment, Result<Cost, Error>)>;

impl Meter {
    /// Returns the cost of each policy that decides, or did since the last call: since then, or during
    /// `sample` if all are root's; an error if it is unknown. Policies at one interface are counted in one
    /// program: their cost is attributed to the newest that is not root's.
    ///
    /// # Errors
    /// If the kernel does not count, or the list cannot be read.
    pub fn costs(&mut self, engine: &Engine, sample: Duration) -> Result<Costs, Error> {
        let programs = engine.deciding()?;
        let has_users = programs.iter().any(|(attachment, _)| attachment.uid != 0);
        if !programs.is_empty() && engine.accounting.count()? {
            // Programs not counted until now.
            let counted = programs.iter().filter_map(|program| counted(program).ok());
            self.last = counted.map(|counted| (counted.program, counted)).collect();
            self.asked = Instant::now();
            if !has_users {
                sleep(sample.min(MAX_SAMPLE));
            }
        }
        let (mut costs, mut last, mut are_all_known) = (Costs::new(), BTreeMap::new(), true);
        for program in programs {
            match counted(&program) {
                Ok(now) if last.insert(now.program, now).is_some() => {}
                Ok(now) => costs.push((program.0, Ok(self.cost(&now)))),
                Err(error) => {
                    are_all_known = false;
                    costs.push((program.0, Err(error)));
                }
            }
        }
        // What cannot be queried now may succeed next time.
        if are_all_known {
            self.last.clear();
        }
        self.last.extend(last);
        self.asked = Instant::now();
        if !has_users {
            engine.stop_counting()?;
        }
        Ok(costs)
    }

    /// A new program was counted from its start.
    fn cost(&self, now: &Counted) -> Cost {
        let unknown = Counted { program: now.program, runs: 0, ns: 0, at: self.asked };
        now.since(self.last.get(&now.program).unwrap_or(&unknown))
    }
}

fn counted((_, program): &Deciding) -> Result<Counted, Error> {
    let program = program.as_ref().map_err(Error::clone)?;
    Counted::of(program).map_err(|error| failed(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ending_many_attachments_pushes_out_no_other_users() {
        let attachment = |uid: u32| -> Attachment {
            let text = format!(
                r#"{{"id":1,"hook":"socket-select","policy":"p","parameters":[],"uid":{uid},"pid":1,"command":"","protocol":"udp","address":"","interface":null,"executors":[],"since_ms":0,"status":"active"}}"#
            );
            serde_json::from_str(&text).unwrap()
        };
        let mut ended = Ended::default();
        ended.push(attachment(7), 0);
        for n in 1..=2 * MAX_ENDED {
            ended.push(attachment(8), n);
        }
        let numbers: Vec<usize> = ended.0.iter().map(|(_, program)| *program).collect();
        let newest = (MAX_ENDED + 1..=2 * MAX_ENDED).rev();
        assert_eq!(numbers, newest.chain([0]).collect::<Vec<_>>());
    }
}
