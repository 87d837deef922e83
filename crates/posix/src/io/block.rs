//! Waiting as a task for a call that would block.

use super::ready::{self, Ended, Node, Waiter};
use super::{EAGAIN, EBADF, EINTR, after, kind};
use crate::cancel::{self, Attended};
use crate::report;
use crate::sys::syscall;
use crate::wait::Attend;
use heddle_core::Ns;
use std::ffi::c_int;
use std::mem::MaybeUninit;

/// How many times a descriptor may be reported ready for a call that then finds nothing, before the call is made in
/// the kernel. A full queue of *another* Unix socket is such a case: this one can always be written to.
const MISSES: u32 = 32;

/// The most descriptors that a task waits for at once.
pub(super) const MOST: usize = 64;

/// What a call waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    In,
    Out,
}

/// How long a wait may last, besides for what it waits.
#[derive(Clone, Copy)]
pub(super) struct Patience {
    pub(super) deadline: Option<Ns>,
    /// The call goes on after a handler with SA_RESTART. Calls with a limit of time never do.
    pub(super) restarts: bool,
}

impl Patience {
    /// Until `deadline`, of a call that is restarted if it has none.
    fn until(deadline: Option<Ns>) -> Patience {
        Patience { deadline, restarts: deadline.is_none() }
    }

    /// Until `deadline`, of a call that is never restarted.
    pub(super) fn of_poll(deadline: Option<Ns>) -> Patience {
        Patience { deadline, restarts: false }
    }
}

/// How a wait ended.
pub(super) enum Waited {
    /// The call was made, with this result.
    Done(isize),
    TimedOut,
    /// A handler of the program's ran.
    Interrupted,
    /// The call must be made in the kernel: there is nothing to wait for.
    Refused,
}

impl Way {
    pub(super) fn events(self) -> u32 {
        match self {
            Way::In => ready::IN,
            Way::Out => ready::OUT,
        }
    }
}

/// Makes `call`, and waits for the descriptor as long as it would block. Its argument says whether it must not block.
#[inline]
pub(super) fn call(fd: c_int, way: Way, mut call: impl FnMut(bool) -> isize) -> isize {
    if kind::known(fd).is_nonblocking() {
        return call(false);
    }
    match call(true) {
        EAGAIN => wait(fd, way, &mut call),
        result => result,
    }
}

/// The rest of [`call`] once it would block.
#[cold]
pub(super) fn wait(fd: c_int, way: Way, call: &mut dyn FnMut(bool) -> isize) -> isize {
    if kind::ask_nonblocking(fd) {
        return EAGAIN;
    }
    wait_until(fd, way, timeout(fd, way), call)
}

/// Makes `call` when `fd` is ready; gives up with EAGAIN at `deadline`.
pub(super) fn wait_until(
    fd: c_int,
    way: Way,
    deadline: Option<Ns>,
    call: &mut dyn FnMut(bool) -> isize,
) -> isize {
    match when_ready(fd, way.events(), Patience::until(deadline), &mut || call(true)) {
        Waited::Done(result) => result,
        Waited::TimedOut => EAGAIN,
        Waited::Interrupted => EINTR,
        Waited::Refused => in_kernel(|| call(false)),
    }
}

/// Waits until `fd` is ready for `events` and then makes `call`, which must not block, until it does not return EAGAIN.
pub(super) fn when_ready(
    fd: c_int,
    events: u32,
    patience: Patience,
    call: &mut dyn FnMut() -> isize,
) -> Waited {
    let waiter = Waiter::new();
    let waited = await_ready(&waiter, (fd, events), patience, call);
    report::after_wait(waiter.task());
    waited
}

