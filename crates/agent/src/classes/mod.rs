//! Classes: which threads are latency-critical, which best-effort, which of another kind.
//!
//! A thread's class is, in this order:
//!
//! 1. what it works on now, where a map of executors' lines says so ([`Lines`]; Syrup, section 5.3);
//! 2. what the first [`Rule`] says that its name or process fits;
//! 3. [`Class::BE`] where its nice value is above 0, else [`Class::LC`].
//!
//! The first changes from request to request and costs a load or two. The second needs the thread's name, which is read when
//! the thread is met and again after 2, 4, 8, ... of its messages: programs name a thread once it runs, and a name that
//! comes late is found after as much time as it was missing.

mod glob;
mod lines;
mod name;
mod rule;

pub use lines::{Lines, LinesError};
pub use name::of_thread as name_of_thread;
pub use rule::{Pattern, Rule, RuleError};

use crate::model::{Seq, ThreadWord};
use heddle_core::{Class, TaskId};

/// The weight of nice 0; a lower one is a higher nice value.
const NICE_0: u32 = 100;

/// What is known of a thread whose class is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadFacts {
    /// Its slot.
    pub thread: TaskId,
    /// The kernel's number.
    pub tid: u32,
    /// The number of its process.
    pub tgid: u32,
    /// 1 to 10000; 100 is nice 0.
    pub weight: u32,
    /// How many messages it has caused.
    pub tseq: Seq,
}

impl ThreadFacts {
    /// What `word`, the status word of `thread`, says.
    #[must_use]
    pub fn new(thread: TaskId, word: &ThreadWord) -> ThreadFacts {
        let ThreadWord { tid, tgid, weight, tseq, .. } = *word;
        ThreadFacts { thread, tid, tgid, weight, tseq }
    }
}

/// What was found out of the thread in a slot.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// By rules and nice value.
    own: Class,
    /// After how many messages its name is read again.
    reread: u64,
    /// Where its line was last.
    line: usize,
}

/// Where names come from; the system, but for tests.
type Names = Box<dyn Fn(u32) -> Option<String> + Send + Sync>;

/// How threads get their classes.
///
/// ```
/// use heddle_agent::classes::{Classes, ThreadFacts};
/// use heddle_agent::model::Seq;
/// use heddle_core::{Class, TaskId};
///
/// let mut classes = Classes::new(vec!["be=pid:77".parse()?]);
/// let thread = ThreadFacts { thread: TaskId(0), tid: 78, tgid: 77, weight: 100, tseq: Seq(1) };
/// assert_eq!(classes.class_of(&thread), Class::BE);
/// # Ok::<(), heddle_agent::classes::RuleError>(())
/// ```
pub struct Classes {
    rules: Vec<Rule>,
    by_name: bool,
    lines: Option<Lines>,
    names: Names,
    known: Vec<Known>,
}

impl Default for Classes {
    /// By nice value only.
    fn default() -> Classes {
        Classes::new(Vec::new())
    }
}

impl std::fmt::Debug for Classes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Classes").field("rules", &self.rules).finish_non_exhaustive()
    }
}

impl Classes {
    /// By `rules`, the first that fits, then by nice value.
    #[must_use]
    pub fn new(rules: Vec<Rule>) -> Classes {
        let by_name = rules.iter().any(|rule| matches!(rule.pattern, Pattern::Name(_)));
        Classes { rules, by_name, lines: None, names: Box::new(name::of_thread), known: Vec::new() }
    }

    /// By what `lines` say, where they say anything.
    #[must_use]
    pub fn with_lines(mut self, lines: Lines) -> Classes {
        self.lines = Some(lines);
        self
    }

    /// With names from `names` and not from the system.
    #[must_use]
    pub fn with_names(
        mut self,
        names: impl Fn(u32) -> Option<String> + Send + Sync + 'static,
    ) -> Classes {
        self.names = Box::new(names);
        self
    }

    /// The class of a thread that is new, or whose weight has changed.
    pub fn class_of(&mut self, thread: &ThreadFacts) -> Class {
        let slot = thread.thread.index();
        if slot >= self.known.len() {
            self.known.resize(slot + 1, Known::default());
        }
        self.known[slot].own = self.own_class(thread);
        self.known[slot].reread = thread.tseq.0.max(1).saturating_mul(2);
        self.now(thread)
    }

    /// The class of a thread that was met before, as it is now: for each time that it begins to wait for a CPU, and each
    /// tick. Without rules by name and without lines this is a load.
    #[inline]
    pub fn again(&mut self, thread: &ThreadFacts) -> Class {
        match self.known.get(thread.thread.index()) {
            Some(known) if !self.by_name || thread.tseq.0 < known.reread => self.now(thread),
            _ => self.class_of(thread),
        }
    }

    fn now(&mut self, thread: &ThreadFacts) -> Class {
        let known = &mut self.known[thread.thread.index()];
        let lines = self.lines.as_ref();
        let work = lines.and_then(|lines| lines.work_of(thread.tid, &mut known.line));
        work.map_or(known.own, |work| self.class_of_work(work))
    }

    /// Work is numbered from 1, classes from 0: so 1 is latency-critical where no rule says otherwise.
    fn class_of_work(&self, work: u32) -> Class {
        let named = self.rules.iter().find(|rule| rule.pattern == Pattern::Work(work));
        named.map_or_else(|| Class(u8::try_from(work - 1).unwrap_or(u8::MAX)), |rule| rule.class)
    }

    fn own_class(&self, thread: &ThreadFacts) -> Class {
        let name = if self.by_name { (self.names)(thread.tid) } else { None };
        let fits = |rule: &&Rule| rule.pattern.fits(thread.tgid, name.as_deref());
        let by_nice = if thread.weight < NICE_0 { Class::BE } else { Class::LC };
        self.rules.iter().find(fits).map_or(by_nice, |rule| rule.class)
    }
}

#[cfg(test)]
mod tests;
