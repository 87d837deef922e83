//! Checks whether this backend works here.

use super::error::{Missing, RtError};
use super::tracer::Tracer;
use heddle_sys::scheduling::{self, Scheduling};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// The BPF file system.
pub(super) const BPF_FILE_SYSTEM: &str = "/sys/fs/bpf";
const BPF_FILE_SYSTEM_TYPE: u64 = 0xcafe_4a11;
/// The inode of the first PID namespace, the same in every kernel.
const FIRST_PID_NAMESPACE: u64 = 0xefff_fffc;

/// Checks whether this backend works for this process. Loads its programs once, which takes some hundredths of a
/// second.
///
/// # Errors
/// What the machine or the process lacks.
pub fn probe() -> Result<(), Missing> {
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Err(Missing::Btf);
    }
    let namespace = std::fs::metadata("/proc/self/ns/pid").map_or(0, |ns| ns.ino());
    if namespace != FIRST_PID_NAMESPACE {
        return Err(Missing::PidNamespace);
    }
    real_time()?;
    match Tracer::load() {
        Ok(_) => file_system(),
        Err(RtError::Missing(missing)) => Err(missing),
        Err(error) => Err(Missing::Kernel(error.to_string())),
    }
}

/// Tries real-time priority on a thread that ends at once.
fn real_time() -> Result<(), Missing> {
    let attempt = || scheduling::set(0, Scheduling::fifo(1));
    let result = std::thread::scope(|scope| scope.spawn(attempt).join());
    let failed = |text: String| Err(Missing::RealTime(text));
    match result {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => failed(error.to_string()),
        Err(_) => failed("no thread".into()),
    }
}

pub(super) fn file_system() -> Result<(), Missing> {
    let there = rustix::fs::statfs(BPF_FILE_SYSTEM);
    let is_bpf = there.is_ok_and(|fs| fs.f_type as u64 == BPF_FILE_SYSTEM_TYPE);
    if is_bpf { Ok(()) } else { Err(Missing::BpfFileSystem) }
}
