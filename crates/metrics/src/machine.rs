//! The machine that a result was measured on, without its owner.

use std::thread;
use std::time::SystemTime;

use procfs::{CpuInfo, Current as _, Meminfo};
use serde::{Deserialize, Serialize};

/// The conditions of a measurement. They never include names of users or hosts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// The processor's model name; `unknown` if it has none.
    pub cpu: String,
    /// CPUs that this process may use, considering affinity and container limits.
    pub cores: u32,
    /// The kernel release: `6.12.3-amd64`.
    pub kernel: String,
    /// Whether it is a virtual machine: VM exits add to the cost of signals, timers and idle wake-ups.
    pub virtualised: bool,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// The time in UTC: `2026-11-20T23:05:00Z`.
    pub date: String,
}

impl Machine {
    /// Describes this machine, now. Properties that the system does not report are `unknown`, 0 or `false`.
    pub fn detect() -> Machine {
        let cpu = CpuInfo::current().ok();
        let flags = cpu.as_ref().and_then(|cpu| cpu.flags(0)).unwrap_or_default();
        let kernel = rustix::system::uname();
        Machine {
            cpu: known(cpu.as_ref().and_then(|cpu| cpu.model_name(0))),
            cores: thread::available_parallelism().map_or(0, |n| n.get() as u32),
            kernel: known(kernel.release().to_str().ok()),
            virtualised: flags.contains(&"hypervisor"),
            memory_mib: Meminfo::current().map_or(0, |memory| memory.mem_total >> 20),
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        }
    }

    /// Returns one line for people: processor, cores, memory, kernel, virtualised or not.
    pub fn summary(&self) -> String {
        let virtualised = if self.virtualised { ", virtual machine" } else { "" };
        let (cores, gib) = (self.cores, self.memory_mib as f64 / 1024.0);
        let plural = if cores == 1 { "" } else { "s" };
        format!(
            "{}, {cores} core{plural}, {gib:.1} GiB, Linux {}{virtualised}",
            self.cpu, self.kernel
        )
    }
}

fn known(text: Option<&str>) -> String {
    text.filter(|text| !text.is_empty()).unwrap_or("unknown").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_of_this_machine_is_anonymous() {
        let machine = Machine::detect();
        assert!(machine.cores > 0 && machine.memory_mib > 0);
        assert!(machine.cpu != "unknown" && machine.kernel != "unknown");
        assert!(machine.date.len() == 20 && machine.date.ends_with('Z'), "{}", machine.date);
        let system = rustix::system::uname();
        let host = system.nodename().to_str().unwrap();
        // Very short names could match by chance.
        if host.len() > 6 {
            assert!(!serde_json::to_string(&machine).unwrap().contains(host));
        }
    }
}
