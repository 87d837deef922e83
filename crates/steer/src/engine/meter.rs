//! What policies of users cost, from one look of the daemon's watch to the next, and who may attach none for a while.
//!
//! The kernel adds the time of a run at its end, and only if it counted when the run began. So it counts from the moment at which
//! the first policy of a user other than root is attached until a look finds none: no decision is too long to be counted, and no
//! moment is one to behave well in. What ended between two looks is told in the second. Counting costs every BPF program of the
//! machine two readings of the clock a run; root's own policies are sampled.

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

/// The most attachments of a user that ended since the last look; the oldest are forgotten first.
const MAX_ENDED: usize = 256;
/// How long a user may attach nothing whose policy cost too much and ended before it could be taken away.
const BAR: Duration = Duration::from_secs(60);

/// An attachment, and the program in which its decisions are counted.
pub(super) type Deciding = (Attachment, Result<Program, Error>);

/// What the engine keeps for the watch.
#[derive(Debug)]
pub(super) struct Accounting {
    kept: Arc<KeptDescriptors>,
    keeper: Keeper,
    /// Users who may attach nothing, until when.
    barred: Mutex<BTreeMap<u32, Instant>>,
}

/// Descriptors, which the keeper opens; those who close them have the same table.
#[derive(Debug, Default)]
struct KeptDescriptors {
    counting: Mutex<Option<OwnedFd>>,
    /// Those of users other than root that ended since the last look.
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
    /// One user's many push out no other's.
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
    /// Whose descriptors are those of the calling thread.
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn new() -> io::Result<Self> {
        Ok(Self { kept: Arc::default(), keeper: Keeper::start()?, barred: Mutex::default() })
    }

    /// Makes the kernel count; whether it did not before. Before a user's policy may decide anything, for whoever has the lock.
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

    /// Notes that an attachment in `state`, which has its pins yet, is to end.
    pub fn ends(&self, state: &State, stored: &Stored) {
        if stored.attachment.uid == 0 || stored.attachment.status != Status::Active {
            return;
        }
        let (kept, state) = (Arc::clone(&self.kept), state.clone());
        let attachment = stored.attachment.clone();
        // Without a descriptor its cost is lost, and nothing else.
        let _ = self.keeper.run(move || {
            if let Ok(program) = state.program(attachment.id) {
                lock(&kept.ended).push(attachment, program);
            }
        });
    }
}

impl Engine {
    /// Refuses whatever user `uid` wants to attach, for a minute.
    pub fn bar(&self, uid: u32) {
        lock(&self.accounting.barred).insert(uid, Instant::now() + BAR);
    }

    /// Unless somebody has attached a policy meanwhile.
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

    /// What decides, users' newest attachments first and root's last, and what has ended since this was last asked.
    fn deciding(&self) -> Result<Vec<Deciding>, Error> {
        // So that each is in one of the two.
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

/// What policies cost, from one asking to the next. Asked by a thread that has the descriptors of the engine's maker.
#[derive(Debug)]
pub struct Meter {
    asked: Instant,
    /// What was counted by then, by the kernel's number of the program.
    last: BTreeMap<u32, Counted>,
}

impl Default for Meter {
    fn default() -> Self {
        Self { asked: Instant::now(), last: BTreeMap::new() }
    }
}

/// What each policy has cost, or why that cannot be told.
pub type Costs = Vec<(Attachment, Result<Cost, Error>)>;

impl Meter {
    /// What each policy that decides, or did since this was last asked, has cost since then, or in `sample` where all are root's; an
    /// error where that cannot be told. Those at one interface are counted in one program: what they cost is told of the newest that
    /// is not root's.
    ///
    /// # Errors
    /// If the kernel does not count, or the list cannot be read.
    pub fn costs(&mut self, engine: &Engine, sample: Duration) -> Result<Costs, Error> {
        let programs = engine.deciding()?;
        let has_users = programs.iter().any(|(attachment, _)| attachment.uid != 0);
        if !programs.is_empty() && engine.accounting.count()? {
            // What was not counted until now.
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
        // What cannot be asked now may be the next time.
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

    /// A program that is new was counted from its beginning.
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
