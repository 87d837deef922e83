//! The runtimes and settings that are compared.

use heddle_core::Ns;
use std::fmt;
use std::str::FromStr;

/// The variable that a program built by `heddle go build` reads when it starts.
pub(super) const VARIABLE: &str = "HEDDLE_GO";

/// A scheduler of goroutines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The installed runtime.
    Stock,
    /// The runtime with Heddle's scheduler in it, switched off.
    Off,
    /// New goroutines before preempted ones; no preemption if none is waiting.
    Heddle(Ns),
    /// The policy of Aspen-Go (Aspen 3.3): one queue, always preempted.
    Aspen(Ns),
}

/// What detects the end of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sysmon {
    /// A timer per thread.
    Timer,
    /// The runtime's monitor, which sleeps until the network has something.
    Event,
    /// The monitor, which sleeps.
    Sleep,
    /// The monitor, which never sleeps: exact, and takes a CPU.
    Spin,
}

impl Sysmon {
    const ALL: [Sysmon; 4] = [Sysmon::Timer, Sysmon::Event, Sysmon::Sleep, Sysmon::Spin];

    fn name(self) -> &'static str {
        match self {
            Sysmon::Timer => "timer",
            Sysmon::Event => "event",
            Sysmon::Sleep => "sleep",
            Sysmon::Spin => "spin",
        }
    }
}

/// A runtime with its settings: `stock`, `heddle-100us`, `aspen-50us`, `heddle-100us-event`, `heddle-off`.
///
/// ```
/// use heddle_bench::go::System;
/// let system: System = "heddle-50us-spin".parse().unwrap();
/// assert_eq!(system.variable().unwrap(), "heddle,quantum=50us,sysmon=spin");
/// assert!("heddle-soon".parse::<System>().unwrap_err().contains("heddle-100us"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct System {
    /// The scheduler.
    pub policy: Policy,
    /// What detects the end of a slice, if given.
    pub sysmon: Option<Sysmon>,
}

/// The quantum of the issue's targets.
const QUANTUM: Ns = Ns::from_us(100);

impl System {
    /// The installed runtime.
    pub const STOCK: System = System { policy: Policy::Stock, sysmon: None };
    /// The other runtime, switched off.
    pub const OFF: System = System { policy: Policy::Off, sysmon: None };

    /// The systems compared by default.
    #[must_use]
    pub fn all() -> Vec<System> {
        let preempting = [Policy::Heddle(QUANTUM), Policy::Aspen(QUANTUM)];
        let with = |policy| System { policy, sysmon: None };
        [System::STOCK, System::OFF].into_iter().chain(preempting.map(with)).collect()
    }

    /// Its value of `HEDDLE_GO`; `None` for the stock runtime, which does not read it.
    #[must_use]
    pub fn variable(&self) -> Option<String> {
        let value = match self.policy {
            Policy::Stock => return None,
            Policy::Off => "off".into(),
            Policy::Heddle(quantum) => format!("heddle,quantum={quantum}"),
            Policy::Aspen(quantum) => format!("aspen,quantum={quantum}"),
        };
        let sysmon = self.sysmon.map(|sysmon| format!(",sysmon={}", sysmon.name()));
        Some(value + &sysmon.unwrap_or_default())
    }

    /// Whether it needs a program built by `heddle go build`.
    #[must_use]
    pub fn is_overlaid(&self) -> bool {
        self.policy != Policy::Stock
    }

    /// The system that targets apply to: Heddle's at 100 us, else the first of Heddle's.
    pub(super) fn chief(systems: &[System]) -> Option<System> {
        let ours = |system: &&System| matches!(system.policy, Policy::Heddle(_));
        let usual = System { policy: Policy::Heddle(QUANTUM), sysmon: None };
        systems.iter().find(|&&system| system == usual).or(systems.iter().find(ours)).copied()
    }

