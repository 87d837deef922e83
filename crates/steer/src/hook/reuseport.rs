//! Socket Select: a reuseport group's root program, and the policies that it jumps to.
//!
//! The root is attached to the group once. It jumps to slot 0 of a program array; an empty slot leaves the
//! choice to the kernel. So replacing or removing a policy is one store, and needs no socket.
//!
//! If the policy chooses an executor whose socket is closed, its frame jumps to a program of Heddle's
//! (`bpf/steer/hooks/reuseport_gone.c`), which gives the input to an open one.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::thread::sleep;
use std::time::{Duration, Instant};

use heddle_bpf::{Map, MapKind, MapSpec, Program, ProgramKind};

use crate::policy::{LoadError, Maps, Object, frame, link, load, load_framed, reads_payload};

/// The map of the executors.
pub const EXECUTORS: &str = "hd_executor";
/// The map with the policy's program.
pub const SLOT: &str = "hd_slot";

/// The map with the program for executors whose sockets are closed.
const GONE: &str = "hd_gone";

/// How long a socket may still belong to a map that is being freed.
const BUSY: Duration = Duration::from_secs(5);

/// Loads the root program; adds its slot to `maps`.
///
/// # Errors
/// Those of loading.
pub fn load_root(maps: &mut Maps) -> Result<Program, LoadError> {
    let image = link(&[&frame("reuseport_root")])?;
    load("hd_root", ProgramKind::SkReuseport, &image, maps)
}

/// Loads `policy` for this hook, using the existing maps. The payload is copied for policies that may read it.
///
/// # Errors
/// Those of linking and loading.
pub fn load_policy(name: &str, policy: &Object, maps: &mut Maps) -> Result<Program, LoadError> {
    let frame = if reads_payload(policy) { "reuseport" } else { "reuseport_flow" };
    load_framed(name, ProgramKind::SkReuseport, frame, policy, maps, super::observe::prepare)
}

/// Loads the fallback for executors whose sockets are closed, for the policy that was loaded with `maps`.
///
/// # Errors
/// Those of loading, and `hd_gone` if no policy was loaded.
pub fn put_gone(maps: &mut Maps) -> Result<(), LoadError> {
    let image = link(&[&frame("reuseport_gone"), &frame("common"), &frame("observe")])?;
    super::observe::prepare(&image, maps)?;
    let program = load("hd_gone", ProgramKind::SkReuseport, &image, maps)?;
    let put = map(maps, GONE).and_then(|map| map.put_fd(0, program.as_fd()));
    put.map_err(|error| LoadError::Map { name: GONE.into(), error })
}

/// Makes `program` the current policy.
///
/// # Errors
/// The kernel's.
pub fn put_policy(maps: &Maps, program: &Program) -> io::Result<()> {
    map(maps, SLOT)?.put_fd(0, program.as_fd())
}

/// Removes the policy: the kernel chooses.
///
/// # Errors
/// The kernel's.
pub fn take_policy(maps: &Maps) -> io::Result<bool> {
    map(maps, SLOT)?.remove(&0_u32.to_ne_bytes())
}

/// Returns the current policy.
///
/// # Errors
/// The kernel's.
pub fn policy(maps: &Maps) -> io::Result<Option<Program>> {
    let id = map(maps, SLOT)?.lookup(&0_u32.to_ne_bytes())?;
    let id = id.and_then(|id| id.try_into().ok()).map(u32::from_ne_bytes);
    id.map(Program::by_id).transpose()
}

/// Makes `socket` executor `index`. A socket can be in one such map at a time, and a map that is being freed
/// releases it only after a grace period of the kernel ([`wait_until_free`]).
///
/// # Errors
/// `EBUSY` if the socket is in such a map, or another program stores data with it; `EINVAL` if it has no
/// `SO_REUSEPORT` or is not bound.
pub fn put_executor(maps: &Maps, index: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
    map(maps, EXECUTORS)?.put_fd(index, socket)
}

/// Waits, for a few seconds, until none of `sockets` is in a map that is being freed: a select that fails
/// would silently fall back to the kernel's hash. Sockets that stay busy, or cannot be in such a map, are
/// left for [`put_executor`] to report.
///
/// # Errors
/// If no map can be made to try them.
pub fn wait_until_free(sockets: &[BorrowedFd<'_>]) -> io::Result<()> {
    let spec = MapSpec {
        name: "hd_free".into(),
        kind: MapKind::ReuseportSockets,
        key_size: 4,
        value_size: 8,
        entries: 1,
        read_only: false,
    };
    let map = Map::create(&spec)?;
    let begin = Instant::now();
    for socket in sockets {
        loop {
            match map.put_fd(0, *socket) {
                Err(error)
                    if error.kind() == io::ErrorKind::ResourceBusy && begin.elapsed() < BUSY =>
                {
                    sleep(Duration::from_millis(20));
                }
                result => {
                    if result.is_ok() {
                        map.remove(&0_u32.to_ne_bytes())?;
                    }
                    break;
                }
            }
        }
    }
    Ok(())
}

fn map<'a>(maps: &'a Maps, name: &str) -> io::Result<&'a Map> {
    maps.get(name).ok_or_else(|| io::Error::other(format!("no map `{name}`")))
}
