//! What a user can choose.

use super::part::Part;
use crate::kv::Cpus;
use crate::suite::Part as _;
use heddle_core::Ns;
use std::path::PathBuf;

/// Options of `heddle bench net`.
#[derive(Clone, Debug)]
pub struct NetOptions {
    /// The parts to run.
    pub parts: Vec<Part>,
    /// Rounds.
    pub rounds: u32,
    /// Length of each measurement.
    pub duration: Ns,
    /// Numbers of connections in `tcp` and `stack`.
    pub connections: Vec<u16>,
    /// Idle connections in `idle`.
    pub idle: u16,
    /// CPUs of the server and of the client.
    pub cpus: Cpus,
    /// This program, which can run as server and as client.
    pub program: PathBuf,
    /// Whether all parts are short, to try out and not to quote.
    pub quick: bool,
}

impl NetOptions {
    /// All parts, five rounds of two seconds; `quick`: once and shortly.
    #[must_use]
    pub fn new(cpus: Cpus, quick: bool) -> NetOptions {
        NetOptions {
            parts: Part::ALL.to_vec(),
            rounds: if quick { 1 } else { 5 },
            duration: Ns::from_ms(if quick { 200 } else { 2_000 }),
            connections: if quick { vec![1, 50] } else { vec![1, 100, 1_000] },
            idle: if quick { 500 } else { 10_000 },
            cpus,
            // This running program, even if its file is replaced. `ip netns exec` must not take it for itself.
            program: format!("/proc/{}/exe", std::process::id()).into(),
            quick,
        }
    }
}
