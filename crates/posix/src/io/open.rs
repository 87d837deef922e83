//! Opening files: a FIFO is opened when its other side is, which may take any time.
//!
//! Whether a path is a FIFO's must be known before it is opened, and to ask the kernel would cost half of what opening
//! a file costs. So paths that were none are remembered by a hash, which is what a task's open costs more (10 ns). A
//! path may become a FIFO's later, and two paths may have the same hash: then the open blocks unannounced, which costs
//! the CPU a millisecond, as any call of which the library knows nothing.

use super::block::in_kernel;
use super::kind::{self, Kind};
use super::points;
use crate::real::real;
use crate::sys::syscall;
use libc::mode_t;
use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicU64, Ordering};

/// Flags with which no FIFO is opened, or without waiting, each by all of its bits. An open for both sides does not
/// wait either.
const NEVER_WAITS: [c_int; 4] =
    [libc::O_NONBLOCK, libc::O_PATH, libc::O_DIRECTORY, libc::O_CREAT | libc::O_EXCL];

/// The hashes of paths that were no FIFO's, each in one of two places. 64 KiB, of which programs touch what they need.
static OTHERS: [AtomicU64; 8192] = [const { AtomicU64::new(0) }; 8192];

fn hash(folder: c_int, path: &CStr) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |hash: u64, word: u64| (hash ^ word).wrapping_mul(FACTOR).rotate_left(29);
    let bytes = path.to_bytes();
    let seed = u64::from(folder as u32) << 32 | bytes.len() as u64;
    let mut words = bytes.chunks_exact(8);
    let whole = words.by_ref().fold(mix(0, seed), |hash, word| {
        mix(hash, u64::from_le_bytes(word.try_into().unwrap_or_default()))
    });
    let rest = words.remainder().iter().fold(0, |rest, &byte| rest << 8 | u64::from(byte));
    // Zero is a free place.
    mix(whole, rest) | 1
}

/// What a path is before it is opened.
enum PathKind {
    Fifo,
    /// Anything else, as far as is known.
    Other,
    /// Nothing: an open fails with this error.
    Missing(isize),
}

/// Looks what `path` is, to which `flags` apply.
fn look(folder: c_int, path: *const c_char, flags: c_int) -> PathKind {
    let has_all = |bits| flags & bits == bits;
    let never_waits =
        flags & libc::O_ACCMODE == libc::O_RDWR || NEVER_WAITS.into_iter().any(has_all);
    if never_waits || path.is_null() {
        return PathKind::Other;
    }
    // SAFETY: the caller's path.
    let hash = hash(folder, unsafe { CStr::from_ptr(path) });
    let places = [32, 48].map(|shift| &OTHERS[(hash >> shift) as usize % OTHERS.len()]);
    if places.iter().any(|place| place.load(Ordering::Relaxed) == hash) {
        return PathKind::Other;
    }
    let found = ask(folder, path, flags);
    if matches!(found, PathKind::Other) {
        let free = places.iter().find(|place| place.load(Ordering::Relaxed) == 0);
        free.unwrap_or(&places[(hash >> 1) as usize % 2]).store(hash, Ordering::Relaxed);
    }
    found
}

/// Asks the kernel what `path` is.
#[cold]
fn ask(folder: c_int, path: *const c_char, flags: c_int) -> PathKind {
    // SAFETY: all zeros is a value of the structure, which is valid for the call; the caller's path.
    let (result, mode) = unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        (syscall!(libc::SYS_newfstatat, folder, path, &raw mut stat, 0), stat.st_mode)
    };
    match result {
        0 if mode & libc::S_IFMT == libc::S_IFIFO => PathKind::Fifo,
        // An open that follows links and makes nothing would say the same.
        ..0 if flags & (libc::O_CREAT | libc::O_NOFOLLOW) == 0 => PathKind::Missing(result),
        _ => PathKind::Other,
    }
}

/// Opens a file in a task.
fn open_at(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> isize {
    // SAFETY: the caller's path.
    let call = || unsafe { syscall!(libc::SYS_openat, folder, path, flags, mode) };
    match look(folder, path, flags) {
        PathKind::Fifo => {
            let fd = in_kernel(call);
            note(fd, Kind::PIPE);
            fd
        }
        PathKind::Missing(error) => error,
        PathKind::Other => {
            let fd = call();
            note(fd, Kind::UNKNOWN);
            fd
        }
    }
}

/// The number is a new descriptor's.
fn note(fd: isize, kind: Kind) {
    if fd >= 0 {
        kind::set(fd as c_int, kind);
    }
}

const HERE: c_int = libc::AT_FDCWD;

/// Flags that need a mode, which the checked forms do not take.
fn needs_mode(flags: c_int) -> bool {
    flags & libc::O_CREAT != 0 || flags & libc::O_TMPFILE == libc::O_TMPFILE
}

// The last argument of some of these is optional in C; without it, a register's value is passed that the kernel does
// not look at.
points! {
    open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        open_at(HERE, path, flags, mode)
    }
    open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        open_at(HERE, path, flags, mode)
    }
    __open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        open_at(HERE, path, flags, mode)
    }
    __open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        open_at(HERE, path, flags, mode)
    }
    __open_2(path: *const c_char, flags: c_int) -> c_int {
        if needs_mode(flags) {
            // SAFETY: the caller's arguments; it does not return.
            return unsafe { real!(__open_2(path: *const c_char, flags: c_int) -> c_int) };
        }
        open_at(HERE, path, flags, 0)
    }
    __open64_2(path: *const c_char, flags: c_int) -> c_int {
        if needs_mode(flags) {
            // SAFETY: as above.
            return unsafe { real!(__open64_2(path: *const c_char, flags: c_int) -> c_int) };
        }
        open_at(HERE, path, flags, 0)
    }
    openat(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        open_at(folder, path, flags, mode)
    }
    openat64(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        open_at(folder, path, flags, mode)
    }
    __openat_2(folder: c_int, path: *const c_char, flags: c_int) -> c_int {
        if needs_mode(flags) {
            // SAFETY: as above.
            return unsafe {
                real!(__openat_2(folder: c_int, path: *const c_char, flags: c_int) -> c_int)
            };
        }
        open_at(folder, path, flags, 0)
    }
    __openat64_2(folder: c_int, path: *const c_char, flags: c_int) -> c_int {
        if needs_mode(flags) {
            // SAFETY: as above.
            return unsafe {
                real!(__openat64_2(folder: c_int, path: *const c_char, flags: c_int) -> c_int)
            };
        }
        open_at(folder, path, flags, 0)
    }
    creat(path: *const c_char, mode: mode_t) -> c_int {
        open_at(HERE, path, libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC, mode)
    }
    creat64(path: *const c_char, mode: mode_t) -> c_int {
        open_at(HERE, path, libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC, mode)
    }
}
