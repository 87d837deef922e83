//! The hooks at sockets, tried on the probe's own sockets.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd as _, OwnedFd};

use heddle_bpf::{Map, MapKind, MapSpec, Program, ProgramKind, ProgramSpec};
use rustix::net::{
    AddressFamily, SendFlags, SocketType, bind, getsockname, sendto, socket, sockopt,
};

use super::Probe;
use crate::hook::{observe, reuseport};
use crate::policy::{Maps, read, shipped};

type Trial = Result<String, Box<dyn Error>>;

pub fn probes() -> Vec<Probe> {
    vec![
        Probe::tried(
            "socket-select",
            select(),
            "datagrams and connections can be steered among the sockets of a port (SO_REUSEPORT)",
            "servers can be steered in user space only",
        ),
        Probe::tried(
            "socket-observer",
            observe_one(),
            "the kernel says which sockets are idle: jiq and jsq work on unmodified servers",
            "policies that watch queues do not work; the others do",
        ),
        Probe::tried(
            "stream",
            stream(),
            "requests in streams can be steered (experimental)",
            "streams can be steered by connection only",
        ),
    ]
}

fn group_member(address: SocketAddr) -> Result<OwnedFd, Box<dyn Error>> {
    let member = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    sockopt::set_socket_reuseport(&member, true)?;
    bind(&member, &address)?;
    Ok(member)
}

/// A group of two, and a datagram for which the policy chooses.
fn select() -> Trial {
    let first = group_member((Ipv4Addr::LOCALHOST, 0).into())?;
    let address = SocketAddr::try_from(getsockname(&first)?)?;
    let second = group_member(address)?;
    let mut maps = Maps::new();
    let root = reuseport::load_root(&mut maps)?;
    let policy = read(shipped("round-robin").unwrap_or_default())?;
    let program = reuseport::load_policy("round-robin", &policy, &mut maps)?;
    for (index, member) in [(0, &first), (1, &second)] {
        reuseport::put_executor(&maps, index, member.as_fd())?;
    }
    reuseport::put_policy(&maps, &program)?;
    root.attach_reuseport(first.as_fd())?;
    let sender = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    sendto(&sender, b"probe", SendFlags::empty(), &address)?;
    let counts = maps.get("hd_counts").ok_or("no counts")?.lookup(&0_u32.to_ne_bytes())?;
    match counts.unwrap_or_default().iter().any(|byte| *byte != 0) {
        true => Ok("a policy chose the socket of a datagram".into()),
        false => Err("a policy was attached, and did not choose".into()),
    }
}

fn observe_one() -> Trial {
    let member = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    let mut maps = Maps::new();
    let of = [(0, member.as_fd(), observe::Observed::Datagrams)];
    observe::put_sockets(&mut maps, &of)?;
    Ok("the kernel listed the sockets of this process".into())
}

/// `r0 = SK_PASS; exit`.
const PASS: [u64; 2] = [0x0000_0001_0000_00b7, 0x95];

fn stream() -> Trial {
    let spec = MapSpec {
        name: "hd_probe".into(),
        kind: MapKind::Sockets,
        key_size: 4,
        value_size: 8,
        entries: 1,
        read_only: false,
    };
    let sockets = Map::create(&spec)?;
    let kind = ProgramKind::StreamVerdict;
    let program = Program::load(&ProgramSpec {
        name: "hd_probe",
        kind,
        instructions: &PASS,
        functions: &[],
    })?;
    program.attach_stream(kind, sockets.as_fd())?;
    Ok("a program was attached to a map of sockets".into())
}
