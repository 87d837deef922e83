//! Detects forks: a child has its parent's descriptors, but none of its threads.

use crate::memory::SharedMemory;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::AcqRel, Ordering::Acquire};
use std::sync::atomic::{Ordering::Relaxed, Ordering::Release};

/// The number of forks between this process and the first one to ask.
static FORKS: AtomicU32 = AtomicU32::new(0);
static WATCH: Once = Once::new();

extern "C" fn count() {
    FORKS.fetch_add(1, Relaxed);
}

/// Returns a number that identifies the process and changes in the child of a fork. A load, while `getpid` is a system
/// call.
///
/// A child created by the bare system call, past the C library, is not distinguished from its parent.
pub fn generation() -> u32 {
    if !WATCH.is_completed() {
        WATCH.call_once(|| {
            // SAFETY: the handler only accesses an atomic, which a child may do whatever other threads were doing.
            let result = unsafe { libc::pthread_atfork(None, None, Some(count)) };
            assert_eq!(result, 0, "out of memory for a fork handler");
        });
    }
    FORKS.load(Relaxed)
}

/// The memory at an address range, for children of forks. The address is 0 if the entry is free, [`TAKEN`] while it is
/// being filled in.
struct Range {
    base: AtomicUsize,
    len: AtomicUsize,
}

const TAKEN: usize = 1;

static RANGES: [Range; 64] =
    [const { Range { base: AtomicUsize::new(0), len: AtomicUsize::new(0) } }; 64];
static GIVE: Once = Once::new();

extern "C" fn give_in_child() {
    for range in &RANGES {
        let base = range.base.load(Acquire);
        if base > TAKEN {
            crate::memory::fill_hole(base, range.len.load(Relaxed));
        }
    }
}

/// Until it is dropped, children of forks have zeroed memory of their own at an address range.
#[derive(Debug)]
pub struct ChildMemory(&'static AtomicUsize);

impl ChildMemory {
    /// Gives children memory of their own where `shared` lies here, which they do not get. Code that writes to it then
    /// goes on in the child, and changes nothing here.
    ///
    /// # Errors
    /// 64 ranges are registered already.
    pub fn in_place_of(shared: &SharedMemory) -> std::io::Result<ChildMemory> {
        GIVE.call_once(|| {
            // SAFETY: the handler reads atomics and maps memory, which a child may do whatever other threads did.
            let result = unsafe { libc::pthread_atfork(None, None, Some(give_in_child)) };
            assert_eq!(result, 0, "out of memory for a fork handler");
        });
        let free = |range: &&Range| range.base.compare_exchange(0, TAKEN, AcqRel, Relaxed).is_ok();
        let range = RANGES.iter().find(free).ok_or_else(|| {
            std::io::Error::other("too much shared memory that children of forks must not get")
        })?;
        range.len.store(shared.size(), Relaxed);
        range.base.store(shared.base() as usize, Release);
        Ok(ChildMemory(&range.base))
    }

    /// Does in the child of a fork what its handler does, for forks that run no handlers (`_Fork`).
    pub fn give() {
        give_in_child();
    }
}

impl Drop for ChildMemory {
    fn drop(&mut self) {
        self.0.store(0, Release);
    }
}

/// Hides descriptors numbered `first` and above from the programs that this process starts, whatever opened them.
///
/// # Errors
/// `ENOSYS` and `EINVAL` from kernels before 5.11.
pub fn close_on_exec_from(first: i32) -> std::io::Result<()> {
    let flags = libc::CLOSE_RANGE_CLOEXEC;
    // SAFETY: takes numbers, and closes nothing now.
    match unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, flags) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Forks and runs `work` in the child, which then exits without running any of the parent's cleanup. Returns whether
/// `work` returned true. For tests of what children may do: a lock that another thread held stays locked in the child,
/// so the child ends itself after half a minute.
#[doc(hidden)]
pub fn in_child(work: impl FnOnce() -> bool) -> std::io::Result<bool> {
    // SAFETY: the child has copies of everything that `work` refers to, ends here, and cannot change the parent's
    // memory.
    let child = unsafe { libc::fork() };
    if child < 0 {
        return Err(std::io::Error::last_os_error());
    }
    if child == 0 {
        // SAFETY: takes a number. Without a handler, the alarm ends the child.
        unsafe { libc::alarm(30) };
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or(false);
        // SAFETY: ends the child.
        unsafe { libc::_exit(if done { 7 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: waits for the child that was just made.
    let waited = unsafe { libc::waitpid(child, &mut status, 0) };
    Ok(waited == child && libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_has_another_generation() {
        let here = generation();
        assert!(in_child(|| generation() != here).unwrap());
        assert!(!in_child(|| generation() == here).unwrap());
        assert_eq!(generation(), here);
    }

    #[test]
    fn a_child_writes_to_memory_of_its_own_and_not_to_shared_memory() {
        let file = crate::memory::sealed_file(c"fork", 4096).unwrap();
        let shared = SharedMemory::reserve(4096).unwrap();
        shared.map(&file, true).unwrap();
        let children = ChildMemory::in_place_of(&shared).unwrap();
        // SAFETY: mapped, aligned to a page, and reached through this reference only.
        let word = unsafe { &*shared.base().cast::<AtomicUsize>() };
        word.store(5, Relaxed);
        let child = || {
            ChildMemory::give();
            word.fetch_add(1, Relaxed) == 0
        };
        assert!(in_child(child).unwrap());
        assert_eq!(word.load(Relaxed), 5);
        drop(children);
        // SAFETY: `word` is not used any more.
        unsafe { shared.unmap() };
    }
}
