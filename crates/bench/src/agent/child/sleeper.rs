//! A thread that sleeps until the time is written to its standard input, and records how long it took to run.

use heddle_core::Ns;
use heddle_metrics::Histogram;
use heddle_sys::clock;
use serde::{Deserialize, Serialize};
use std::io::{self, Read};

/// Parameters of the sleeper.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SleeperSpec {
    /// Its CPUs; empty: its parent's.
    pub cpus: Vec<u32>,
    /// How long it runs each time, in nanoseconds.
    #[serde(default)]
    pub run_ns: u64,
}

/// Measures from the written time until the thread has read it. Ends with the input.
///
/// # Errors
/// The CPUs do not exist; pipe errors.
pub fn sleeper(spec: &SleeperSpec) -> io::Result<Histogram> {
    if !spec.cpus.is_empty() {
        heddle_sys::thread::pin(&spec.cpus)?;
    }
    let mut delays = Histogram::new();
    let mut input = io::stdin().lock();
    let mut stamp = [0; 8];
    loop {
        match input.read_exact(&mut stamp) {
            Ok(()) => {
                let now = clock::now();
                // Zero is a warm-up.
                let written = u64::from_ne_bytes(stamp);
                if written != 0 {
                    delays.record(Ns(now.0.saturating_sub(written)));
                }
                while clock::now() < now + Ns(spec.run_ns) {
                    std::hint::spin_loop();
                }
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(delays),
            Err(error) => return Err(error),
        }
    }
}
