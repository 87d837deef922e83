//! Socket Select: a reuseport group's root program, and the policies that it jumps to.
//!
//! The root is attached to the group once. It jumps to slot 0 of a program array; an empty slot leaves the choice to
//! the kernel. So replacing a policy is one store, taking it away another, and neither needs a socket.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::thread::sleep;
use std::time::{Duration, Instant};

use heddle_sys::bpf::{Program, ProgramKind};

use crate::policy::{LoadError, Maps, Object, frame, link, load, load_framed};

/// The map of the executors.
pub const EXECUTORS: &str = "hd_executor";
/// The map with the policy's program.
pub const SLOT: &str = "hd_slot";

/// How long a socket may still belong to a map that is going away.
const BUSY: Duration = Duration::from_secs(5);

/// Loads the root program; its slot joins `maps`.
///
/// # Errors
/// Those of loading.
pub fn load_root(maps: &mut Maps) -> Result<Program, LoadError> {
    let image = link(&[&frame("reuseport_root")])?;
    load("hd_root", ProgramKind::SkReuseport, &image, maps)
}

/// Loads `policy` for this hook, with the maps that are there.
///
/// # Errors
/// Those of linking and loading.
pub fn load_policy(name: &str, policy: &Object, maps: &mut Maps) -> Result<Program, LoadError> {
    load_framed(name, ProgramKind::SkReuseport, "reuseport", policy, maps, super::observe::prepare)
}

/// Makes `program` the policy of the moment.
///
/// # Errors
/// The kernel's.
pub fn put_policy(maps: &Maps, program: &Program) -> io::Result<()> {
    map(maps, SLOT)?.put_fd(0, program.as_fd())
}

/// Takes the policy away: the kernel chooses.
///
/// # Errors
/// The kernel's.
pub fn take_policy(maps: &Maps) -> io::Result<bool> {
    map(maps, SLOT)?.remove(&0_u32.to_ne_bytes())
}

/// The policy of the moment.
///
/// # Errors
/// The kernel's.
pub fn policy(maps: &Maps) -> io::Result<Option<Program>> {
    let id = map(maps, SLOT)?.lookup(&0_u32.to_ne_bytes())?;
    let id = id.and_then(|id| id.try_into().ok()).map(u32::from_ne_bytes);
    id.map(Program::by_id).transpose()
}

/// Makes `socket` executor `index`. A socket can be in one such map at a time, and one that went away is let go only
/// after a grace period of the kernel, so `EBUSY` is tried again for a while: a select that fails would fall back to
/// the kernel's hash without a word.
///
/// # Errors
/// `EBUSY` if another program has put the socket into a map of its own; `EINVAL` if it has no `SO_REUSEPORT` or is
/// not bound.
pub fn put_executor(maps: &Maps, index: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
    let begin = Instant::now();
    loop {
        match map(maps, EXECUTORS)?.put_fd(index, socket) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && begin.elapsed() < BUSY => {
                sleep(Duration::from_millis(20));
            }
            result => return result,
        }
    }
}

fn map<'a>(maps: &'a Maps, name: &str) -> io::Result<&'a heddle_sys::bpf::Map> {
    maps.get(name).ok_or_else(|| io::Error::other(format!("no map `{name}`")))
}
