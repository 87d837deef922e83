//! A timer that interrupts one kernel thread with a signal.

use heddle_core::Ns;
use std::io;

/// A timer whose signal goes to the thread that created it. Any thread of the process may set it. That costs 0.4 us,
/// and 1.5 us if it becomes the first of its CPU; being interrupted costs 7 us on a virtual machine.
///
/// In virtual time (`--cfg virtual_time`) there is no timer behind it, and it never fires.
///
/// The number of a deleted timer may be reused by a later one: then a thread is interrupted in vain.
///
/// A thread that receives user interrupts ([`crate::uintr`]) can have one that causes such an interrupt instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadTimer(i32);

/// In the number of a timer of user interrupts, beside its receiver's. The kernel's own numbers are far lower.
const OF_RECEIVER: i32 = 1 << 30;

impl ThreadTimer {
    /// Returns a timer that is not set, and sends `signal` to the calling thread when it fires.
    ///
    /// # Errors
    /// The system's: `EAGAIN` beyond the limit on queued signals (`RLIMIT_SIGPENDING`).
    pub fn new(signal: i32) -> io::Result<ThreadTimer> {
        ThreadTimer::on(libc::CLOCK_MONOTONIC, signal)
    }

    /// Like [`ThreadTimer::new`], on the calling thread's own CPU time, which stands still while it sleeps. The kernel
    /// checks it only in its ticks: every one to ten milliseconds.
    ///
    /// # Errors
    /// As above.
    pub fn of_cpu_time(signal: i32) -> io::Result<ThreadTimer> {
        ThreadTimer::on(libc::CLOCK_THREAD_CPUTIME_ID, signal)
    }

    fn on(clock: libc::clockid_t, signal: i32) -> io::Result<ThreadTimer> {
        if cfg!(virtual_time) {
            return Ok(ThreadTimer(0));
        }
        let mut number = 0;
        // SAFETY: all-zero is a valid event, which is then filled; both pointers are valid. The system call itself:
        // the C library may allocate.
        let result = unsafe {
            let mut event: libc::sigevent = core::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = signal;
            event.sigev_notify_thread_id = crate::thread::id().cast_signed();
            libc::syscall(libc::SYS_timer_create, clock, &raw mut event, &raw mut number)
        };
        if result == 0 { Ok(ThreadTimer(number)) } else { Err(io::Error::last_os_error()) }
    }

    /// Returns the timer of `receiver`, which interrupts it by vector `vector` when it fires.
    pub fn of_receiver(receiver: u32, vector: u8) -> ThreadTimer {
        ThreadTimer(OF_RECEIVER | i32::from(vector) << 16 | receiver.cast_signed())
    }

    /// Returns the receiver and the vector of a timer of user interrupts.
    fn receiver(self) -> Option<(u32, u32)> {
        let number = self.0.cast_unsigned();
        (self.0 >= OF_RECEIVER).then_some((number & 0xffff, number >> 16 & 0x3f))
    }

    /// Returns the timer with this number.
    pub fn from_number(number: i32) -> ThreadTimer {
        ThreadTimer(number)
    }

    /// Returns its number in this process: zero or more.
    pub fn number(self) -> i32 {
        self.0
    }

    /// Makes it fire after `time`, at once if that is zero, instead of at the time set before.
    pub fn set(self, time: Ns) {
        self.set_to(time.max(Ns(1)), Ns::ZERO);
    }

    /// Makes it fire after `time`, and then every `time`.
    pub fn repeat(self, time: Ns) {
        self.set_to(time, time);
    }

    /// Stops it.
    pub fn stop(self) {
        self.set_to(Ns::ZERO, Ns::ZERO);
    }

    fn set_to(self, time: Ns, again: Ns) {
        if cfg!(virtual_time) {
            return;
        }
        if let Some((receiver, vector)) = self.receiver() {
            let repeats = again != Ns::ZERO;
            return crate::uintr::set_timer(receiver, vector, time, repeats);
        }
        let [it_value, it_interval] = [time, again].map(crate::futex::timespec);
        let time = libc::itimerspec { it_interval, it_value };
        let none = core::ptr::null_mut::<libc::itimerspec>();
        // SAFETY: a valid time; for a timer that does not exist, the call only fails.
        unsafe { libc::syscall(libc::SYS_timer_settime, self.0, 0, &raw const time, none) };
    }

    /// Deletes it.
    pub fn delete(self) {
        if cfg!(virtual_time) {
            return;
        }
        if self.receiver().is_some() {
            return self.stop();
        }
        // SAFETY: a system call on a number.
        unsafe { libc::syscall(libc::SYS_timer_delete, self.0) };
    }
}

#[cfg(all(test, not(virtual_time)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn the_number_of_a_receivers_timer_says_all() {
        for (receiver, vector) in [(0, 0), (255, 63), (0xffff, 1)] {
            let timer = ThreadTimer::of_receiver(receiver, vector);
            let again = ThreadTimer::from_number(timer.number());
            assert_eq!(again.receiver(), Some((receiver, u32::from(vector))));
        }
        assert_eq!(ThreadTimer(0).receiver(), None);
        assert_eq!(ThreadTimer(-1).receiver(), None);
    }

    static FIRED_IN: AtomicU32 = AtomicU32::new(0);

    extern "C" fn fired(_: i32, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
        FIRED_IN.store(crate::thread::id(), Ordering::SeqCst);
    }

    #[test]
    fn it_fires_in_the_thread_that_made_it_whichever_thread_sets_it() {
        // SAFETY: the handler makes a system call and stores a number.
        unsafe { crate::signal::install(libc::SIGWINCH, fired, 0).unwrap() };
        let timer = ThreadTimer::new(libc::SIGWINCH).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                timer.set(Ns::from_secs(3600));
                timer.stop();
                ThreadTimer::from_number(timer.number()).set(Ns::ZERO);
            });
        });
        while FIRED_IN.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        assert_eq!(FIRED_IN.load(Ordering::SeqCst), crate::thread::id());
        timer.delete();
    }

    static FIRED: AtomicU32 = AtomicU32::new(0);

    extern "C" fn counted(_: i32, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
        FIRED.fetch_add(1, Ordering::SeqCst);
    }

    #[test]
    fn on_cpu_time_it_fires_again_and_again_while_the_thread_computes() {
        // SAFETY: the handler counts.
        unsafe { crate::signal::install(libc::SIGIO, counted, 0).unwrap() };
        let timer = ThreadTimer::of_cpu_time(libc::SIGIO).unwrap();
        timer.repeat(Ns::from_ms(1));
        while FIRED.load(Ordering::SeqCst) < 3 {
            core::hint::spin_loop();
        }
        timer.delete();
    }
}
