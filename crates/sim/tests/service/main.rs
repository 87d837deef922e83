//! Services on a host: rules that hold for any, and closed forms.

mod kernel;
mod rules;
mod theory;

use heddle_core::Ns;
use heddle_sim::Random;
use heddle_sim::service::{Phase, Request};

/// `count` requests by a Poisson process at `per_ms` requests per millisecond, each on its own connection; `phases`
/// draws what one needs.
fn poisson(
    seed: u64,
    count: u32,
    per_ms: f64,
    phases: impl Fn(&mut Random) -> Vec<Phase>,
) -> Vec<Request> {
    let (mut gaps, mut sizes) = (Random::new(seed, 101), Random::new(seed, 102));
    let mut at = 0.0;
    let request = |connection| {
        at += gaps.exponential() * 1e6 / per_ms;
        let phases = phases(&mut sizes);
        Request { arrival: Ns(at as u64), connection, phases, ..Request::default() }
    };
    (0..count).map(request).collect()
}

/// An exponential time with a mean of a millisecond.
fn exponential(random: &mut Random) -> Ns {
    Ns((random.exponential() * 1e6) as u64)
}
