//! Calibration: the length of a SCAN and the server's saturation, measured once and used for all systems.

use super::scan_length;
use heddle_core::Ns;
use heddle_load::{
    Closed, LoadOptions, Mix, Op, RealClock, Transport, Udp, closed_loop, service_time,
};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// The results of the calibration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calibrated {
    /// Keys that a SCAN reads.
    pub scan_len: u32,
    /// How long that takes on the unloaded server.
    pub scan_service: Ns,
    /// The most requests of the mix per second that the server can answer.
    pub saturation: f64,
}

/// Saturation is the median of several bursts: other work on the machine spoils one or two of them.
const BURSTS: usize = 5;
const BURST: Ns = Ns::from_ms(150);

/// Returns the time of a GET on the unloaded server, by the server's own clock: the lowest of several medians.
///
/// # Errors
/// Network errors.
pub fn get_time(options: &LoadOptions) -> io::Result<Ns> {
    let mut transport = Udp::connect(options.target, options.shape.clone())?;
    let mut least = Ns::MAX;
    for _ in 0..BURSTS {
        let took = service_time(&mut transport, Op::Get, options.shape.keys)?;
        least = least.min(took.unwrap_or(Ns::ZERO));
    }
    Ok(least)
}

/// Returns the number of keys at which a SCAN lasts `target` or slightly longer, by the server's own clock.
///
/// # Errors
/// Network errors, and a dataset that is too small for `target`.
pub fn scan_length(options: &LoadOptions, target: Ns) -> io::Result<(u32, Ns)> {
    scan_length::long_enough(scan_length_or_all(options, target)?, target)
}

/// As [`scan_length()`], or the number of all keys if they are too few.
///
/// # Errors
/// Network errors.
pub fn scan_length_or_all(options: &LoadOptions, target: Ns) -> io::Result<(u32, Ns)> {
    let most = u32::try_from(options.shape.keys).unwrap_or(u32::MAX);
    scan_length::search(most, target, |keys| scan_time(options, keys))
}

fn scan_time(options: &LoadOptions, keys: u32) -> io::Result<Ns> {
    let mut shape = options.shape.clone();
    shape.scan_len = keys;
    let mut transport = Udp::connect(options.target, shape)?;
    let took = service_time(&mut transport, Op::Scan, options.shape.keys)?;
    Ok(took.unwrap_or(Ns::ZERO))
}

/// Returns the requests of `mix` per second at saturation; `None` if `stop` was set.
///
/// Each operation is measured alone: with random draws, the number of long ones would change a short
/// measurement by several per cent.
///
/// # Errors
/// Those of [`closed_loop`].
pub fn saturation(
    options: &LoadOptions,
    cpus: usize,
    stop: &AtomicBool,
) -> io::Result<Option<f64>> {
    let mut rates = Vec::new();
    for op in options.mix.ops() {
        let mut bursts = Vec::with_capacity(BURSTS);
        for _ in 0..BURSTS {
            let Some(rate) = capacity(options, op, cpus, BURST, stop)? else { return Ok(None) };
            bursts.push(rate);
        }
        rates.push((op, median(bursts)));
    }
    Ok(Some(of_mix(&options.mix, &rates)))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Returns the requests of `mix` per second, from those of each operation alone.
pub(crate) fn of_mix(mix: &Mix, rates: &[(Op, f64)]) -> f64 {
    1.0 / rates.iter().map(|&(op, rate)| mix.share(op) / rate).sum::<f64>()
}

/// Returns the requests of `op` alone per second that `cpus` CPUs can answer; `None` if `stop` was set.
///
/// # Errors
/// Those of [`closed_loop`].
pub fn capacity(
    options: &LoadOptions,
    op: Op,
    cpus: usize,
    duration: Ns,
    stop: &AtomicBool,
) -> io::Result<Option<f64>> {
    let mut transport = options.connect()?;
    let transport: &mut dyn Transport = &mut *transport;
    let mut clock = RealClock::start(options.pace);
    let (keys, depth, warmup) = (options.shape.keys, 8 * cpus.max(1), duration / 5);
    let closed = Closed { op, keys, depth, warmup, duration };
    closed_loop(closed, &mut clock, transport, || !stop.load(Ordering::Relaxed))
}

/// Waits until the server has finished the requests of the previous point: it answers again.
///
/// # Errors
/// Network errors.
pub fn settle(options: &LoadOptions) -> io::Result<()> {
    let mut transport = options.connect()?;
    service_time(&mut *transport, Op::Get, options.shape.keys).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_saturation_of_a_mix_is_the_harmonic_mean() {
        let mix: Mix = "get=95,scan=5".parse().unwrap();
        // 95 GETs of 10 us and 5 SCANs of 2 ms take 10.95 ms.
        let saturation = of_mix(&mix, &[(Op::Get, 100_000.0), (Op::Scan, 500.0)]);
        assert!((saturation - 100.0 / 0.010_95).abs() < 1.0, "{saturation}");
    }

    #[test]
    fn two_slow_bursts_do_not_move_the_saturation() {
        assert_eq!(median(vec![30.0, 99.0, 101.0, 100.0, 33.0]), 99.0);
    }
}
