//! Classes: which threads are latency-critical, which best-effort, which of another kind.
//!
//! A thread's class is, in this order:
//!
//! 1. what it works on now, if a map says so that belongs to the thread's user or root ([`ClassMap`]: executors' lines,
//!    or a map of the user's own; Syrup, section 5.3);
//! 2. the class of the first [`Rule`] that its name or process fits;
//! 3. [`Class::BE`] if its nice value is above 0, else [`Class::LC`].
//!
//! The first changes from request to request and costs a load or two. The second needs the thread's name, which is
//! read when the thread is first seen and again after 2, 4, 8, ... of its messages: programs name a thread once it
//! runs, and a late name is found after as much time again as it was missing.

mod lines;
mod map;
mod name;
mod rule;

pub use lines::{Lines, LinesError};
pub use map::ClassMap;
pub use name::of_thread as name_of_thread;
pub use rule::{Pattern, Rule, RuleError};

use crate::model::ThreadWord;
use heddle_core::{Class, TaskId};

/// The weight of nice 0; a lower weight is a higher nice value.
const NICE_0: u32 = 100;

/// What is known of the thread in a slot.
#[derive(Clone, Copy, Debug, Default)]
struct SlotClass {
    /// The thread.
    tid: u32,
    /// Its weight at that time.
    weight: u32,
    /// Its class by rules and nice value.
    own: Class,
    /// Whether the class map counts for it: it is its user's.
    map_counts: bool,
    /// After how many messages to read its name and user again; never if neither matters.
    reread: u64,
    /// Where its line was last.
    line: usize,
}

/// The source of names: the system, except in tests.
type Names = Box<dyn Fn(u32) -> Option<String> + Send + Sync>;

/// How threads get their classes.
///
/// ```
/// use heddle_agent::classes::Classes;
/// use heddle_agent::model::ThreadWord;
/// use heddle_core::{Class, TaskId};
///
/// let mut classes = Classes::new(vec!["be=pid:77".parse()?]);
/// let word = ThreadWord { tid: 78, tgid: 77, weight: 100, ..ThreadWord::default() };
/// assert_eq!(classes.class_of(TaskId(0), &word), Class::BE);
/// # Ok::<(), heddle_agent::classes::RuleError>(())
/// ```
pub struct Classes {
    rules: Vec<Rule>,
    by_name: bool,
    map: Option<ClassMap>,
    names: Names,
    known: Vec<SlotClass>,
}

impl Default for Classes {
    /// Assigns classes by nice value only.
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
    /// Assigns classes by the first of `rules` that fits, then by nice value.
    #[must_use]
    pub fn new(rules: Vec<Rule>) -> Classes {
        let by_name = rules.iter().any(|rule| matches!(rule.pattern, Pattern::Name(_)));
        Classes { rules, by_name, map: None, names: Box::new(name::of_thread), known: Vec::new() }
    }

    /// Lets `map` decide first, where it says anything.
    #[must_use]
    pub fn with_map(mut self, map: impl Into<ClassMap>) -> Classes {
        self.map = Some(map.into());
        self
    }

    /// Takes names from `names` instead of the system.
    #[must_use]
    pub fn with_names(
        mut self,
        names: impl Fn(u32) -> Option<String> + Send + Sync + 'static,
    ) -> Classes {
        self.names = Box::new(names);
        self
    }

    /// Returns the present class of the thread in slot `thread` with the status word `word`. Takes a load or two,
    /// unless the thread is new, its weight has changed, or its name is due.
    #[inline]
    pub fn class_of(&mut self, thread: TaskId, word: &ThreadWord) -> Class {
        let slot = thread.index();
        let known = self.known.get(slot).copied().unwrap_or_default();
        if known.tid != word.tid || known.weight != word.weight || word.tseq.0 >= known.reread {
            self.read_slot(slot, word);
        }
        let known = &mut self.known[slot];
        let map = self.map.as_ref().filter(|_| known.map_counts);
        let work = map.and_then(|map| map.work_of(word.tid, &mut known.line));
        work.map_or(known.own, |work| self.class_of_work(work))
    }

    /// Finds out what is independent of a thread's work.
    fn read_slot(&mut self, slot: usize, word: &ThreadWord) {
        if slot >= self.known.len() {
            self.known.resize(slot + 1, SlotClass::default());
        }
        let (own, ThreadWord { tid, weight, tseq, .. }) = (self.own_class(word), *word);
        let map_counts = self.map.as_ref().is_some_and(|map| map.speaks_for(word.tgid));
        let by_user = self.map.as_ref().is_some_and(|map| !map.is_roots());
        let again = self.by_name || by_user;
        let reread = if again { tseq.0.max(1).saturating_mul(2) } else { u64::MAX };
        let line = self.known[slot].line;
        self.known[slot] = SlotClass { tid, weight, own, map_counts, reread, line };
    }

    /// Work is numbered from 1, classes from 0: so 1 is latency-critical unless a rule says otherwise.
    fn class_of_work(&self, work: u32) -> Class {
        let named = self.rules.iter().find(|rule| rule.pattern == Pattern::Work(work));
        named.map_or_else(|| Class(u8::try_from(work - 1).unwrap_or(u8::MAX)), |rule| rule.class)
    }

    fn own_class(&self, word: &ThreadWord) -> Class {
        self.of_thread(word.tid, word.tgid, word.weight < NICE_0)
    }

    /// Returns the class of thread `tid` of process `tgid` by rules, and by whether its nice value is above 0,
    /// whatever its work. Reads its name.
    #[must_use]
    pub fn of_thread(&self, tid: u32, tgid: u32, is_nice: bool) -> Class {
        let name = if self.by_name { (self.names)(tid) } else { None };
        let fits = |rule: &&Rule| rule.pattern.fits(tgid, name.as_deref());
        let by_nice = if is_nice { Class::BE } else { Class::LC };
        self.rules.iter().find(fits).map_or(by_nice, |rule| rule.class)
    }
}

#[cfg(test)]
mod tests;
