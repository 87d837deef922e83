//! What a user can choose.

use super::part::Part;
use super::system::System;
use super::workload::Workload;
use super::{Op, work};
use crate::kv::Cpus;
use crate::suite::Part as _;
use heddle_core::Ns;
use std::path::PathBuf;
use std::sync::OnceLock;

/// Options of `heddle bench async`.
#[derive(Clone, Debug)]
pub struct AsyncOptions {
    /// The parts to run, in the order of [`crate::suite::Part::ALL`].
    pub parts: Vec<Part>,
    /// The systems to compare, each in the parts that it [is in](System::is_in).
    pub systems: Vec<System>,
    /// Processes per figure of single operations and of memory.
    pub micro_rounds: u32,
    /// Rounds of each load.
    pub rounds: u32,
    /// CPU time of each operation.
    pub budget: Ns,
    /// Duration of each load.
    pub duration: Ns,
    /// Loads, as shares of the capacity.
    pub loads: Vec<f64>,
    /// The seed of the arrivals.
    pub seed: u64,
    /// Idle tasks, few and many.
    pub idle: [u64; 2],
    /// Attempts per run before a disturbed one is accepted as such.
    pub tries: u32,
    /// CPUs of the runtime and of the generator.
    pub cpus: Cpus,
    /// This program, which measures with [`super::run_child`].
    pub program: PathBuf,
    /// Whether all parts are short, to try out and not to quote.
    pub quick: bool,
    pub(super) speed: OnceLock<f64>,
}

/// The load at which targets are stated.
pub(super) const HALF: f64 = 0.5;

impl AsyncOptions {
    /// All parts at their usual length; with `quick`, one short round of each.
    #[must_use]
    pub fn new(systems: &[System], cpus: Cpus, quick: bool) -> AsyncOptions {
        AsyncOptions {
            parts: Part::ALL.to_vec(),
            systems: systems.to_vec(),
            micro_rounds: if quick { 1 } else { 5 },
            rounds: if quick { 1 } else { 3 },
            budget: Ns::from_ms(if quick { 10 } else { 200 }),
            duration: Ns::from_ms(if quick { 200 } else { 3_000 }),
            loads: if quick { vec![HALF] } else { vec![0.3, HALF, 0.7] },
            seed: 1,
            idle: if quick { [2_000, 10_000] } else { [100_000, 1_000_000] },
            tries: if quick { 1 } else { 3 },
            cpus,
            // This running program, even if its file is replaced.
            program: "/proc/self/exe".into(),
            quick,
            speed: OnceLock::new(),
        }
    }

    /// The CPU of the runtime: one, whatever the machine has.
    pub(super) fn server(&self) -> u32 {
        self.cpus.server[0]
    }

    /// The systems of `part`, another first in each round.
    pub(super) fn turns(&self, part: Part, round: u32) -> Vec<System> {
        let mut here: Vec<System> =
            self.systems.iter().copied().filter(|system| system.is_in(part)).collect();
        if !here.is_empty() {
            let first = round as usize % here.len();
            here.rotate_left(first);
        }
        here
    }

    /// The loads of `part`. Blocking and locks are compared at one.
    pub(super) fn loads(&self, part: Part) -> Vec<Option<f64>> {
        let some = |loads: &[f64]| loads.iter().copied().map(Some).collect();
        match part {
            Part::Micro | Part::Memory => Vec::new(),
            Part::OneMs | Part::TenMs => some(&self.loads),
            Part::Blocking | Part::Mutex if self.loads.contains(&HALF) => some(&[HALF]),
            Part::Blocking | Part::Mutex => some(&self.loads[..1]),
            Part::Saturation => vec![None],
        }
    }

    /// Steps of work in a microsecond on the runtime's CPU, measured once.
    pub(super) fn speed(&self) -> f64 {
        *self.speed.get_or_init(|| work::calibrate(self.server()))
    }

    pub(super) fn steps_of(&self, part: Part) -> u64 {
        let systems = self.turns(part, 0).len() as u64;
        match Workload::of(part) {
            Some(_) => systems * self.loads(part).len() as u64 * u64::from(self.rounds),
            None if part == Part::Micro => {
                systems * Op::ALL.len() as u64 * u64::from(self.micro_rounds)
            }
            None => systems * self.idle.len() as u64 * u64::from(self.micro_rounds),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(loads: &[f64]) -> AsyncOptions {
        let cpus = Cpus { server: vec![0, 1], load: 2, shared: false };
        AsyncOptions { loads: loads.to_vec(), ..AsyncOptions::new(&System::ALL, cpus, false) }
    }

    #[test]
    fn systems_take_turns() {
        let options = options(&[0.5]);
        let first: Vec<System> = (0..4).map(|at| options.turns(Part::OneMs, at)[0]).collect();
        assert_eq!(first, [System::TwoQueue, System::Fifo, System::Tokio, System::TokioEight]);
        let none = AsyncOptions { systems: vec![System::Smol], ..options };
        assert!(none.turns(Part::OneMs, 3).is_empty());
    }

    #[test]
    fn blocking_and_locks_are_measured_at_half_load_if_that_is_among_the_loads() {
        assert_eq!(options(&[0.3, 0.5]).loads(Part::Mutex), [Some(0.5)]);
        assert_eq!(options(&[0.3, 0.7]).loads(Part::Blocking), [Some(0.3)]);
        assert_eq!(options(&[0.3, 0.7]).loads(Part::TenMs), [Some(0.3), Some(0.7)]);
        assert_eq!(options(&[0.3]).loads(Part::Saturation), [None]);
    }
}
