//! What a preemption costs: the same work in one worker without preemption, with requests that are held off, and
//! with switches. Through the public API.

use std::hint::black_box;

use heddle::{Mechanism, Runtime, Stats, no_preempt, scope};
use heddle_core::Ns;
use heddle_sys::clock::thread_cpu_time;

/// What the parts of a preemption cost, in nanoseconds. Differences of noisy times: may be negative.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// The ticker's time for sending one.
    pub send: f64,
    /// The worker's CPU time for a signal that does not switch.
    pub deliver: f64,
    /// What switching to another task adds to that.
    pub switch: f64,
}

/// Far above what the machine needs for a preemption, and short enough to have thousands.
const POLICY: &str = "round-robin:quantum=200us";
/// Each kind of run this often, in turn: a slow moment meets all kinds.
const TURNS: u64 = 3;
/// Steps of the work of which the first estimate is made.
const PROBE: u64 = 1 << 20;

/// CPU time of the worker, not of the clock on the wall: other processes' turns on the CPU are no part of the cost,
/// while handlers and the kernel's share of a signal are charged to the thread that is interrupted.
#[derive(Default)]
struct Timed {
    time: Ns,
    sent: u64,
    send_time: Ns,
    preemptions: u64,
}

#[derive(Clone, Copy)]
enum Kind {
    /// Two tasks, one after the other.
    Quiet,
    /// One task does all the work in a section that holds preemption off; another waits, so that signals are sent.
    Held,
    /// Two tasks take turns.
    Alternate,
}

/// Measures for about `budget` of CPU time.
pub fn measure(budget: Ns) -> Costs {
    let probe = run(Kind::Quiet, PROBE);
    let share = budget.0 as f64 / (3 * TURNS) as f64;
    let steps = (PROBE as f64 * share / probe.time.0.max(1) as f64) as u64;
    let [mut quiet, mut held, mut alternate] = [(); 3].map(|()| Timed::default());
    for _ in 0..TURNS {
        quiet.add(run(Kind::Quiet, steps));
        held.add(run(Kind::Held, steps));
        alternate.add(run(Kind::Alternate, steps));
    }
    costs(&quiet, &held, &alternate)
}

fn costs(quiet: &Timed, held: &Timed, alternate: &Timed) -> Costs {
    let more = |run: &Timed, times: u64| (run.time.0 as f64 - quiet.time.0 as f64) / times as f64;
    let deliver = more(held, held.sent);
    Costs {
        send: alternate.send_time.0 as f64 / alternate.sent as f64,
        deliver,
        switch: more(alternate, alternate.preemptions) - deliver,
    }
}

impl Timed {
    fn add(&mut self, run: Timed) {
        self.time += run.time;
        self.sent += run.sent;
        self.send_time += run.send_time;
        self.preemptions += run.preemptions;
    }

    fn new(time: Ns, stats: &Stats) -> Timed {
        Timed {
            time,
            sent: stats.preemptions_sent,
            send_time: stats.preemption_send_time,
            preemptions: stats.preemptions,
        }
    }
}

fn run(kind: Kind, steps: u64) -> Timed {
    let mechanism = match kind {
        Kind::Quiet => Mechanism::None,
        Kind::Held | Kind::Alternate => Mechanism::Signal,
    };
    let builder = Runtime::builder().policy(POLICY).mechanism(mechanism).workers(1);
    let runtime = builder.build().expect("the machine can run Heddle");
    let time = runtime.run(|| {
        // One worker: its clock is read at both ends.
        let begin = thread_cpu_time();
        scope(|scope| match kind {
            Kind::Held => {
                scope.spawn(|| no_preempt(|| work(steps)));
                scope.spawn(|| ());
            }
            Kind::Quiet | Kind::Alternate => {
                scope.spawn(|| work(steps / 2));
                scope.spawn(|| work(steps / 2));
            }
        });
        thread_cpu_time() - begin
    });
    Timed::new(time, &runtime.stats())
}

fn work(steps: u64) {
    let mut x = 1_u64;
    for _ in 0..steps {
        x = black_box(x.wrapping_mul(6_364_136_223_846_793_005).rotate_left(17));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_is_what_it_adds() {
        let run = |ms, sent, preemptions| Timed {
            time: Ns::from_ms(ms),
            sent,
            send_time: Ns::from_us(12) * sent,
            preemptions,
        };
        let costs = costs(&run(100, 0, 0), &run(101, 100, 1), &run(103, 200, 200));
        assert_eq!(costs, Costs { send: 12_000.0, deliver: 10_000.0, switch: 5_000.0 });
    }

    #[test]
    fn a_real_measurement_has_signals_and_switches() {
        let costs = measure(Ns::from_ms(90));
        assert!(costs.send > 0.0 && costs.deliver.is_finite() && costs.switch.is_finite());
    }
}
