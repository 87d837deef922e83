//! The schedule itself, step by step: when each task was queued, ran, waited and ended; see [`crate::Runtime::record`].
//! Requires the feature `trace`; without it the scheduler's notes compile to nothing.

pub use heddle_core::EventKind;

#[cfg(feature = "trace")]
pub use heddle_core::Event;
#[cfg(feature = "trace")]
pub use recorder::Trace;

#[cfg(feature = "trace")]
pub(crate) use recorder::Recorder;

/// Records nothing.
#[cfg(not(feature = "trace"))]
#[derive(Default)]
pub(crate) struct Recorder(());

#[cfg(not(feature = "trace"))]
impl Recorder {
    #[inline(always)]
    pub(crate) fn name(&self, _: &crate::task::Entity) {}

    #[inline(always)]
    pub(crate) fn note(&self, _: usize, _: &crate::task::Entity, _: EventKind) {}
}

#[cfg(feature = "trace")]
mod recorder {
    use super::{Event, EventKind};
    use crate::preempt::NoPreempt;
    use crate::task::Entity;
    use heddle_core::{CpuId, Layer};
    use heddle_sync::SpinLock;
    use heddle_sys::clock;
    use std::cell::UnsafeCell;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// A recording.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct Trace {
        /// The steps, in order: exact within one queue, and between queues up to the time that taking the note takes.
        pub steps: Vec<Event>,
        /// The number of further steps for which there was no room.
        pub lost: u64,
    }

    /// Records events in memory reserved beforehand.
    #[derive(Default)]
    pub(crate) struct Recorder {
        lock: SpinLock,
        kept: UnsafeCell<Trace>,
        born: AtomicU64,
    }

    // SAFETY: what is kept is used under the lock only.
    unsafe impl Sync for Recorder {}

    impl Recorder {
        /// Numbers a task that begins its life.
        pub(crate) fn name(&self, task: &Entity) {
            task.number.store(self.born.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        }

        /// Something happens to `task` now. Preemption is off.
        pub(crate) fn note(&self, cpu: usize, task: &Entity, kind: EventKind) {
            let (cpu, task) = (CpuId(cpu as u16), task.number.load(Ordering::Relaxed) as u32);
            self.with(|kept| match kept.steps.len() < kept.steps.capacity() {
                true => {
                    kept.steps.push(Event::task(clock::now(), cpu, task, kind).of(Layer::Runtime))
                }
                false => kept.lost += 1,
            });
        }

        /// Goes on with room for so many steps, and hands over what was kept.
        pub(crate) fn exchange(&self, steps: usize) -> Trace {
            let _guard = NoPreempt::new();
            let fresh = Trace { steps: Vec::with_capacity(steps), lost: 0 };
            self.with(|kept| std::mem::replace(kept, fresh))
        }

        fn with<R>(&self, f: impl FnOnce(&mut Trace) -> R) -> R {
            self.lock.lock();
            // SAFETY: the lock is held.
            let result = f(unsafe { &mut *self.kept.get() });
            self.lock.unlock();
            result
        }
    }
}
