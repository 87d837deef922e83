//! Files: reads at an offset, and what waits for the disk.

use super::block::in_kernel;
use super::kind::{self, Kind};
use super::parts::{self, Window};
use super::stream::HERE;
use super::{EAGAIN, EINVAL, EOPNOTSUPP, points};
use crate::real::real;
use crate::sys::syscall;
use libc::iovec;
use std::ffi::{c_int, c_void};

/// Reads into the first buffers of `list` what is in memory. `at` is the offset, or [`HERE`].
pub(super) fn read_now(fd: c_int, list: &[iovec], at: i64) -> isize {
    // SAFETY: the caller's buffers.
    unsafe { syscall!(libc::SYS_preadv2, fd, list.as_ptr(), list.len(), at, at, libc::RWF_NOWAIT) }
}

/// Reads a file into all of `list`, as a read in the kernel does: first what is in memory, then the rest. Returns
/// EAGAIN if `fd` is not a file and has nothing to read now.
pub(super) fn read(fd: c_int, list: &[iovec], at: i64) -> isize {
    let size = parts::total(list);
    let mut done = 0;
    while done < size {
        let window = Window::new(list, done);
        let from = if at == HERE { HERE } else { at + done as i64 };
        let call = |flags: c_int| {
            let (parts, count) = (window.as_ptr(), window.len());
            // SAFETY: the caller's buffers.
            unsafe { syscall!(libc::SYS_preadv2, fd, parts, count, from, from, flags) }
        };
        let result = match call(libc::RWF_NOWAIT) {
            // A read at an offset works on files only.
            EAGAIN if at != HERE || kind::is_file(fd) => in_kernel(|| call(0)),
            result => result,
        };
        match result {
            error if error < 0 && done == 0 => return error,
            ..=0 => break,
            read => done += read as usize,
        }
        // The number may have another kind of descriptor by now, whose short read is all there is.
        if done < size && at == HERE && !kind::is_file(fd) {
            break;
        }
    }
    done as isize
}

/// Reads a file at an offset. `call` does the same in the kernel, where it may block.
fn read_at(fd: c_int, list: &[iovec], at: i64, call: impl Fn() -> isize) -> isize {
    if at < 0 || list.is_empty() || kind::known(fd).is_plain() {
        return call();
    }
    match read(fd, list, at) {
        EOPNOTSUPP | EINVAL => {
            if kind::of(fd).is(Kind::FILE) {
                kind::set_plain(fd);
            }
            call()
        }
        result => result,
    }
}

fn pread_one(fd: c_int, buffer: *mut c_void, size: usize, at: i64) -> isize {
    let one = [iovec { iov_base: buffer, iov_len: size }];
    // SAFETY: the caller's buffer.
    read_at(fd, &one, at, || unsafe { syscall!(libc::SYS_pread64, fd, buffer, size, at) })
}

fn pread_list(fd: c_int, list: *const iovec, count: c_int, at: i64) -> isize {
    // SAFETY: the caller's list; the kernel finds the error, if there is one.
    let call = || unsafe { syscall!(libc::SYS_preadv, fd, list, count, at, at) };
    // SAFETY: the caller's list.
    read_at(fd, unsafe { parts::list(list, count as usize) }, at, call)
}

fn pread_flags(fd: c_int, list: *const iovec, count: c_int, at: i64, flags: c_int) -> isize {
    // SAFETY: as above.
    let call = || unsafe { syscall!(libc::SYS_preadv2, fd, list, count, at, at, flags) };
    match flags {
        0 if at >= 0 => pread_list(fd, list, count, at),
        _ if flags & libc::RWF_NOWAIT != 0 => call(),
        _ => in_kernel(call),
    }
}

fn pwrite_one(fd: c_int, buffer: *const c_void, size: usize, at: i64) -> isize {
    // SAFETY: the caller's buffer.
    unsafe { syscall!(libc::SYS_pwrite64, fd, buffer, size, at) }
}

fn pwrite_list(fd: c_int, list: *const iovec, count: c_int, at: i64) -> isize {
    // SAFETY: the caller's list.
    unsafe { syscall!(libc::SYS_pwritev, fd, list, count, at, at) }
}