fn await_ready(
    waiter: &Waiter,
    (fd, events): (c_int, u32),
    patience: Patience,
    call: &mut dyn FnMut() -> isize,
) -> Waited {
    let mut misses = 0;
    loop {
        waiter.begin();
        let node = Node::new(fd, events, waiter);
        // SAFETY: the node stays here until it has left, below; nothing unwinds before.
        if misses == MISSES || !unsafe { node.join() } {
            return Waited::Refused;
        }
        let ended = waiter.park(patience.deadline);
        let is_due = ended == Ended::Ready && !node.is_closed();
        let result = if is_due { call() } else { EAGAIN };
        if !node.leave() {
            return Waited::Done(EBADF);
        }
        match ended {
            Ended::Ready if result == EAGAIN => misses += 1,
            Ended::Ready => return Waited::Done(result),
            Ended::TimedOut => return Waited::TimedOut,
            Ended::Interrupted => {
                if is_interrupted(patience.restarts) {
                    return Waited::Interrupted;
                }
            }
        }
    }
}

/// Waits until one of `wanted`, descriptors and events, is ready, and then makes `call` until it does not return 0.
pub(super) fn when_any(
    wanted: &[(c_int, u32)],
    patience: Patience,
    call: &mut dyn FnMut() -> isize,
) -> Waited {
    let waiter = Waiter::new();
    let waited = await_any(&waiter, wanted, patience, call);
    report::after_wait(waiter.task());
    waited
}

fn await_any(
    waiter: &Waiter,
    wanted: &[(c_int, u32)],
    patience: Patience,
    call: &mut dyn FnMut() -> isize,
) -> Waited {
    let mut misses = 0;
    loop {
        waiter.begin();
        let mut nodes = [const { MaybeUninit::<Node>::uninit() }; MOST];
        let mut joined = 0;
        for (node, &(fd, events)) in nodes.iter_mut().zip(wanted) {
            // SAFETY: the node stays here until it has left, below; nothing unwinds before.
            if misses == MISSES || !unsafe { node.write(Node::new(fd, events, waiter)).join() } {
                break;
            }
            joined += 1;
        }
        let is_refused = joined < wanted.len();
        let ended = if is_refused { Ended::Ready } else { waiter.park(patience.deadline) };
        let result = if is_refused { 0 } else { call() };
        for node in &nodes[..joined] {
            // SAFETY: written above.
            unsafe { node.assume_init_ref() }.leave();
        }
        if is_refused {
            return Waited::Refused;
        }
        if result != 0 {
            return Waited::Done(result);
        }
        match ended {
            Ended::Ready => misses += 1,
            Ended::TimedOut => return Waited::TimedOut,
            Ended::Interrupted => {
                if is_interrupted(patience.restarts) {
                    return Waited::Interrupted;
                }
            }
        }
    }
}

/// Does what is asked of the calling thread, whose call was interrupted. Returns whether the call reports that by
/// EINTR: a preemption never shows. Does not return if the thread is cancelled.
fn is_interrupted(restarts: bool) -> bool {
    match cancel::attend(Attend::Cancel) {
        Attended::Nothing => false,
        Attended::Restart => !restarts,
        Attended::Interrupt => true,
    }
}

/// Makes `call` in the kernel, where it may block, without holding up other tasks.
pub(super) fn in_kernel(call: impl FnMut() -> isize) -> isize {
    in_kernel_as(true, call)
}

/// As [`in_kernel`]; `restarts` as in [`Patience`].
pub(super) fn in_kernel_as(restarts: bool, mut call: impl FnMut() -> isize) -> isize {
    loop {
        match heddle_rt::blocking(&mut call) {
            EINTR if !is_interrupted(restarts) => {}
            result => return result,
        }
    }
}

/// Returns when a wait of a call on `fd` ends, by the socket's own limit.
pub(super) fn timeout(fd: c_int, way: Way) -> Option<Ns> {
    let option = match way {
        Way::In => libc::SO_RCVTIMEO,
        Way::Out => libc::SO_SNDTIMEO,
    };
    let mut time = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let mut size = size_of::<libc::timeval>() as libc::socklen_t;
    let (at, size) = (&raw mut time, &raw mut size);
    // SAFETY: room for the answer.
    let result = unsafe { syscall!(libc::SYS_getsockopt, fd, libc::SOL_SOCKET, option, at, size) };
    let us = (time.tv_sec as u64).saturating_mul(1_000_000).saturating_add(time.tv_usec as u64);
    if result != 0 || us == 0 { None } else { after(Ns(us.saturating_mul(1000))) }
}
