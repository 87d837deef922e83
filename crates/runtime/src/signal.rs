//! Signals to the process, as values to receive.
//!
//! ```
//! use heddle_rt::signal::{SIGUSR1, SIGUSR2, Signals};
//! use std::time::Duration;
//!
//! let signals = Signals::new([SIGUSR1, SIGUSR2])?;
//! # signal_hook::low_level::raise(SIGUSR1)?; // as `kill -USR1` does
//! assert_eq!(signals.recv()?, SIGUSR1);
//! let none = signals.recv_timeout(Duration::from_millis(1)).unwrap_err();
//! assert_eq!(none.kind(), std::io::ErrorKind::TimedOut);
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! A handler writes to a socket whose other end the poller watches (a *self-pipe*, by the crate `signal-hook`), so
//! several [`Signals`], here and in other users of that crate, hear of the same signal. While the handler runs the
//! task cannot be preempted.
//!
//! Once a signal was waited for, its default action (such as ending the process) does not come back, even when
//! nothing waits for it any more.

use crate::alarm;
use crate::net::unix::UnixStream;
use crate::poller::Interest;
use crate::sync::Mutex;
use crate::time::now;
use crate::{Ns, no_preempt};
use signal_hook::consts::FORBIDDEN;
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;
use std::borrow::Borrow;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

pub use signal_hook::consts::{
    SIGALRM, SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGIO, SIGPIPE, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN,
    SIGTTOU, SIGUSR1, SIGUSR2, SIGWINCH,
};
pub use signal_hook::low_level::signal_name as name;

type Delivery = SignalDelivery<Arc<UnixStream>, SignalOnly>;

/// A receiver of signals. Any number of tasks and threads may receive from it; each signal goes to one of them.
///
/// Signals of one number that come before the first is received are received as one, as the kernel itself merges them.
///
/// ```no_run
/// use heddle_rt::signal::{SIGHUP, SIGINT, SIGTERM, Signals, name};
///
/// for signal in &Signals::new([SIGHUP, SIGINT, SIGTERM])? {
///     println!("received {}", name(signal).unwrap_or("a signal"));
///     if signal != SIGHUP {
///         break;
///     }
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Signals {
    /// The end of the self-pipe that is read from.
    pipe: Arc<UnixStream>,
    /// `None` only while it is dropped.
    delivery: Mutex<Option<Delivery>>,
}

