//! `select`: sets of descriptors.

use super::block::{self, MOST, Patience, Waited};
use super::{EINTR, EINVAL, after, points, ready};
use crate::clock;
use crate::sys::syscall;
use heddle_core::Ns;
use libc::{fd_set, sigset_t, timespec, timeval};
use std::ffi::c_int;
use std::ptr;

/// Words of a copied set: descriptors up to 4096, where programs that exceed FD_SETSIZE usually stop.
const WORDS: usize = 64;

/// What each set waits for, in poll's bits, as the kernel defines them.
const EVENTS: [u32; 3] = [
    (libc::EPOLLIN | libc::EPOLLRDNORM | libc::EPOLLRDBAND) as u32,
    (libc::EPOLLOUT | libc::EPOLLWRNORM | libc::EPOLLWRBAND) as u32,
    libc::EPOLLPRI as u32,
];

/// The program's three sets, each of `words` words.
#[derive(Clone, Copy)]
struct Sets {
    count: c_int,
    words: usize,
    at: [*mut u64; 3],
}

impl Sets {
    fn new(count: c_int, at: [*mut fd_set; 3]) -> Sets {
        Sets { count, words: (count.max(0) as usize).div_ceil(64), at: at.map(<*mut _>::cast) }
    }

    /// Calls `f` with the number of each set and of each of its words.
    fn each(self, mut f: impl FnMut(usize, usize, *mut u64)) {
        for (set, at) in self.at.into_iter().enumerate().filter(|(_, at)| !at.is_null()) {
            for word in 0..self.words {
                f(set, word, at.wrapping_add(word));
            }
        }
    }

    /// Looks which descriptors are ready, and stores that if any is, or if there is an error.
    fn now(self) -> isize {
        let mut copies = [[0u64; WORDS]; 3];
        let result = ready::look(|| {
            // SAFETY: the caller's memory.
            self.each(|set, word, at| copies[set][word] = unsafe { at.read() });
            let mut at = copies.each_mut().map(|set| set.as_mut_ptr());
            for (copy, _) in at.iter_mut().zip(self.at).filter(|(_, own)| own.is_null()) {
                *copy = ptr::null_mut();
            }
            let [read, write, except] = at;
            let mut zero = clock::timespec(Ns::ZERO);
            // SAFETY: the copies are as long as the kernel needs.
            unsafe {
                syscall!(libc::SYS_pselect6, self.count, read, write, except, &raw mut zero, 0)
            }
        });
        if result > 0 {
            // SAFETY: the caller's memory.
            self.each(|set, word, at| unsafe { at.write(copies[set][word]) });
        }
        result
    }

    /// Returns the descriptors and what is waited for; none if there are too many.
    fn wanted(self) -> Option<([(c_int, u32); MOST], usize)> {
        let (mut wanted, mut used) = ([(0, 0); MOST], 0);
        let mut fits = true;
        self.each(|set, word, at| {
            // SAFETY: the caller's memory.
            let mut bits = unsafe { at.read() };
            while bits != 0 {
                let fd = (word * 64) as c_int + bits.trailing_zeros() as c_int;
                bits &= bits - 1;
                if fd < self.count && used < MOST {
                    wanted[used] = (fd, EVENTS[set]);
                    used += 1;
                } else if fd < self.count {
                    fits = false;
                }
            }
        });
        fits.then_some((wanted, used))
    }

    fn clear(self) {
        // SAFETY: the caller's memory.
        self.each(|_, _, at| unsafe { at.write(0) });
    }

    fn in_kernel(self, deadline: Option<Ns>) -> isize {
        block::in_kernel_as(false, || {
            let mut rest = deadline.map(|at| clock::timespec(at - heddle_sys::clock::now()));
            let rest = rest.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
            let [read, write, except] = self.at;
            // SAFETY: the caller's memory, and a valid time or none.
            unsafe { syscall!(libc::SYS_pselect6, self.count, read, write, except, rest, 0) }
        })
    }

    /// Waits until one is ready or `deadline`.
    fn wait(self, limit: Option<Ns>) -> isize {
        let deadline = limit.and_then(after);
        if self.count < 0 {
            return EINVAL;
        }
        if self.words > WORDS {
            return self.in_kernel(deadline.or(limit));
        }
        let first = self.now();
        if first != 0 {
            return first;
        }
        let waited = match self.wanted() {
            _ if limit == Some(Ns::ZERO) => Waited::TimedOut,
            Some((wanted, used)) => {
                block::when_any(&wanted[..used], Patience::of_poll(deadline), &mut || self.now())
            }
            None => Waited::Refused,
        };
        match waited {
            Waited::Done(result) => result,
            Waited::TimedOut => {
                self.clear();
                0
            }
            Waited::Interrupted => EINTR,
            Waited::Refused => self.in_kernel(deadline),
        }
    }
}

/// Waits, and stores in `limit` what is left of it, as Linux does.
fn wait_timed(sets: Sets, limit: *mut timeval) -> isize {
    // SAFETY: the caller's memory, or null.
    let Some(time) = (unsafe { limit.as_mut() }) else { return sets.wait(None) };
    let (Ok(secs), Ok(us)) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_usec)) else {
        return EINVAL;
    };
    let span = Ns(secs.saturating_mul(1_000_000_000).saturating_add(us.saturating_mul(1000)));
    let begin = heddle_sys::clock::now();
    let result = sets.wait(Some(span));
    let left = span.0.saturating_sub((heddle_sys::clock::now() - begin).0);
    time.tv_sec = (left / 1_000_000_000) as i64;
    time.tv_usec = (left % 1_000_000_000 / 1000) as i64;
    result
}

points! {
    select(
        count: c_int,
        read: *mut fd_set,
        write: *mut fd_set,
        except: *mut fd_set,
        limit: *mut timeval,
    ) -> c_int {
        wait_timed(Sets::new(count, [read, write, except]), limit)
    }
    __select(
        count: c_int,
        read: *mut fd_set,
        write: *mut fd_set,
        except: *mut fd_set,
        limit: *mut timeval,
    ) -> c_int {
        wait_timed(Sets::new(count, [read, write, except]), limit)
    }
    pselect(
        count: c_int,
        read: *mut fd_set,
        write: *mut fd_set,
        except: *mut fd_set,
        limit: *const timespec,
        mask: *const sigset_t,
    ) -> c_int {
        let sets = Sets::new(count, [read, write, except]);
        // SAFETY: the caller's memory, or null.
        match unsafe { limit.as_ref() }.map(clock::span) {
            Some(None) => EINVAL,
            span => super::with_mask(mask, || sets.wait(span.flatten())),
        }
    }
}