    /// Aspen's policy with the same settings.
    pub(super) fn aspen(self) -> Option<System> {
        match self.policy {
            Policy::Heddle(quantum) => Some(System { policy: Policy::Aspen(quantum), ..self }),
            _ => None,
        }
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.policy {
            Policy::Stock => "stock".into(),
            Policy::Off => "heddle-off".into(),
            Policy::Heddle(quantum) => format!("heddle-{quantum}"),
            Policy::Aspen(quantum) => format!("aspen-{quantum}"),
        };
        let sysmon = self.sysmon.map(|sysmon| format!("-{}", sysmon.name()));
        f.pad(&(name + &sysmon.unwrap_or_default()))
    }
}

impl FromStr for System {
    type Err = String;

    fn from_str(text: &str) -> Result<System, String> {
        match text {
            "stock" => return Ok(System::STOCK),
            "heddle-off" => return Ok(System::OFF),
            _ => {}
        }
        let refused = || {
            format!(
                "no system `{text}`; there are stock, heddle-off, heddle-100us and aspen-100us with any \
                 quantum, and -timer, -event, -sleep or -spin after those"
            )
        };
        let (name, rest) = text.split_once('-').ok_or_else(refused)?;
        let (quantum, sysmon) = match rest.split_once('-') {
            Some((quantum, wanted)) => {
                let named = |sysmon: &Sysmon| sysmon.name() == wanted;
                (quantum, Some(Sysmon::ALL.into_iter().find(named).ok_or_else(refused)?))
            }
            None => (rest, None),
        };
        let quantum: Ns = quantum.parse().map_err(|_| refused())?;
        let policy = match name {
            _ if quantum == Ns::ZERO => return Err(refused()),
            "heddle" => Policy::Heddle(quantum),
            "aspen" => Policy::Aspen(quantum),
            _ => return Err(refused()),
        };
        Ok(System { policy, sysmon })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systems_are_read_as_they_are_written() {
        let tuned = ["heddle-50us-event", "aspen-1ms-spin", "heddle-200us-sleep"];
        for text in tuned {
            assert_eq!(text.parse::<System>().unwrap().to_string(), text);
        }
        for system in System::all() {
            assert_eq!(system.to_string().parse(), Ok(system));
        }
    }

    #[test]
    fn the_variable_says_policy_quantum_and_monitor() {
        let of = |text: &str| text.parse::<System>().unwrap().variable();
        assert_eq!(of("stock"), None);
        assert_eq!(of("heddle-off").unwrap(), "off");
        assert_eq!(of("aspen-1ms").unwrap(), "aspen,quantum=1ms");
        assert_eq!(of("heddle-100us-event").unwrap(), "heddle,quantum=100us,sysmon=event");
    }

    #[test]
    fn unknown_systems_are_refused() {
        for text in ["", "heddle", "heddle-", "heddle-0us", "go-100us", "heddle-100us-nap", "off"] {
            assert!(text.parse::<System>().unwrap_err().contains("stock"), "{text}");
        }
    }

    #[test]
    fn targets_are_about_a_hundred_microseconds_or_the_first_of_heddles() {
        let list = |texts: &[&str]| texts.iter().map(|t| t.parse().unwrap()).collect::<Vec<_>>();
        let chief = |texts: &[&str]| System::chief(&list(texts)).map(|s| s.to_string());
        assert_eq!(chief(&["stock", "heddle-50us", "heddle-100us"]).unwrap(), "heddle-100us");
        assert_eq!(
            chief(&["heddle-off", "aspen-1ms", "heddle-1ms-spin"]).unwrap(),
            "heddle-1ms-spin"
        );
        assert_eq!(chief(&["stock", "heddle-off"]), None);
        let peer = |text: &str| text.parse::<System>().unwrap().aspen().map(|s| s.to_string());
        assert_eq!(peer("heddle-50us-spin").unwrap(), "aspen-50us-spin");
        assert_eq!(peer("stock"), None);
    }
}
