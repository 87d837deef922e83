//! GETs beside SCANs: the key-value server by lanes and by the kernel.

use super::options::NetOptions;
use super::targets::find;
use crate::kv::{self, KvOptions, Net, ScanTime, StoreKind, System};
use crate::suite::Target;
use heddle_core::Ns;
use heddle_metrics::{Progress, Row};
use heddle_netns::Pair;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The system, on each network.
const SYSTEM: &str = "heddle two-queue:quantum=100us";
/// A p99.9 takes many GETs: more time than the other parts have.
const LONGER: u64 = 5;
/// The share of saturation.
const LOAD: f64 = 0.5;

fn systems() -> Vec<System> {
    System::on(&[SYSTEM.parse().expect("a system")], &Net::ALL)
}

/// Steps of [`run`] that are shown.
pub(super) fn steps(rounds: u32) -> u64 {
    1 + u64::from(rounds) * systems().len() as u64
}

/// Measures.
///
/// # Errors
/// A server failed.
pub(super) fn run(
    options: &NetOptions,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<Vec<Row>> {
    let kv = KvOptions {
        program: options.program.clone(),
        systems: systems(),
        store: StoreKind::Memory,
        mix: "get=95,scan=5".parse().map_err(io::Error::other)?,
        scan: ScanTime::Gets(1_000),
        loads: vec![LOAD],
        rounds: options.rounds,
        duration: Ns(options.duration.0 * LONGER / 2),
        keys: 100_000,
        value_len: 100,
        seed: 1,
        cpus: options.cpus.clone(),
        pair: Some(Arc::new(Pair::new(1)?)),
    };
    let verdict = kv::compare(&kv, stop, progress).map_err(io::Error::other)?;
    Ok(verdict.results.rows)
}

/// Returns the target if it is in `rows`.
pub(super) fn target(rows: &[Row]) -> Option<Target> {
    let xdp = systems().pop().expect("the last is on lanes").to_string();
    let row = find(rows, &xdp, "get", "p999_ratio")?;
    Some(Target::at_most("GET p99.9 beside SCANs at 50 % (xdp over kernel)", row, 1.0))
}
