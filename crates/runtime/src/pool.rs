//! Stacks with their control blocks: created once, recycled forever.

use crate::task::{GUARD, Stack, Task, TaskRef, debug};
use crate::tls;
use heddle_sys::memory;
use std::io;
use std::sync::Mutex;

/// The available stack sizes in bytes, including guard and control block. Only the pages a task touches cost memory.
/// The large ones leave room for a whole stack of 2 MiB, std's default, 8 MiB, the C library's, or 64 MiB or 1 GiB,
/// beside those.
pub const STACK_CLASSES: [usize; 8] = [
    32 << 10,
    64 << 10,
    256 << 10,
    1 << 20,
    (2 << 20) + ROOM,
    (8 << 20) + ROOM,
    (64 << 20) + ROOM,
    (1 << 30) + ROOM,
];

/// What the large classes have in addition to a round size.
const ROOM: usize = 64 << 10;

/// Class of tasks that request no size: 256 KiB.
pub(crate) const DEFAULT_CLASS: u8 = 2;

/// Class of the stacks on which futures are polled: 2 MiB, as elsewhere.
pub(crate) const CARRIER_CLASS: u8 = 4;

/// Bytes mapped at once for a class.
const SLAB: usize = 4 << 20;

/// Bytes under its control block that a recycled stack keeps; the memory below returns to the system once the global
/// pool takes the stack.
const KEEP: usize = 8 << 10;

/// Free stacks. The first is stored here, and each holds the next one's address in `sp`: a list that needs no memory.
#[derive(Default)]
pub(crate) struct FreeList {
    first: usize,
    len: usize,
}

impl FreeList {
    pub(crate) const EMPTY: FreeList = FreeList { first: 0, len: 0 };

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn push(&mut self, task: TaskRef) {
        task.get().sp.set(self.first);
        self.first = task.addr();
        self.len += 1;
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<TaskRef> {
        // SAFETY: not zero, so `push` put a task's address there.
        let task = (self.first != 0).then(|| unsafe { TaskRef::from_addr(self.first) })?;
        self.first = task.get().sp.get();
        self.len -= 1;
        Some(task)
    }
}

/// Free stacks of one class, and untouched memory for more.
struct Class {
    free: FreeList,
    fresh: (usize, usize),
}

static CLASSES: [Mutex<Class>; STACK_CLASSES.len()] =
    [const { Mutex::new(Class { free: FreeList::EMPTY, fresh: (0, 0) }) }; STACK_CLASSES.len()];

/// All locks of the pool.
pub(crate) struct Locks(
    #[expect(dead_code)] [std::sync::MutexGuard<'static, Class>; STACK_CLASSES.len()],
);

/// Takes all locks of the pool.
pub(crate) fn lock_all() -> Locks {
    Locks(std::array::from_fn(|class| lock(class as u8)))
}

fn lock(class: u8) -> std::sync::MutexGuard<'static, Class> {
    // A panic under this lock (out of memory) leaves the lists valid.
    CLASSES[class as usize].lock().unwrap_or_else(|e| e.into_inner())
}

/// Returns the smallest class with at least `size` bytes plus room for a signal frame of this machine.
///
/// # Errors
/// The largest available size, if that is too small.
pub(crate) fn class_for(size: usize) -> Result<u8, usize> {
    let needed = size.max(memory::signal_frame_size() + GUARD + (8 << 10));
    let found = STACK_CLASSES.iter().position(|&s| s >= needed);
    found.map(|i| i as u8).ok_or(STACK_CLASSES[STACK_CLASSES.len() - 1])
}

/// Returns a stack of `class`, recycled or new.
///
/// # Errors
/// The system's: memory, guards (see `vm.max_map_count`) or donor threads are exhausted.
pub(crate) fn take(class: u8) -> io::Result<TaskRef> {
    let recycled = lock(class).free.pop();
    recycled.map_or_else(|| make(class), Ok)
}

/// Moves up to `n` recycled stacks to `out`.
pub(crate) fn take_free(class: u8, n: usize, out: &mut FreeList) {
    let mut class = lock(class);
    std::iter::from_fn(|| class.free.pop()).take(n).for_each(|task| out.push(task));
}

/// Returns stacks of `class` to the pool.
pub(crate) fn give(class: u8, tasks: impl Iterator<Item = TaskRef>) {
    let mut class = lock(class);
    for task in tasks {
        trim(task.get());
        class.free.push(task);
    }
}

/// Returns the deep part of an unused stack to the system.
fn trim(task: &Task) {
    let (low, top) = (task.stack.base + GUARD, task.top.get());
    let high = top.saturating_sub(KEEP) & !(memory::PAGE - 1);
    if high > low {
        // SAFETY: page-aligned, between guard and control block of a stack without a task.
        unsafe { memory::discard(low as *mut u8, high - low) };
    }
}

fn make(class: u8) -> io::Result<TaskRef> {
    let size = STACK_CLASSES[class as usize];
    let base = carve(class, size)?;
    // SAFETY: fresh memory of ours, page-aligned and zeroed, never given back.
    unsafe {
        memory::guard(base as *mut u8, GUARD)?;
        let area = tls::furnish(base as *mut u8, size)?;
        let at = (area.usable_top - size_of::<Task>()) as *mut Task;
        at.write(Task::new(area.fs, Stack { base, size, class }));
        (*at).top.set(at as usize);
        debug::add(&*at);
        Ok(TaskRef::new(&*at))
    }
}

/// Returns `size` bytes of memory never used before.
fn carve(class: u8, size: usize) -> io::Result<usize> {
    let mut class = lock(class);
    if class.fresh.1 < size {
        let slab = SLAB.max(size);
        class.fresh = (memory::reserve(slab)? as usize, slab);
    }
    let (base, left) = class.fresh;
    class.fresh = (base + size, left - size);
    Ok(base)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_round_up_to_a_class() {
        assert_eq!(class_for(200 << 10), Ok(2));
        assert_eq!(class_for(8 << 20), Ok(5));
        assert_eq!(class_for(9 << 20), Ok(6));
        assert_eq!(class_for(2 << 30), Err((1 << 30) + ROOM));
        assert!(
            STACK_CLASSES[class_for(0).unwrap() as usize] >= GUARD + memory::signal_frame_size()
        );
    }

    #[test]
    fn a_stack_is_recycled_with_its_block() {
        let class = 1;
        let task = take(class).unwrap();
        let fs = task.get().fs;
        assert!(fs > task.addr(), "the block lies above the task");
        give(class, [task].into_iter());
        let mut free = FreeList::EMPTY;
        take_free(class, 100, &mut free);
        let out: Vec<_> = std::iter::from_fn(|| free.pop()).collect();
        assert!(free.len() == 0 && out.iter().any(|t| t.get().fs == fs));
        give(class, out.into_iter());
    }
}
