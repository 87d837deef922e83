//! Marks of the program in recordings of its runtime ([`crate::Runtime::record`], `heddle record`): what a task begins
//! and ends, and what happens in it.
//!
//! While nothing is recorded a mark costs a few loads, otherwise the lock of a run queue. Threads that are no tasks
//! leave none.
//!
//! ```
//! use heddle_rt::mark::{Name, Phase, mark};
//!
//! let runtime = heddle_rt::RuntimeBuilder::new().workers(1).build()?;
//! runtime.record(std::time::Duration::from_secs(60));
//! let parse = Name::new("parse");
//! runtime.run(move || {
//!     mark(parse, Phase::Begin, 7);
//!     mark(parse, Phase::End, 7);
//! });
//! let events = runtime.recorded().events.into_iter();
//! let marks = events.filter(|event| event.kind == heddle_rt::trace::EventKind::Mark);
//! assert!(marks.map(|mark| (mark.by, mark.request)).eq([(parse.number(), 7); 2]));
//! # Ok::<(), heddle_rt::ConfigError>(())
//! ```

pub use heddle_core::MarkPhase as Phase;

use crate::preempt::NoPreempt;
use crate::task::{Mark, Task};
use crate::telemetry::MARKS;
use heddle_core::Event;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The names by their numbers, which are the same in all runtimes of the process.
static NAMES: [OnceLock<&str>; MARKS] = [const { OnceLock::new() }; MARKS];
/// How many numbers are taken.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// The name of marks. A process has at most 512 different ones; marks with others have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    number: u32,
    text: &'static str,
}

impl Name {
    /// Returns the name `text`, of which readers see the first 124 bytes. It looks through all names: keep the result.
    pub fn new(text: &'static str) -> Name {
        let taken = TAKEN.load(Ordering::Acquire).min(MARKS);
        let known = NAMES[..taken].iter().position(|name| name.get() == Some(&text));
        // Two threads that name the same at once take two numbers, and both are right.
        let number = known.unwrap_or_else(|| {
            let full = |taken: usize| (taken < MARKS).then_some(taken + 1);
            let number = TAKEN.fetch_update(Ordering::AcqRel, Ordering::Acquire, full);
            let number = number.unwrap_or(MARKS);
            NAMES.get(number).map(|name| name.set(text));
            number
        });
        let number = if number < MARKS { number as u32 } else { Event::NONE };
        Name { number, text }
    }

    /// Returns its number, which marks have in [`Event::by`].
    pub fn number(self) -> u32 {
        self.number
    }
}

/// Returns whether a mark of the caller would be recorded now: it is a task, and its runtime is being recorded.
pub fn is_recorded() -> bool {
    Task::current().is_some_and(|task| {
        let _guard = NoPreempt::new();
        task.sched().is_recorded()
    })
}

/// Records a mark of the calling task if its runtime is being recorded. `of` is the number of what it belongs to (a
/// request, a span), 0 if there is none; readers find it in [`Event::request`].
pub fn mark(name: Name, phase: Phase, of: u64) {
    let Some(task) = Task::current() else { return };
    let _guard = NoPreempt::new();
    if task.sched().is_recorded() {
        task.sched().record_mark(task, Mark { name: name.number, phase, of }, name.text);
    }
}
