//! Why a thread sleeps, by its system call.

use libc::c_long;

use super::layout::SYSCALLS;

/// `enum ob_why` of `bpf/observe/include/spans.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Reason {
    Futex = 0,
    Sleep = 1,
    Read = 2,
    Write = 3,
    File = 4,
    Other = 5,
    /// It waits for any request.
    Idle = 6,
}

/// Not in the `libc` crate for all targets; the same number on all.
const FUTEX_WAITV: c_long = 449;

const TABLE: &[(Reason, &[c_long])] = &[
    (Reason::Futex, &[libc::SYS_futex, FUTEX_WAITV]),
    (Reason::Sleep, &[libc::SYS_nanosleep, libc::SYS_clock_nanosleep]),
    (
        Reason::Read,
        &[
            libc::SYS_read,
            libc::SYS_readv,
            libc::SYS_recvfrom,
            libc::SYS_recvmsg,
            libc::SYS_recvmmsg,
        ],
    ),
    (
        Reason::Write,
        &[
            libc::SYS_write,
            libc::SYS_writev,
            libc::SYS_sendto,
            libc::SYS_sendmsg,
            libc::SYS_sendmmsg,
            libc::SYS_sendfile,
            libc::SYS_splice,
        ],
    ),
    (
        Reason::File,
        &[
            libc::SYS_fsync,
            libc::SYS_fdatasync,
            libc::SYS_sync_file_range,
            libc::SYS_openat,
            libc::SYS_openat2,
            libc::SYS_pread64,
            libc::SYS_preadv,
            libc::SYS_pwrite64,
            libc::SYS_pwritev,
            libc::SYS_ftruncate,
            libc::SYS_fallocate,
            libc::SYS_unlinkat,
            libc::SYS_renameat2,
        ],
    ),
    (
        Reason::Idle,
        &[
            libc::SYS_epoll_pwait,
            libc::SYS_epoll_pwait2,
            libc::SYS_ppoll,
            libc::SYS_pselect6,
            libc::SYS_accept,
            libc::SYS_accept4,
            libc::SYS_io_uring_enter,
        ],
    ),
    #[cfg(target_arch = "x86_64")]
    (Reason::Idle, &[libc::SYS_epoll_wait, libc::SYS_poll, libc::SYS_select]),
    #[cfg(target_arch = "x86_64")]
    (
        Reason::File,
        &[libc::SYS_open, libc::SYS_stat, libc::SYS_lstat, libc::SYS_unlink, libc::SYS_rename],
    ),
];

/// Returns the reason of each system call, by number, as the programs read it.
pub(super) fn reasons() -> [u8; SYSCALLS] {
    let mut reasons = [Reason::Other as u8; SYSCALLS];
    for (reason, calls) in TABLE {
        for &call in *calls {
            reasons[call as usize] = *reason as u8;
        }
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_system_call_has_two_reasons() {
        let mut all: Vec<c_long> =
            TABLE.iter().flat_map(|(_, calls)| calls.iter().copied()).collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        assert!(all.iter().all(|call| (0..SYSCALLS as c_long).contains(call)));
    }
}
