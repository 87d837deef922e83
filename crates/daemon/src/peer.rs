//! The identity of a connection's peer.

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;

use anyhow::{Context as _, bail};
use heddle_steer::engine::Caller;
use heddle_sys::socket::peer_process;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Returns the user who connected, as the kernel reports it.
///
/// A process in its own user namespace may act as any user of its owner's subordinate range, each with its
/// own quotas. So a client in another user namespace than heddled's is refused.
///
/// # Errors
/// Why the client is refused.
pub fn caller(client: &UnixStream) -> anyhow::Result<Caller> {
    let peer = socket_peercred(client).context("the kernel does not say who connected")?;
    let process = process(client, peer.pid).context("cannot tell whose connection this is")?;
    let pid = number(&process)?;
    // Any process may read it, and the kernel writes it for the reader: users of another namespace see
    // another map.
    let users = |pid: &str| fs::read_to_string(format!("/proc/{pid}/uid_map"));
    let theirs = users(&pid.to_string());
    let ours = users("self").context("cannot look at heddled's user namespace")?;
    // What was read belongs to the process only if it has not exited, with its pid reused.
    if has_ended(&process)? {
        bail!("the process that connected has ended: it must wait for its answer");
    }
    if theirs.context("cannot look at your user namespace")? != ours {
        bail!(
            "your process is in a user namespace of its own (a rootless container?), whose users are \
             not the machine's, so heddled refuses them: connect from outside"
        );
    }
    let uid = peer.uid.as_raw();
    // Such a user owns programs that its owner can have made for it: set-user-ID, and started outside any
    // namespace.
    if let Some(owner) = subordinate(uid)? {
        bail!("user {uid} is a subordinate one of {owner} (/etc/subuid): connect as {owner}");
    }
    Ok(Caller { uid })
}

/// Returns the user to whose subordinate range a uid belongs.
fn subordinate(uid: u32) -> anyhow::Result<Option<String>> {
    match fs::read_to_string("/etc/subuid") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        ranges => Ok(owner_in(&ranges.context("cannot read /etc/subuid")?, uid)),
    }
}

/// Lines are `name:first:how many`.
fn owner_in(ranges: &str, uid: u32) -> Option<String> {
    ranges.lines().find_map(|line| {
        let mut fields = line.trim().split(':');
        let owner = fields.next()?;
        let mut number = || fields.next()?.parse::<u64>().ok();
        let (first, count) = (number()?, number()?);
        let inside = (first..first.saturating_add(count)).contains(&u64::from(uid));
        inside.then(|| owner.to_owned())
    })
}

fn process(client: &UnixStream, pid: Pid) -> io::Result<OwnedFd> {
    match peer_process(client.as_fd()) {
        Err(error)
            if error.raw_os_error() == Some(rustix::io::Errno::NOPROTOOPT.raw_os_error()) =>
        {
            Ok(pidfd_open(pid, PidfdFlags::empty())?)
        }
        result => result,
    }
}

fn number(process: &OwnedFd) -> anyhow::Result<u32> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd()))?;
    let pid = info.lines().find_map(|line| line.strip_prefix("Pid:")).map(str::trim);
    let pid = pid.and_then(|pid| pid.parse().ok()).filter(|pid| *pid > 0);
    pid.context("the process that connected has ended, or is none that heddled can see")
}

fn has_ended(process: &OwnedFd) -> io::Result<bool> {
    let mut ready = [PollFd::new(process, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    Ok(poll(&mut ready, Some(&now))? > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subordinate_users_are_found_by_their_ranges() {
        let ranges = "# none\nann:100000:65536\nbob:165536:10\nwrong\n";
        let owner = |uid| owner_in(ranges, uid);
        assert_eq!((owner(99_999), owner(1000), owner(165_546)), (None, None, None));
        assert_eq!(owner(100_000).as_deref(), Some("ann"));
        assert_eq!(owner(165_535).as_deref(), Some("ann"));
        assert_eq!(owner(165_545).as_deref(), Some("bob"));
    }
}
