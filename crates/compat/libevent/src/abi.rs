//! What programs see: the layout of `struct event`, and flags. The header says the same.

use heddle_core::Ns;
use libc::{c_int, c_short, c_void, timeval};
use std::time::Duration;

/// The timeout has expired.
pub const TIMEOUT: c_short = 0x01;
/// The descriptor can be read.
pub const READ: c_short = 0x02;
/// The descriptor can be written.
pub const WRITE: c_short = 0x04;
/// The signal came.
pub const SIGNAL: c_short = 0x08;
/// The event stays added after its callback is called.
pub const PERSIST: c_short = 0x10;
/// Edge-triggered.
pub const ET: c_short = 0x20;
/// Heddle's: for the thread that adds it only (SKQ's EV_AFFINITY, by its number).
pub const PIN: c_short = 0x200;
/// Heddle's: high priority (SKQ's EV_REALTIME).
pub const HIGH: c_short = 0x400;

/// What a callback may be called for.
pub const HAPPENS: c_short = TIMEOUT | READ | WRITE | SIGNAL;

/// `EVLOOP_ONCE`.
pub const LOOP_ONCE: c_int = 0x01;
/// `EVLOOP_NONBLOCK`.
pub const LOOP_NONBLOCK: c_int = 0x02;
/// `EVLOOP_NO_EXIT_ON_EMPTY`.
pub const LOOP_NO_EXIT_ON_EMPTY: c_int = 0x04;

/// `event_callback_fn`.
pub type Callback = unsafe extern "C" fn(c_int, c_short, *mut c_void);

/// Marks a `struct event` as set.
const SET: usize = 0x6865_6464_6c65_6576;

/// `struct event`, which programs embed: 128 bytes, half of which are reserved.
#[repr(C)]
pub struct Event {
    /// Its base, opaque here.
    pub base: *const c_void,
    pub fd: c_int,
    pub what: c_short,
    _pad: c_short,
    pub callback: Option<Callback>,
    pub arg: *mut c_void,
    set: usize,
    _later: [usize; 11],
}

const _: () = assert!(size_of::<Event>() == 128);

/// What a `struct event` asks for.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub fd: c_int,
    pub what: c_short,
    pub callback: Callback,
    /// The program's argument, handed back and never dereferenced.
    pub arg: usize,
}

impl Event {
    pub fn new(base: *const c_void, call: Call) -> Event {
        let Call { fd, what, callback, arg } = call;
        let callback = Some(callback);
        let arg = arg as *mut c_void;
        Event { base, fd, what, _pad: 0, callback, arg, set: SET, _later: [0; 11] }
    }

    pub fn is_set(&self) -> bool {
        self.set == SET
    }

    /// Returns None if it was never set.
    pub fn call(&self) -> Option<Call> {
        let callback = self.callback.filter(|_| self.is_set())?;
        Some(Call { fd: self.fd, what: self.what, callback, arg: self.arg as usize })
    }
}

impl Call {
    pub fn has(&self, what: c_short) -> bool {
        self.what & what != 0
    }

    /// A descriptor of -1 is never ready; programs use it for events that only time out.
    pub fn watches_fd(&self) -> bool {
        self.has(READ | WRITE) && self.fd >= 0
    }

    /// Whether it can happen without a timeout.
    pub fn waits(&self) -> bool {
        self.has(READ | WRITE | SIGNAL)
    }
}

/// Converts a time given by the program. Returns None if it is invalid: negative, or with a second or more of
/// microseconds.
pub fn duration(time: timeval) -> Option<Duration> {
    let micros = u32::try_from(time.tv_usec).ok().filter(|&micros| micros < 1_000_000)?;
    let seconds = u64::try_from(time.tv_sec).ok()?;
    // A thousand years are unlimited, and can be added to any time.
    Some(Duration::new(seconds.min(31_557_600_000), micros * 1_000))
}

/// Converts to seconds and microseconds.
pub fn timeval(time: Ns) -> timeval {
    let (seconds, rest) = (time.0 / 1_000_000_000, time.0 % 1_000_000_000);
    timeval { tv_sec: seconds as libc::time_t, tv_usec: (rest / 1_000) as libc::suseconds_t }
}
