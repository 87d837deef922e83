//! The location of CPUs, from sysfs.

use heddle_core::CpuInfo;
use std::fs;

fn number(path: &str) -> Option<u16> {
    let text = fs::read_to_string(path).ok()?;
    // Also reads the first CPU of a list such as `0-3,8`, which names the group as well as any.
    text.trim().split([',', '-']).next()?.parse().ok()
}

/// Returns the location of the CPU that the system calls `os_id`. A level missing from sysfs counts as shared by all.
pub fn cpu_info(os_id: u32) -> CpuInfo {
    let cpu = format!("/sys/devices/system/cpu/cpu{os_id}");
    let node = (0..1024u16).find(|n| fs::metadata(format!("{cpu}/node{n}")).is_ok());
    // The last level that exists: index 3 is the L3 on every current x86.
    let llc = (0..=4).rev().find_map(|i| number(&format!("{cpu}/cache/index{i}/shared_cpu_list")));
    let core = number(&format!("{cpu}/topology/thread_siblings_list"));
    CpuInfo {
        os_id,
        node: node.unwrap_or(0),
        llc: llc.unwrap_or(0),
        core: core.unwrap_or(os_id as u16),
    }
}
