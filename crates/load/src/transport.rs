//! What the engine asks of a protocol: to send requests and to receive answers.

use super::arrivals::Arrival;
use heddle_core::Ns;
use std::io;

/// An answer from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The id of the request.
    pub id: u64,
    /// Whether the server did what was requested.
    pub ok: bool,
    /// How long the server worked on it, if the protocol carries that.
    pub service: Option<Ns>,
    /// When it was complete, by the run's clock, if the server shares that clock and reports it; otherwise
    /// the time of reading counts.
    pub at: Option<Ns>,
}

/// The connection to the server. Neither method waits.
pub trait Transport {
    /// Sends one request.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if there is no room now: the loop retries. Others end the run.
    fn send(&mut self, id: u64, request: &Arrival) -> io::Result<()>;

    /// The next answer, if one has arrived.
    ///
    /// # Errors
    /// Those that end the run; `Ok(None)` if nothing has arrived.
    fn receive(&mut self) -> io::Result<Option<Answer>>;
}
