//! Closed loop: measures a server's capacity with a fixed number of requests in flight.
//!
//! Latencies of a closed loop mean nothing (it waits for the server), so it counts only answers. It finds
//! saturation without overload: no queue grows, no datagram is dropped.

use super::arrivals::Arrival;
use super::engine::Clock;
use super::mix::Op;
use super::transport::Transport;
use heddle_core::{Ns, Rng};
use std::io;

/// Parameters of a closed loop.
#[derive(Clone, Copy, Debug)]
pub struct Closed {
    /// The only operation.
    pub op: Op,
    /// Number of keys in the dataset.
    pub keys: usize,
    /// Requests in flight.
    pub depth: usize,
    /// Time before counting starts, in which queues fill.
    pub warmup: Ns,
    /// Time that counts.
    pub duration: Ns,
}

/// Without an answer for this long, requests were lost or the server hangs.
const SILENCE: Ns = Ns::from_secs(2);

/// Returns answers per second. `go_on` is called in every round of the loop; `None` if it returned false.
///
/// If the machine stalls the generator or the server for all of `duration` and nothing was counted, the run
/// goes on until something is, or the server has been silent for two seconds.
///
/// # Errors
/// Transport errors, error answers, and a server that stops answering.
pub fn closed_loop(
    closed: Closed,
    clock: &mut impl Clock,
    transport: &mut dyn Transport,
    mut go_on: impl FnMut() -> bool,
) -> io::Result<Option<f64>> {
    let rng = Rng::new(2);
    let (mut next_id, mut inflight, mut counted) = (0, 0, 0u64);
    let begin = clock.now();
    let (from, until) = (begin + closed.warmup, begin + closed.warmup + closed.duration);
    let (mut first, mut last) = (None, begin);
    loop {
        let now = clock.now();
        let window = first.map_or(Ns::ZERO, |first| last - first);
        if now >= until && window > Ns::ZERO {
            drain(inflight, clock, transport)?;
            return Ok(Some(counted as f64 / window.as_secs_f64()));
        }
        if !go_on() {
            return Ok(None);
        }
        while inflight < closed.depth {
            let key = rng.below(closed.keys) as u64;
            match transport.send(next_id, &Arrival { at: now, op: closed.op, key }) {
                // There are fewer connections than requests to keep in flight.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                sent => sent?,
            }
            next_id += 1;
            inflight += 1;
        }
        match transport.receive()? {
            Some(answer) if !answer.ok => return Err(refused(closed.op)),
            Some(_) => {
                inflight -= 1;
                last = clock.now();
                // Counts from the first answer, so that the phase of long requests does not matter.
                match first {
                    None if last >= from => first = Some(last),
                    None => {}
                    Some(_) => counted += 1,
                }
            }
            None if now - last > SILENCE => return Err(silent(closed.op)),
            None => clock.pause(until.max(last + SILENCE)),
        }
    }
}

/// Drains our requests from the server: they would slow the next measurement.
fn drain(
    mut inflight: usize,
    clock: &mut impl Clock,
    transport: &mut dyn Transport,
) -> io::Result<()> {
    let limit = clock.now() + SILENCE;
    while inflight > 0 && clock.now() < limit {
        match transport.receive()? {
            Some(_) => inflight -= 1,
            None => clock.pause(limit),
        }
    }
    Ok(())
}

fn refused(op: Op) -> io::Error {
    io::Error::other(format!("the server answers {op} with an error"))
}

fn silent(op: Op) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("the server stopped answering {op}"))
}
