//! How much a server can do: so many requests always in flight.
//!
//! Latencies of a closed loop say nothing (it waits for the server), so that it counts only answers. It
//! finds saturation without overload: no queue grows, no datagram is dropped.

use super::arrivals::Arrival;
use super::engine::{Clock, Transport};
use super::mix::Op;
use heddle_core::{Ns, Rng};
use std::io;

/// How a closed loop runs.
#[derive(Clone, Copy, Debug)]
pub struct Closed {
    /// What is asked for, always.
    pub op: Op,
    /// How many keys the dataset has.
    pub keys: usize,
    /// Requests in flight.
    pub depth: usize,
    /// Not counted: the queues fill.
    pub warmup: Ns,
    /// Counted.
    pub duration: Ns,
}

/// No answer for so long means that requests were lost or the server hangs.
const SILENCE: Ns = Ns::from_secs(2);

/// Answers a second. `go_on` is asked in every round of the loop; `None` where it said no.
///
/// A run in which nothing could be counted, because the machine held up the generator or the server for all of `duration`, goes on until
/// something is counted or the server has been silent for two seconds.
///
/// # Errors
/// Those of the transport, error answers, and a server that falls silent.
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
                // Fewer connections than requests that should be in flight.
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
                // Counted from the first answer, so that a long request's phase does not matter.
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

/// Leaves the server without our requests, which would slow whatever is measured next.
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
