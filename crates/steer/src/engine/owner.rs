//! The process whose exit ends an attachment. It is recorded as pid and start time, not kept as a descriptor,
//! so that a later check, even after a restart, can tell whether it is still the same process.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use heddle_sys::stat::Stat;

use super::{TypedDescriptors, invalid};
use crate::request::{Error, ProcessId, Role};

/// Takes the owner out of the descriptors given.
pub fn take(given: &mut TypedDescriptors) -> Result<Option<ProcessId>, Error> {
    let Some(at) = given.iter().position(|(role, _)| *role == Role::Owner) else { return Ok(None) };
    let (_, pidfd) = given.swap_remove(at);
    let gone = || invalid("the owner is no process that runs");
    let owner = process_id(&pidfd)?.ok_or_else(gone)?;
    if !alive(owner)? {
        return Err(gone());
    }
    Ok(Some(owner))
}

fn process_id(pidfd: &OwnedFd) -> Result<Option<ProcessId>, Error> {
    if !is_pidfd(pidfd)? {
        return Ok(None);
    }
    let path = format!("/proc/thread-self/fdinfo/{}", pidfd.as_raw_fd());
    let info = fs::read_to_string(path).map_err(|error| unknown(&error))?;
    let pid = info.lines().find_map(|line| line.strip_prefix("Pid:"));
    let Some(pid) = pid.and_then(|pid| pid.trim().parse().ok()) else { return Ok(None) };
    let started = started(pid).map_err(|error| unknown(&error))?;
    Ok(started.map(|started| ProcessId { pid, started }))
}

/// Returns whether a descriptor is a pidfd. Its link name tells, without touching the object: the `fdinfo` of
/// an epoll takes a lock that its user can hold.
fn is_pidfd(fd: &OwnedFd) -> Result<bool, Error> {
    let name = fs::read_link(format!("/proc/thread-self/fd/{}", fd.as_raw_fd()));
    let name = name.map_err(|error| unknown(&error))?;
    let name = name.as_os_str().as_encoded_bytes();
    // Kernel 6.9 uses the second form; names of files begin with a `/`.
    Ok(name == b"anon_inode:[pidfd]" || name.starts_with(b"pidfd:"))
}

/// Returns when process `pid` was started; `None` if there is none, or it is a zombie.
fn started(pid: u32) -> io::Result<Option<u64>> {
    let stat = Stat::read(pid)?.filter(|stat| !stat.has_ended());
    Ok(stat.map(|stat| stat.began))
}

fn unknown(error: &io::Error) -> Error {
    Error::system("cannot tell whether the owner runs", error)
}

/// Returns whether it still runs.
///
/// # Errors
/// If this cannot be determined.
pub fn alive(owner: ProcessId) -> Result<bool, Error> {
    let started = started(owner.pid).map_err(|error| unknown(&error))?;
    Ok(started == Some(owner.started))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{PidfdFlags, getpid, pidfd_open};

    #[test]
    fn only_pidfds_name_a_process() {
        let me = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
        assert_eq!(process_id(&me).unwrap().unwrap().pid, std::process::id());
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap();
        let file = OwnedFd::from(fs::File::open("/proc/self/stat").unwrap());
        for other in [event, file] {
            assert!(process_id(&other).unwrap().is_none());
        }
    }
}
