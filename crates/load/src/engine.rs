//! The loop that sends due requests and receives answers.
//!
//! One thread does both. On the one CPU that the load process gets, a second thread would only compete with
//! the first, and its wakeup would be part of every measured latency. The loop never blocks: it sends
//! whatever is due, at most [`BATCH`] requests, then drains the answers, then lets its [`Clock`] pause. The
//! run is bounded: arrivals end with it, and every request is answered or given up within the time limit
//! after that.
//!
//! Latency counts from the *intended* send time. A stall, of the server or of this loop, therefore shows
//! in the latency of every request that fell due meanwhile (no coordinated omission).

use super::arrivals::Arrival;
use super::inflight::{InFlight, Waiting};
use super::tally::Tally;
use super::transport::Transport;
use heddle_core::Ns;
use std::io;
use std::iter::Peekable;

/// Most sends between two checks for answers, so that catching up does not starve the receive side.
const BATCH: usize = 32;

/// The loop's time source, which tests control.
pub trait Clock {
    /// The time since the start of the run.
    fn now(&mut self) -> Ns;
    /// Lets time pass, at most until `until`; can return at once.
    fn pause(&mut self, until: Ns);
}

/// Duration and time limit of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Requests that fall due before this do not count.
    pub warmup: Ns,
    /// The end of the arrivals.
    pub end: Ns,
    /// A request without an answer this long after it was due is lost.
    pub timeout: Ns,
}

/// Runs `arrivals` against `transport` and counts into `tally`. `tick` is called in every round of the loop
/// and ends the run early by returning `false`.
///
/// # Errors
/// Transport errors. What was measured until then stays in `tally`.
pub fn run<C: Clock>(
    plan: Plan,
    arrivals: impl Iterator<Item = Arrival>,
    clock: &mut C,
    transport: &mut dyn Transport,
    tally: &mut Tally,
    mut tick: impl FnMut(Ns, &Tally) -> bool,
) -> io::Result<()> {
    let mut due = arrivals.take_while(|a| a.at < plan.end).peekable();
    let mut inflight = InFlight::default();
    let mut full_at = Ns::ZERO;
    let last = plan.end + plan.timeout;
    loop {
        send_due(&mut due, plan, clock, (transport, &mut full_at), &mut inflight, tally)?;
        take_answers(plan, clock, transport, &mut inflight, tally)?;
        let now = clock.now();
        give_up(&mut inflight, now - plan.timeout, tally);
        let next = due.peek().map(|a| a.at);
        if (next.is_none() && inflight.is_empty()) || now >= last {
            break;
        }
        if !tick(now, tally) {
            tally.interrupted_at = Some(now);
            return Ok(());
        }
        clock.pause(next.unwrap_or(last).min(last));
    }
    // What a sender that could not keep up has left: every request still waiting has exceeded the time limit.
    for request in due.filter(|a| a.at >= plan.warmup) {
        tally.unsent(request.op, full_at - request.at);
    }
    give_up(&mut inflight, Ns::MAX, tally);
    Ok(())
}

fn send_due<C: Clock>(
    due: &mut Peekable<impl Iterator<Item = Arrival>>,
    plan: Plan,
    clock: &mut C,
    (transport, full_at): (&mut dyn Transport, &mut Ns),
    inflight: &mut InFlight,
    tally: &mut Tally,
) -> io::Result<()> {
    for _ in 0..BATCH {
        let now = clock.now();
        let Some(request) = due.peek().filter(|a| a.at <= now) else { return Ok(()) };
        match transport.send(inflight.next_id(), request) {
            // No room: it stays due, and grows later.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                *full_at = now;
                return Ok(());
            }
            sent => sent?,
        }
        let counted = request.at >= plan.warmup;
        inflight.push(Waiting { op: request.op, intended: request.at, counted });
        if counted {
            tally.sent(request.op, now - request.at, *full_at - request.at);
        }
        due.next();
    }
    Ok(())
}

fn take_answers<C: Clock>(
    plan: Plan,
    clock: &mut C,
    transport: &mut dyn Transport,
    inflight: &mut InFlight,
    tally: &mut Tally,
) -> io::Result<()> {
    // Bounded: each answer belongs to a sent request, and sending resumes only after this loop.
    while let Some(answer) = transport.receive()? {
        let now = clock.now();
        let Some(request) = inflight.take(answer.id) else {
            tally.stray += 1;
            continue;
        };
        let at = answer.at.unwrap_or(now);
        if at >= plan.warmup && at < plan.end {
            tally.completed(request.op);
        }
        if request.counted {
            tally.answered(request.op, at - request.intended, answer);
        }
    }
    Ok(())
}

fn give_up(inflight: &mut InFlight, limit: Ns, tally: &mut Tally) {
    while let Some(request) = inflight.expire(limit) {
        if request.counted {
            tally.lost(request.op);
        }
    }
}
