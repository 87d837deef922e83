//! What policies of users cost, from one look of the daemon's watch to the next, and who may attach none for a while.
//!
//! The kernel adds the time of a run at its end, and only if it counted when the run began. So it counts from the moment at which
//! the first policy of a user other than root is attached until a look finds none: no decision is too long to be counted, and no
//! moment is one to behave well in. What ended between two looks is told in the second. Counting costs every BPF program of the
//! machine two readings of the clock a run; root's own policies are sampled.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use heddle_sys::bpf::{Program, count_run_time};

use super::stats::{Cost, Counted, MAX_SAMPLE, failed};
use super::{Caller, Engine, Stored};
use crate::request::{Attachment, Error, ErrorKind, Status};

/// The most attachments that ended since the last look; the oldest are forgotten first.
const MAX_ENDED: usize = 256;
/// How long a user may attach nothing whose policy cost too much and ended before it could be taken away.
const BAR: Duration = Duration::from_secs(60);

/// An attachment, and the program in which its decisions are counted.
pub(super) type Deciding = (Attachment, Result<Program, Error>);

/// What the engine keeps for the watch.
#[derive(Debug, Default)]
pub(super) struct Accounting {
    counting: Mutex<Option<OwnedFd>>,
    /// Those of users other than root that ended since the last look.
    ended: Mutex<VecDeque<(Attachment, Program)>>,
    /// Users who may attach nothing, until when.
    barred: Mutex<BTreeMap<u32, Instant>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Accounting {
    /// Makes the kernel count; whether it did not before. Before a user's policy may decide anything, for whoever has the lock.
    pub fn count(&self) -> Result<bool, Error> {
        let mut counting = lock(&self.counting);
        if counting.is_some() {
            return Ok(false);
        }
        *counting = Some(count_run_time().map_err(|error| failed(&error))?);
        Ok(true)
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

    /// Notes that an attachment ends. Its program is kept, for a decision may be under way.
    pub fn ends(&self, stored: &Stored) {
        if stored.attachment.uid == 0 || stored.attachment.status != Status::Active {
            return;
        }
        // Without a descriptor its cost is lost, and nothing else.
        let Ok(program) = stored.root.as_fd().try_clone_to_owned() else { return };
        let mut ended = lock(&self.ended);
        ended.truncate(MAX_ENDED - 1);
        ended.push_front((stored.attachment.clone(), Program::from_fd(program)));
    }
}

impl Engine {
    /// Refuses whatever user `uid` wants to attach, for a minute.
    pub fn bar(&self, uid: u32) {
        lock(&self.accounting.barred).insert(uid, Instant::now() + BAR);
    }

    /// Unless somebody has attached a policy meanwhile.
    fn stop_counting(&self) -> Result<(), Error> {
        if lock(&self.accounting.counting).is_none() {
            return Ok(());
        }
        let _turn = self.turns.change(true);
        let _lock = self.state.lock()?;
        if self.state.list()?.iter().all(|attachment| attachment.uid == 0) {
            *lock(&self.accounting.counting) = None;
        }
        Ok(())
    }

    /// What decides, users' newest attachments first and root's last, and what has ended since this was last asked.
    fn deciding(&self) -> Result<Vec<Deciding>, Error> {
        // So that each is in one of the two.
        let _turn = self.turns.change(true);
        let _lock = self.state.lock()?;
        let mut list = self.state.list()?;
        let ended = std::mem::take(&mut *lock(&self.accounting.ended));
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

/// What policies cost, from one asking to the next.
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
        let strangers = programs.iter().any(|(attachment, _)| attachment.uid != 0);
        if !programs.is_empty() && engine.accounting.count()? {
            // What was not counted until now.
            let counted = programs.iter().filter_map(|program| counted(program).ok());
            self.last = counted.map(|counted| (counted.program, counted)).collect();
            self.asked = Instant::now();
            if !strangers {
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
        if !strangers {
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
