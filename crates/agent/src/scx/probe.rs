//! Checks whether this machine and this process can use the sched_ext backend.

use super::Missing;
use super::programs::NAME;
use rustix::fs::statfs;
use rustix::thread::{CapabilitySet, capabilities};
use std::fs;
use std::path::Path;

const SCHED_EXT: &str = "/sys/kernel/sched_ext";
const BPF_FS: &str = "/sys/fs/bpf";
/// The type that `statfs` reports for a BPF file system.
const BPF_FS_MAGIC: u64 = 0xcafe_4a11;

/// Checks that everything that the backend needs is there.
///
/// # Errors
/// The first thing that is missing.
pub fn probe() -> Result<(), Missing> {
    if !Path::new(SCHED_EXT).exists() {
        return Err(Missing::SchedExt);
    }
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Err(Missing::Btf);
    }
    capable()?;
    let is_bpf = statfs(BPF_FS).is_ok_and(|fs| fs.f_type as u64 & 0xffff_ffff == BPF_FS_MAGIC);
    if !is_bpf {
        return Err(Missing::BpfFileSystem);
    }
    match loaded() {
        Some(name) if name != NAME => Err(Missing::Another(name)),
        _ => Ok(()),
    }
}

fn capable() -> Result<(), Missing> {
    let have = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    let needed = [
        (CapabilitySet::BPF, "CAP_BPF"),
        (CapabilitySet::PERFMON, "CAP_PERFMON"),
        (CapabilitySet::SYS_NICE, "CAP_SYS_NICE"),
        (CapabilitySet::SYS_ADMIN, "CAP_SYS_ADMIN"),
    ];
    match needed.iter().find(|(one, _)| !have.contains(*one)) {
        Some((_, name)) => Err(Missing::Capability(name)),
        None => Ok(()),
    }
}

/// Returns the name of the loaded sched_ext scheduler.
pub(super) fn loaded() -> Option<String> {
    let read = |file: &str| fs::read_to_string(format!("{SCHED_EXT}/{file}")).ok();
    let state = read("state")?;
    let is_on = ["enabled", "enabling"].contains(&state.trim());
    is_on.then(|| read("root/ops").map_or("unknown".into(), |name| name.trim().to_owned()))
}
