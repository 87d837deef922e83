//! The kernel's fair class, by what was measured of it: the `delay` part of `heddle bench agent`, a thread with 50 us
//! of work every 2 ms beside three hogs on one CPU of a host of two, kernel 6.18 at 250 Hz (docs/agents/bench.md).
//! Its p99 was 3.72 ms (3.48 to 3.79); with the hogs at nice 19, 41 us, of which about 30 are the wake-up itself.

use heddle_core::Ns;
use heddle_sim::Random;
use heddle_sim::service::{Background, Phase, Request, Service, Worker, replay};

/// Returns the median and the p99 of the thread's delays, in ms.
fn delays(policy: &str, nice: i32) -> (f64, f64) {
    let (mut random, mut at) = (Random::new(1, 1), Ns::ZERO);
    let mut request = |_| {
        // Timers are up to 50 us late, which keeps the thread from running in step with the ticks.
        let arrival = at + Ns(1_950_000 + random.below(50_000));
        at = arrival + Ns(50_000);
        Request {
            arrival,
            answered: Some(at),
            phases: vec![Phase::Run(Ns(50_000))],
            ..Request::default()
        }
    };
    let requests = (0..20_000).map(&mut request).collect();
    let (workers, others) = (vec![Worker::sync(0, 1)], vec![Background::hog(nice, 1); 3]);
    let mut service =
        Service { workers, others, requests, closed: true, ..Service::new(1, policy, 1) };
    let outcome = replay(&mut service).unwrap();
    let hogs: Vec<f64> = outcome.others_ran.iter().map(|ran| ran.0 as f64).collect();
    assert!(hogs.iter().all(|ran| (ran / hogs[0] - 1.0).abs() < 0.002), "equal shares: {hogs:?}");
    let mut waits: Vec<f64> = outcome.waits.iter().map(|wait| wait.0 as f64 / 1e6).collect();
    waits.sort_by(f64::total_cmp);
    (waits[waits.len() / 2], waits[waits.len() * 99 / 100])
}

#[test]
fn a_thread_beside_hogs_waits_for_a_tick_and_for_next_to_nothing_once_they_are_nice() {
    let (p50, p99) = delays("eevdf:slice=1.4ms,tick=4ms", 0);
    assert!(p50 < 0.01 && (3.4..=4.0).contains(&p99), "{p50} and {p99} ms");
    let (p50, p99) = delays("eevdf:slice=1.4ms,tick=4ms", 19);
    assert!(p50 < 0.01 && p99 < 0.02, "{p50} and {p99} ms");
    // Without ticks the policy is another one.
    let (_, p99) = delays("eevdf:slice=4ms", 0);
    assert!(p99 < 3.0, "{p99} ms");
}
