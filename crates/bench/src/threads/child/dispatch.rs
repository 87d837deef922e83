//! Time until a task of a central policy runs: if the worker takes it from the queue, and if a dispatcher on
//! another CPU assigns it. One worker, through the public API; wall time, since a dispatcher spins.

use std::sync::Arc;
use std::time::Duration;

use heddle::sync::Semaphore;
use heddle::time::sleep;
use heddle::{ConfigError, Runtime, scope, yield_now};
use heddle_core::Ns;
use heddle_sys::clock::now;
use heddle_sys::thread::affinity;

/// Nanoseconds from one task to the next, and from a due time to the task that waited for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HandOvers {
    /// With four tasks that yield: something is always queued.
    pub yielding: f64,
    /// With two tasks that wake each other in turn: the worker waits, but not long enough to park.
    pub waking: f64,
    /// Lateness of a task that slept for 20 us: a dispatcher still spins.
    pub late_20us: f64,
    /// The same for 5 ms: all sleep.
    pub late_5ms: f64,
}

/// Untimed warm-up hand-overs; also the least number that is timed.
const WARM_UP: u64 = 1000;

/// Measures for about `budget`.
///
/// # Errors
/// A sentence that starts with "not available": there is no CPU for a dispatcher.
pub fn measure(by_dispatcher: bool, budget: Ns) -> Result<HandOvers, String> {
    let cpus = affinity().map_err(|error| format!("not available: {error}"))?;
    let runtime =
        runtime(&cpus, by_dispatcher).map_err(|error| format!("not available: {error}"))?;
    let share = Ns(budget.0 / 4);
    Ok(HandOvers {
        yielding: paced(share, |n| runtime.run(|| yields(n))),
        waking: paced(share, |n| runtime.run(|| wakes(n))),
        late_20us: runtime.run(|| late(Duration::from_micros(20), share)),
        late_5ms: runtime.run(|| late(Duration::from_millis(5), share)),
    })
}

/// One worker on the last of `cpus`, the dispatcher on the first.
fn runtime(cpus: &[u32], by_dispatcher: bool) -> Result<Runtime, ConfigError> {
    let last = cpus[cpus.len() - 1];
    let builder = Runtime::builder().policy("fifo");
    match by_dispatcher {
        true => builder.cpus([cpus[0], last]).dispatcher(cpus[0]).build(),
        false => builder.cpus([last]).build(),
    }
}

/// Nanoseconds per hand-over, over as many as fit into `budget`.
fn paced(budget: Ns, run: impl Fn(u64)) -> f64 {
    let ns_per_op = |n: u64| {
        let begin = now();
        run(n);
        (now() - begin).0 as f64 / n as f64
    };
    let estimate = ns_per_op(WARM_UP);
    ns_per_op(((budget.0 as f64 / (estimate + 0.1)) as u64).max(WARM_UP))
}

fn yields(n: u64) {
    scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..n / 4).for_each(|_| yield_now()));
        }
    });
}

fn wakes(n: u64) {
    let turns = [(); 2].map(|()| Arc::new(Semaphore::new(0)));
    let (ping, pong) = (&turns[0], &turns[1]);
    let rounds = n / 2;
    scope(|scope| {
        scope.spawn(|| (0..rounds).for_each(|_| pass(ping, pong)));
        scope.spawn(|| {
            ping.release(1);
            (1..rounds).for_each(|_| pass(pong, ping));
            pong.acquire().forget();
        });
    });
}

fn pass(mine: &Semaphore, theirs: &Semaphore) {
    mine.acquire().forget();
    theirs.release(1);
}

/// The median lateness of a task that repeatedly sleeps for `time`.
fn late(time: Duration, budget: Ns) -> f64 {
    let begin = now();
    let mut samples = vec![];
    while samples.len() < 3 || now() - begin < budget {
        let due = now() + Ns(time.as_nanos() as u64);
        sleep(time);
        samples.push((now() - due).0);
    }
    samples.sort_unstable();
    samples[samples.len() / 2] as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hand_overs_of_both_kinds_take_time() {
        for by_dispatcher in [false, true] {
            match measure(by_dispatcher, Ns::from_ms(4)) {
                Ok(costs) => {
                    assert!(costs.yielding > 0.0 && costs.waking > 0.0, "{costs:?}");
                    assert!(costs.late_20us > 0.0 && costs.late_5ms > 0.0, "{costs:?}");
                }
                Err(why) => assert!(why.starts_with("not available") && by_dispatcher, "{why}"),
            }
        }
    }
}
