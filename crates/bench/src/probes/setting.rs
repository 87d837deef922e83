//! Mechanisms and quanta.

use std::fmt;

use super::variant::Variant;
use heddle::Mechanism;
use heddle_core::Ns;

/// The case without quanta.
const NO_QUANTUM: &str = "no quantum";

const QUANTA_US: [u64; 6] = [2, 5, 10, 50, 100, 1000];
/// The quantum whose turns are watched.
pub(super) const WATCHED: Ns = Ns::from_us(10);

/// What ends turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    None,
    Signal,
    Probe,
    /// Probes, in a program that has none: the control (invariant I5).
    Control,
}

impl Ending {
    /// Its mechanism.
    pub(super) fn mechanism(self) -> Mechanism {
        match self {
            Ending::None => Mechanism::None,
            Ending::Signal => Mechanism::Signal,
            Ending::Probe | Ending::Control => Mechanism::Probe,
        }
    }

    /// Its name in results.
    pub(super) fn name(self) -> &'static str {
        match self {
            Ending::None => "none",
            Ending::Signal => "signal",
            Ending::Probe => "probe",
            Ending::Control => "probe, without probes",
        }
    }

    /// How the program is compiled.
    pub(super) fn variant(self) -> Variant {
        match self {
            Ending::Control => Variant::None,
            Ending::None | Ending::Signal | Ending::Probe => Variant::BoundedClock,
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A mechanism with its quantum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) ending: Ending,
    /// None without preemption.
    pub(super) quantum: Option<Ns>,
}

impl Setting {
    /// The work without preemption, and for each mechanism the quanta that it supports.
    pub(super) fn of_work() -> Vec<Setting> {
        let none = Setting { ending: Ending::None, quantum: None };
        let both = |quantum: Ns| {
            let endings = [Ending::Signal, Ending::Probe].into_iter();
            let able = endings.filter(move |of| quantum >= of.mechanism().shortest_quantum());
            able.map(move |ending| Setting { ending, quantum: Some(quantum) })
        };
        let all = QUANTA_US.into_iter().map(Ns::from_us).flat_map(both);
        std::iter::once(none).chain(all).collect()
    }

    /// The turns that are watched.
    pub(super) fn of_turns() -> Vec<Setting> {
        let endings = [Ending::Signal, Ending::Probe, Ending::Control];
        endings.map(|ending| Setting { ending, quantum: Some(WATCHED) }).to_vec()
    }

    /// Its case in results.
    pub(super) fn case(self) -> String {
        self.quantum.map_or_else(|| NO_QUANTUM.into(), |quantum| format!("quantum {quantum}"))
    }

    /// The policy with its quantum.
    pub(super) fn policy(self) -> String {
        let policy = "round-robin";
        self.quantum.map_or_else(|| policy.into(), |ns| format!("{policy}:quantum={}ns", ns.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mechanisms_have_the_quanta_that_they_support() {
        let quanta = |ending| {
            let of = Setting::of_work().into_iter().filter(move |of| of.ending == ending);
            of.map(Setting::case).collect::<Vec<_>>()
        };
        assert_eq!(quanta(Ending::None), [NO_QUANTUM]);
        assert_eq!(quanta(Ending::Probe).len(), QUANTA_US.len());
        assert_eq!(quanta(Ending::Probe)[0], "quantum 2us");
        assert_eq!(quanta(Ending::Signal)[0], "quantum 10us");
        assert_eq!(
            Setting { ending: Ending::Probe, quantum: Some(Ns::from_us(5)) }.policy(),
            "round-robin:quantum=5000ns"
        );
        assert_eq!(Setting { ending: Ending::None, quantum: None }.policy(), "round-robin");
    }
}
