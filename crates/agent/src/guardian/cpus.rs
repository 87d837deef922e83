//! Lists of CPUs, and the machine's CPUs.

use super::GuardianError;
use std::collections::BTreeSet;
use std::fs;

pub use heddle_sys::cpu_list::{format, parse};

/// CPUs by the operating system's numbers.
pub type Cpus = BTreeSet<u32>;

/// The machine's CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineCpus {
    /// All CPUs present.
    pub present: Cpus,
    /// The CPUs online.
    pub online: Cpus,
}

/// Returns the CPUs that are online now.
///
/// # Errors
/// If /sys cannot be read.
pub(super) fn online() -> Result<Cpus, GuardianError> {
    read("online")
}

fn read(name: &str) -> Result<Cpus, GuardianError> {
    let path = format!("/sys/devices/system/cpu/{name}");
    let text = fs::read_to_string(&path).map_err(GuardianError::system(path))?;
    parse(&text).map_err(GuardianError::Failed)
}

impl MachineCpus {
    /// Reads the CPUs of this machine.
    ///
    /// # Errors
    /// If /sys cannot be read.
    pub fn here() -> Result<MachineCpus, GuardianError> {
        Ok(MachineCpus { present: read("present")?, online: online()? })
    }

    /// Returns all online CPUs except the first, which takes most interrupts and the rest of the system; the first
    /// one if it is the only one.
    #[must_use]
    pub fn default_enclave(&self) -> Cpus {
        let rest: Cpus = self.online.iter().copied().skip(1).collect();
        if rest.is_empty() { self.online.clone() } else { rest }
    }

    /// Whether an enclave can have `wanted`.
    ///
    /// # Errors
    /// If a CPU is missing or offline.
    pub fn check(&self, wanted: &Cpus) -> Result<(), GuardianError> {
        let missing: Cpus = wanted.difference(&self.present).copied().collect();
        if !missing.is_empty() {
            return Err(GuardianError::Usage(format!(
                "this machine has no CPU {}; it has {}",
                format(&missing),
                format(&self.present)
            )));
        }
        let off: Cpus = wanted.difference(&self.online).copied().collect();
        if !off.is_empty() {
            return Err(GuardianError::Usage(format!(
                "CPU {} is offline; online are {} (echo 1 > /sys/devices/system/cpu/cpuN/online)",
                format(&off),
                format(&self.online)
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written() {
        for text in ["0", "2-7,9", "0-1,4,6-7"] {
            assert_eq!(format(&parse(text).unwrap()), text);
        }
        assert_eq!(format(&parse(" 3,1,2\n").unwrap()), "1-3");
        for wrong in ["", "a", "3-1", "1-", "0-5000", "1;2", "-1"] {
            assert!(parse(wrong).unwrap_err().contains("not a list of CPUs"), "{wrong}");
        }
    }

    #[test]
    fn missing_and_offline_cpus_are_refused_by_number() {
        let machine =
            MachineCpus { present: parse("0-7").unwrap(), online: parse("0-3,6").unwrap() };
        assert_eq!(format(&machine.default_enclave()), "1-3,6");
        machine.check(&parse("1,6").unwrap()).unwrap();
        let refused = |text| machine.check(&parse(text).unwrap()).unwrap_err().to_string();
        assert!(refused("2,8-9").starts_with("this machine has no CPU 8-9; it has 0-7"));
        assert!(refused("3-5").starts_with("CPU 4-5 is offline; online are 0-3,6"));
        let single = MachineCpus { present: parse("0").unwrap(), online: parse("0").unwrap() };
        assert_eq!(format(&single.default_enclave()), "0");
    }
}
