//! Attaching below sockets: assigns the packets of a server's port to the CPUs that carry them through the
//! network stack.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::Instant;

use heddle_steer::client::{Deployment, Steering};
use heddle_steer::hook::Hook;
use heddle_steer::hook::xdp::MAX_HOLDERS;
use heddle_steer::process::Protocol;
use heddle_steer::request::{Error, PacketTarget, Policy, Role};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::attach::Attached;
use super::find::{self, Group};
use super::refused;
use super::selector::Selector;
use crate::exit::Usage;

/// Parses a list of CPUs: `0-3,6`.
pub fn cpus(text: &str) -> Result<Vec<u32>, String> {
    let wrong = || format!("`{text}` is not a list of CPUs such as 2-5 or 0,2,4");
    let number = |text: &str| text.trim().parse::<u32>().map_err(|_| wrong());
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to) = (number(from)?, number(to)?);
        if from > to || to - from >= 1024 {
            return Err(wrong());
        }
        cpus.extend(from..=to);
    }
    Ok(cpus)
}

/// Returns the options of a hook below sockets, if `hook` is one.
pub fn options(
    hook: Hook,
    interface: Option<String>,
    cpus: Option<Vec<u32>>,
) -> Result<Option<PacketTarget>, Usage> {
    match (hook, interface, cpus) {
        (Hook::SocketSelect, None, None) => Ok(None),
        (Hook::SocketSelect, ..) => {
            Err(Usage("--interface and --cpus require --hook cpu-redirect".into()))
        }
        (Hook::CpuRedirect, Some(interface), Some(cpus)) => Ok(Some(PacketTarget { interface, cpus })),
        (Hook::CpuRedirect, ..) => Err(Usage(
            "--hook cpu-redirect requires --interface (whose packets) and --cpus (the CPUs that may carry them, \
                for example 2-5)".into(),
        )),
        (Hook::XdpDrv | Hook::XdpSkb, ..) => Err(Usage(format!(
            "--hook {hook} gives packets to AF_XDP sockets, which only the program that owns them can hand over \
                (docs/steering/README.md)"
        ))),
        (Hook::XdpOffload, ..) => Err(Usage(
            "--hook xdp-offload requires a network card that runs programs, and there is none here (`heddle \
                doctor`); cpu-redirect does the same on the host's CPUs".into(),
        )),
        (Hook::Stream, ..) => Err(Usage(
            "--hook stream works inside the program that owns the connections (docs/steering/streams.md)".into(),
        )),
    }
}

/// Returns the selected sockets by protocol and port, one attachment each, and notes on what is not served.
pub fn targets(selector: &Selector) -> anyhow::Result<(Vec<Vec<Group>>, Vec<String>)> {
    let groups = find::server_groups(selector)?;
    let notes = find::not_served(selector, &groups);
    let mut targets: BTreeMap<(Protocol, u16), Vec<Group>> = BTreeMap::new();
    for group in groups {
        targets.entry((group.protocol, group.address.port())).or_default().push(group);
    }
    Ok((targets.into_values().collect(), notes))
}

/// Attaches to the packets of a server's port. The sockets in `groups` prove that the port belongs to the server.
pub fn attach(
    steering: &Steering,
    selector: &Selector,
    policy: &Policy,
    below: &PacketTarget,
    mut groups: Vec<Group>,
) -> anyhow::Result<Attached> {
    let begin = Instant::now();
    let first = &groups[0].sockets[0];
    let pid = selector.pid.unwrap_or(first.pid);
    let mut deployment =
        Deployment::new(policy.clone(), Hook::CpuRedirect).below(below.clone()).process(pid);
    deployment = deployment.with(Role::Owner, process(pid)?);
    // At least one of each group, then as many as possible: a claim ends with the last of its sockets.
    let (first, more): (Vec<_>, Vec<_>) = groups
        .iter()
        .flat_map(|group| group.sockets.iter().enumerate())
        .partition(|(n, _)| *n == 0);
    for (_, socket) in first.into_iter().chain(more).take(MAX_HOLDERS) {
        deployment = deployment.with(Role::Claim, socket.copy().map_err(refused)?);
    }
    let attachment = steering.attach(deployment).map_err(refused)?;
    Ok(Attached { attachment, group: groups.swap_remove(0), took: begin.elapsed() })
}

fn process(pid: u32) -> anyhow::Result<OwnedFd> {
    let gone = |error: std::io::Error| refused(Error::system(format!("process {pid}"), &error));
    let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let number = number.ok_or_else(|| gone(std::io::ErrorKind::NotFound.into()))?;
    pidfd_open(number, PidfdFlags::empty()).map_err(|error| gone(error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_parsed() {
        assert_eq!(cpus("0-2,5"), Ok(vec![0, 1, 2, 5]));
        for wrong in ["", "a", "3-1", "0-99999", "1,,2"] {
            assert!(cpus(wrong).unwrap_err().contains("not a list of CPUs"), "{wrong}");
        }
    }

    #[test]
    fn each_hook_accepts_only_its_options() {
        let eth = || Some("eth0".to_owned());
        assert_eq!(options(Hook::SocketSelect, None, None).unwrap(), None);
        assert!(options(Hook::CpuRedirect, eth(), Some(vec![1])).unwrap().is_some());
        assert!(options(Hook::SocketSelect, eth(), None).is_err());
        assert!(options(Hook::CpuRedirect, eth(), None).is_err());
        for hook in [Hook::XdpDrv, Hook::XdpSkb, Hook::XdpOffload, Hook::Stream] {
            assert!(options(hook, eth(), None).is_err());
        }
    }
}