fn pwrite_flags(fd: c_int, list: *const iovec, count: c_int, at: i64, flags: c_int) -> isize {
    // SAFETY: the caller's list.
    unsafe { syscall!(libc::SYS_pwritev2, fd, list, count, at, at, flags) }
}

points! {
    pread(fd: c_int, buffer: *mut c_void, size: usize, at: i64) -> isize {
        pread_one(fd, buffer, size, at)
    }
    pread64(fd: c_int, buffer: *mut c_void, size: usize, at: i64) -> isize {
        pread_one(fd, buffer, size, at)
    }
    __pread64(fd: c_int, buffer: *mut c_void, size: usize, at: i64) -> isize {
        pread_one(fd, buffer, size, at)
    }
    __pread_chk(fd: c_int, buffer: *mut c_void, size: usize, at: i64, room: usize) -> isize {
        if size > room {
            // SAFETY: the caller's arguments; it does not return.
            return unsafe {
                real!(__pread_chk(
                    fd: c_int, buffer: *mut c_void, size: usize, at: i64, room: usize
                ) -> isize)
            };
        }
        pread_one(fd, buffer, size, at)
    }
    __pread64_chk(fd: c_int, buffer: *mut c_void, size: usize, at: i64, room: usize) -> isize {
        if size > room {
            // SAFETY: as above.
            return unsafe {
                real!(__pread64_chk(
                    fd: c_int, buffer: *mut c_void, size: usize, at: i64, room: usize
                ) -> isize)
            };
        }
        pread_one(fd, buffer, size, at)
    }
    preadv(fd: c_int, list: *const iovec, count: c_int, at: i64) -> isize {
        pread_list(fd, list, count, at)
    }
    preadv64(fd: c_int, list: *const iovec, count: c_int, at: i64) -> isize {
        pread_list(fd, list, count, at)
    }
    preadv2(fd: c_int, list: *const iovec, count: c_int, at: i64, flags: c_int) -> isize {
        pread_flags(fd, list, count, at, flags)
    }
    preadv64v2(fd: c_int, list: *const iovec, count: c_int, at: i64, flags: c_int) -> isize {
        pread_flags(fd, list, count, at, flags)
    }
    pwrite(fd: c_int, buffer: *const c_void, size: usize, at: i64) -> isize {
        pwrite_one(fd, buffer, size, at)
    }
    pwrite64(fd: c_int, buffer: *const c_void, size: usize, at: i64) -> isize {
        pwrite_one(fd, buffer, size, at)
    }
    __pwrite64(fd: c_int, buffer: *const c_void, size: usize, at: i64) -> isize {
        pwrite_one(fd, buffer, size, at)
    }
    pwritev(fd: c_int, list: *const iovec, count: c_int, at: i64) -> isize {
        pwrite_list(fd, list, count, at)
    }
    pwritev64(fd: c_int, list: *const iovec, count: c_int, at: i64) -> isize {
        pwrite_list(fd, list, count, at)
    }
    pwritev2(fd: c_int, list: *const iovec, count: c_int, at: i64, flags: c_int) -> isize {
        pwrite_flags(fd, list, count, at, flags)
    }
    pwritev64v2(fd: c_int, list: *const iovec, count: c_int, at: i64, flags: c_int) -> isize {
        pwrite_flags(fd, list, count, at, flags)
    }
    fsync(fd: c_int) -> c_int {
        // SAFETY: no memory.
        in_kernel(|| unsafe { syscall!(libc::SYS_fsync, fd) })
    }
    fdatasync(fd: c_int) -> c_int {
        // SAFETY: no memory.
        in_kernel(|| unsafe { syscall!(libc::SYS_fdatasync, fd) })
    }
    syncfs(fd: c_int) -> c_int {
        // SAFETY: no memory.
        in_kernel(|| unsafe { syscall!(libc::SYS_syncfs, fd) })
    }
    msync(at: *mut c_void, size: usize, flags: c_int) -> c_int {
        // SAFETY: the caller's mapping.
        let call = || unsafe { syscall!(libc::SYS_msync, at, size, flags) };
        if flags & libc::MS_SYNC != 0 { in_kernel(call) } else { call() }
    }
}
