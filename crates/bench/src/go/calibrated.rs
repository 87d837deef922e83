//! Calibration: the length of a SCAN, and the saturation of the stock runtime.

use super::options::{BadgerOptions, Carrier};
use super::server::Addresses;
use crate::kv::{Calibrated, calibrate};
use heddle_core::Ns;
use heddle_load::{LoadOptions, Pace, Shape, Wire};
use heddle_metrics::{Row, Run, human};
use std::io;
use std::sync::atomic::AtomicBool;

/// Warm-up, in which pools, caches and the collector's pace settle.
const WARMUP: Ns = Ns::from_ms(500);
/// Time limit, after which a request is lost.
const TIMEOUT: Ns = Ns::from_secs(2);
/// HTTP connections: more than ever have a request in flight at the measured loads.
const CONNECTIONS: usize = 256;
/// Bytes of a value; the mix has no writes.
const VALUE: usize = 100;

/// Load options for a server and a carrier.
pub(super) fn load(
    options: &BadgerOptions,
    carrier: Carrier,
    addresses: Addresses,
    scan_len: u32,
) -> LoadOptions {
    let (target, wire) = match carrier {
        Carrier::Udp => (addresses.udp, Wire::Udp),
        Carrier::Http => (addresses.http, Wire::Http { connections: CONNECTIONS }),
    };
    let keys = usize::try_from(options.keys).unwrap_or(usize::MAX);
    LoadOptions {
        target,
        wire,
        mix: options.mix.clone(),
        shape: Shape::new(keys, scan_len, VALUE),
        duration: options.duration,
        warmup: WARMUP.min(options.duration),
        timeout: TIMEOUT,
        seed: options.seed,
        pace: if options.alone() { Pace::Busy } else { Pace::Sleep },
    }
}

/// A SCAN's length by the server's own clock, which only datagrams carry; the saturation by the carrier itself.
///
/// # Errors
/// Network errors; a dataset that is read too fast; interruption.
pub(super) fn find(
    options: &BadgerOptions,
    carrier: Carrier,
    addresses: Addresses,
    stop: &AtomicBool,
) -> io::Result<Calibrated> {
    let udp = load(options, Carrier::Udp, addresses, 1);
    let (scan_len, scan_service) = calibrate::scan_length(&udp, options.scan)?;
    let load = load(options, carrier, addresses, scan_len);
    let saturation = calibrate::saturation(&load, 1, stop)?
        .ok_or_else(|| io::Error::from(io::ErrorKind::Interrupted))?;
    Ok(Calibrated { scan_len, scan_service, saturation })
}

/// A progress line.
pub(super) fn in_words(found: &Calibrated) -> String {
    let Calibrated { scan_len, scan_service, saturation } = found;
    let (took, most) = (human(scan_service.0 as f64, "ns"), human(*saturation, "1/s"));
    format!("  a SCAN reads {scan_len} keys in {took}; the reference saturates at {most}")
}

/// Result rows.
pub(super) fn rows(carrier: Carrier, found: &Calibrated) -> Vec<Row> {
    let row = |metric: &str, unit: &str, value: f64| {
        Row::from_runs("calibration", carrier.case(), metric, unit, &[Run::ok(value)])
    };
    vec![
        row("saturation", "1/s", found.saturation),
        row("scan_len", "keys", found.scan_len.into()),
        row("scan_service_ns", "ns", found.scan_service.0 as f64),
    ]
}
