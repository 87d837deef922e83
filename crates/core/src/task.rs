//! Tasks as policies see them: an index and a slot of plain fields.

use core::fmt;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// A schedulable unit: the index of its [`TaskSlot`] (I1).
///
/// The hook defines what it stands for: a user-level thread, a kernel thread, an event, a simulated job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u32);

impl TaskId {
    /// Returns the index into the slot table.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "task{}", self.0)
    }
}

impl From<u64> for TaskId {
    fn from(raw: u64) -> TaskId {
        TaskId(raw as u32)
    }
}

impl From<TaskId> for u64 {
    fn from(id: TaskId) -> u64 {
        u64::from(id.0)
    }
}

/// The kind of work that a task does. Policies with typed queues may use any number; two have names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Class(pub u8);

impl Class {
    /// Latency-critical, the default.
    pub const LC: Class = Class(0);
    /// Best-effort: runs on the CPU time that latency-critical work leaves.
    pub const BE: Class = Class(1);
}

impl From<u64> for Class {
    fn from(raw: u64) -> Class {
        Class(raw as u8)
    }
}

impl From<Class> for u64 {
    fn from(class: Class) -> u64 {
        u64::from(class.0)
    }
}

/// A plain field of a task, with only `get` and `set`.
///
/// It is a relaxed atomic: as cheap as an ordinary load or store, and a policy that mixes up its tasks is merely wrong,
/// not unsound (I1). Exclusive access comes from the hook, which calls a policy for one queue at a time.
pub struct Var<T = u64>(AtomicU64, PhantomData<T>);

impl<T: From<u64> + Into<u64>> Var<T> {
    /// Returns a field that holds `value`.
    pub fn new(value: T) -> Var<T> {
        Var(AtomicU64::new(value.into()), PhantomData)
    }

    /// Returns the value.
    #[inline]
    pub fn get(&self) -> T {
        self.0.load(Relaxed).into()
    }

    /// Sets the value.
    #[inline]
    pub fn set(&self, value: T) {
        self.0.store(value.into(), Relaxed);
    }
}

impl<T> Default for Var<T> {
    /// Returns a field that holds zero.
    fn default() -> Var<T> {
        Var(AtomicU64::new(0), PhantomData)
    }
}

impl<T: From<u64> + Into<u64> + fmt::Debug> fmt::Debug for Var<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

/// What a program specifies about a task when creating it; all of it optional.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskAttrs {
    /// The kind of work.
    pub class: Class,
    /// The time by which the task should be done.
    pub deadline: Option<crate::Ns>,
    /// How long the task is expected to run, if known.
    pub expected: Option<crate::Ns>,
    /// Its share, for policies that share by weight, relative to 1024 (nice 0 in Linux; see [`nice_weight`]); without
    /// one, its class decides.
    pub weight: Option<u32>,
}

/// Returns the weight of a nice value, -20 to 19, as the kernel's fair scheduler has it (`sched_prio_to_weight`): 1024
/// for 0, and each step is about 1.25 times the next. Values outside count as the nearest.
pub const fn nice_weight(nice: i32) -> u32 {
    const WEIGHTS: [u32; 40] = [
        88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100,
        4904, 3906, 3121, 2501, 1991, 1586, 1277, 1024, 820, 655, 526, 423, 335, 272, 215, 172,
        137, 110, 87, 70, 56, 45, 36, 29, 23, 18, 15,
    ];
    let at = if nice < -20 {
        0
    } else if nice > 19 {
        39
    } else {
        nice + 20
    };
    WEIGHTS[at as usize]
}

/// The index that means "no task" in a link.
pub(crate) const NIL: u32 = u32::MAX;

/// The links of a task in a queue: `next` and `prev` in a list.
pub(crate) struct Links {
    pub(crate) next: AtomicU32,
    pub(crate) prev: AtomicU32,
    /// 1 if the task is in a queue, else 0. Upholds I2.
    pub(crate) queued: AtomicU32,
}

/// Everything known about a task: its attributes, its links in a queue and the policy's own state `T`.
///
/// Slots are in a table that the hook owns; policies access them through [`crate::Cx::task`].
pub struct TaskSlot<T> {
    pub(crate) links: Links,
    class: Var<Class>,
    deadline: Var<crate::Ns>,
    expected: Var<crate::Ns>,
    weight: Var,
    /// The policy's own per-task state.
    pub policy: T,
    /// A word for the hook that owns the table (the runtime stores the task's address there).
    pub host: Var<u64>,
}

impl<T: Default> Default for TaskSlot<T> {
    fn default() -> Self {
        TaskSlot {
            links: Links {
                next: AtomicU32::new(NIL),
                prev: AtomicU32::new(NIL),
                queued: AtomicU32::new(0),
            },
            class: Var::default(),
            deadline: Var::default(),
            expected: Var::default(),
            weight: Var::default(),
            policy: T::default(),
            host: Var::default(),
        }
    }
}

impl<T> TaskSlot<T> {
    /// Returns the attributes given at creation.
    pub fn attrs(&self) -> TaskAttrs {
        TaskAttrs {
            class: self.class.get(),
            deadline: Some(self.deadline.get()).filter(|d| d.0 != 0),
            expected: Some(self.expected.get()).filter(|d| d.0 != 0),
            weight: self.weight(),
        }
    }

    /// Returns the weight given at creation.
    #[inline]
    pub fn weight(&self) -> Option<u32> {
        // It was stored from 32 bits.
        Some(self.weight.get() as u32).filter(|&weight| weight != 0)
    }

    /// Returns the kind of work given at creation.
    #[inline]
    pub fn class(&self) -> Class {
        self.class.get()
    }

    /// Sets the attributes; the hook calls this before `task_init`. A deadline, expected time or weight of zero means
    /// none.
    pub fn set_attrs(&self, attrs: TaskAttrs) {
        self.class.set(attrs.class);
        self.deadline.set(attrs.deadline.unwrap_or_default());
        self.expected.set(attrs.expected.unwrap_or_default());
        self.weight.set(u64::from(attrs.weight.unwrap_or_default()));
    }

    /// Returns whether the task is in a [`crate::TaskList`] or a [`crate::TaskTree`].
    pub fn is_queued(&self) -> bool {
        self.links.queued.load(Relaxed) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nice_values_have_the_kernels_weights() {
        assert_eq!([-20, -1, 0, 1, 19].map(nice_weight), [88761, 1277, 1024, 820, 15]);
        assert_eq!((nice_weight(-99), nice_weight(99)), (88761, 15));
    }

    #[test]
    fn attributes_are_read_as_set_and_zero_means_none() {
        let slot = TaskSlot::<()>::default();
        assert_eq!(slot.attrs(), TaskAttrs::default());
        let attrs = TaskAttrs { class: Class::BE, weight: Some(15), ..TaskAttrs::default() };
        slot.set_attrs(attrs);
        assert_eq!((slot.attrs(), slot.class(), slot.weight()), (attrs, Class::BE, Some(15)));
        slot.set_attrs(TaskAttrs { weight: Some(0), ..attrs });
        assert_eq!(slot.weight(), None);
    }
}