impl Signals {
    /// Begins to receive `signals`, which are numbers such as [`SIGTERM`]. What came before is not received.
    ///
    /// # Errors
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) for a signal that cannot be waited for: SIGKILL, SIGSTOP,
    /// faults of the program (SIGSEGV, SIGFPE, SIGILL), and SIGURG, by which the runtime preempts tasks. Otherwise
    /// the system's error.
    pub fn new(signals: impl IntoIterator<Item = impl Borrow<i32>>) -> io::Result<Signals> {
        let (read, write) = std::os::unix::net::UnixStream::pair()?;
        let pipe = Arc::new(UnixStream::from_std(read)?);
        let none: [i32; 0] = [];
        let delivery = SignalDelivery::with_pipe(pipe.clone(), write, SignalOnly, none)?;
        let this = Signals { pipe, delivery: Mutex::new(Some(delivery)) };
        signals.into_iter().try_for_each(|signal| this.add(*signal.borrow()))?;
        Ok(this)
    }

    /// Receives `signal`, too.
    ///
    /// # Errors
    /// As [`Signals::new`].
    pub fn add(&self, signal: i32) -> io::Result<()> {
        check(signal)?;
        let delivery = self.delivery.lock();
        let handle = delivery.as_ref().expect("taken by drop alone").handle();
        // The lock of all registrations blocks the kernel thread.
        no_preempt(|| {
            handle.add_signal(signal)?;
            heddle_sys::signal::hold_back_while_handling(signal, alarm::SIGNAL)
        })
    }

    /// Waits for a signal and returns its number.
    ///
    /// # Errors
    /// [`TimedOut`](io::ErrorKind::TimedOut) if a [`crate::timeout`] cut it off.
    pub fn recv(&self) -> io::Result<i32> {
        self.recv_until(None)
    }

    /// Waits for a signal for at most `timeout`.
    ///
    /// # Errors
    /// [`TimedOut`](io::ErrorKind::TimedOut) if none came in time.
    pub fn recv_timeout(&self, timeout: Duration) -> io::Result<i32> {
        self.recv_until(Some(now() + timeout.into()))
    }

    fn recv_until(&self, deadline: Option<Ns>) -> io::Result<i32> {
        let late = io::ErrorKind::TimedOut;
        self.pipe.polled().run_until(Interest::Read, deadline, late, |_| self.received())
    }

    fn received(&self) -> io::Result<i32> {
        self.try_recv().ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }

    /// Waits for a signal and returns its number; a future. It is cancel-safe: the signal is received in the poll that
    /// returns it.
    ///
    /// ```
    /// use heddle_rt::signal::{SIGUSR1, Signals};
    ///
    /// let signals = Signals::new([SIGUSR1])?;
    /// # signal_hook::low_level::raise(SIGUSR1)?; // as `kill -USR1` does
    /// assert_eq!(heddle_rt::block_on(signals.recv_async())?, SIGUSR1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// The system's, which is not expected.
    pub async fn recv_async(&self) -> io::Result<i32> {
        self.pipe.polled().run_async(Interest::Read, |_| self.received()).await
    }

    /// Returns a signal that has come, without waiting.
    pub fn try_recv(&self) -> Option<i32> {
        // Empties the pipe before it looks which signals came: one that comes meanwhile makes it readable again.
        self.delivery.lock().as_mut()?.pending().next()
    }

    /// Returns an iterator that waits for each next signal. It ends if a [`crate::timeout`] cuts it off.
    pub fn iter(&self) -> Iter<'_> {
        Iter(self)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        no_preempt(|| drop(self.delivery.get_mut().take()));
    }
}

impl fmt::Debug for Signals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signals").finish_non_exhaustive()
    }
}

/// Signals as they come; see [`Signals::iter`].
#[derive(Debug)]
pub struct Iter<'a>(&'a Signals);

impl Iterator for Iter<'_> {
    type Item = i32;

    fn next(&mut self) -> Option<i32> {
        self.0.recv().ok()
    }
}

impl<'a> IntoIterator for &'a Signals {
    type Item = i32;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// Waits for the next SIGINT, which Ctrl-C in the terminal sends. From the first call on SIGINT does not end the
/// process any more; one that comes while nothing waits is lost, so a loop should use [`Signals`].
///
/// # Errors
/// As [`Signals::new`] and [`Signals::recv`].
pub fn ctrl_c() -> io::Result<()> {
    Signals::new([SIGINT])?.recv().map(drop)
}

/// [`ctrl_c`] as a future. It waits for what comes after its first poll.
///
/// # Errors
/// As [`Signals::new`] and [`Signals::recv_async`].
pub async fn ctrl_c_async() -> io::Result<()> {
    Signals::new([SIGINT])?.recv_async().await.map(drop)
}

/// Refuses signals that cannot be waited for.
fn check(signal: i32) -> io::Result<()> {
    let why = match signal {
        alarm::SIGNAL => "the runtime preempts tasks with it",
        libc::SIGKILL | libc::SIGSTOP => "no program can handle it",
        _ if FORBIDDEN.contains(&signal) => {
            "it reports a fault of the program, which must be handled where it arises"
        }
        1..=64 => return Ok(()),
        _ => "signals have numbers from 1 to 64",
    };
    let text = match name(signal) {
        Some(name) => format!("cannot wait for {name}: {why}"),
        None => format!("cannot wait for signal {signal}: {why}"),
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}
