//! Signals.

use crate::error::system;
use crate::ids::EventId;
use crate::slot::flag;
use crate::{EventError, EventOptions, EventQueue};
use heddle_sys::signalfd;

/// Blocks `signals` (numbers as in signal(7)) in the calling thread and all threads that it starts from now
/// on. A program that registers signals should call this first in `main`: a signal goes to any thread that
/// has not blocked it, and usually ends the process there.
///
/// Programs that the process starts inherit the blocked signals, and most expect none to be blocked.
///
/// # Errors
/// [`EventError::Signal`] for a number that is no signal or cannot be blocked; nothing is blocked then.
pub fn block_signals(signals: &[i32]) -> Result<(), EventError> {
    if let Some(&wrong) = signals.iter().find(|&&signal| !signalfd::can_be_read(signal)) {
        return Err(EventError::Signal(wrong));
    }
    signalfd::block(signals).map_err(system("block signals"))
}

impl EventQueue {
    /// Registers an event for `signal` (a number as in signal(7)) sent to the process.
    /// [`Event::data`](crate::Event::data) is how often it came since the last report; the system merges a
    /// standard signal with one that is already pending.
    ///
    /// The signal must be blocked in all threads. This call blocks it in the calling thread, and so in those
    /// that the thread starts later; threads that are already running must block it themselves: see
    /// [`block_signals`]. Ignoring the signal (`SIG_IGN`) does no harm: Linux reports blocked signals
    /// whatever their disposition. When the registration ends, the signal stays blocked.
    ///
    /// A signal sent to one thread (`pthread_kill`, `raise`) is reported if that thread is a worker of this
    /// queue, or of another one that registers the signal. If several queues of a process register a signal,
    /// each of them reports it.
    ///
    /// # Errors
    /// [`EventError::Signal`]; [`EventError::Full`]; [`EventError::System`] if no descriptors are left for
    /// the first signal of a queue.
    pub fn register_signal(
        &self,
        signal: i32,
        token: u64,
        options: EventOptions,
    ) -> Result<EventId, EventError> {
        self.0.check()?;
        if !signalfd::can_be_read(signal) {
            return Err(EventError::Signal(signal));
        }
        self.0.open_signals()?;
        let id = self.0.begin_source(flag::SIGNAL, -1, token, options)?;
        let want = |()| self.0.sources.signals.lock().unwrap().want(signal, id);
        match block_signals(&[signal]).and_then(want) {
            Ok(()) => Ok(id),
            Err(error) => {
                self.0.end_unwatched(id);
                Err(error)
            }
        }
    }
}
