//! A deployment of lanes at the near end of a pair, and what it does with single frames.
#![allow(dead_code, reason = "each test file uses a part")]

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, OwnedFd};

use heddle_netns::Pair;
use heddle_steer::hook::xdp::Protocol;
use heddle_steer::lane::{Counts, Deployment, Options};
use heddle_xsk::{Options as SocketOptions, XdpSocket};
use rustix::net::{AddressFamily, SocketType, bind, listen, socket, sockopt};

use crate::common::{Packet, near, network};

pub const PORT: u16 = 8000;

/// Where a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    Lane(usize),
    Kernel,
    Nowhere,
}

pub struct Lanes {
    pub deployment: Deployment,
    /// Of queue 0, by lane.
    pub sockets: Vec<XdpSocket>,
    pub net: Pair,
}

impl Lanes {
    /// `None` if this process cannot make networks. The lanes have sockets on queue 0.
    pub fn new(options: &Options) -> Option<Self> {
        let net = network(1)?;
        let deployment = Deployment::attach(near(&net), options).unwrap();
        let index = deployment.interface().index();
        let shape = SocketOptions { frames: 64, ..SocketOptions::default() };
        let bind = || XdpSocket::bind_many(index, 0, options.lanes, &shape);
        let sockets = net.near.run(bind).unwrap();
        for (lane, socket) in (0..).zip(&sockets) {
            deployment.put_socket(lane, 0, socket.as_fd()).unwrap();
        }
        Some(Self { deployment, sockets, net })
    }

    pub fn with_policy(lanes: u32, policy: &str) -> Option<Self> {
        Self::new(&Options { policy: policy.into(), ..Options::new(lanes) })
    }

    /// A socket of the kernel, bound and, for TCP, listening; with its claim.
    pub fn claim(&self, protocol: Protocol, ip: impl Into<IpAddr>) -> OwnedFd {
        let address = SocketAddr::new(ip.into(), PORT);
        let socket = self.kernel_socket(protocol, address);
        self.deployment.claim(protocol, address, &[socket.as_fd()]).unwrap();
        socket
    }

    /// A bound socket of the near end, which listens if it is one of TCP.
    pub fn kernel_socket(&self, protocol: Protocol, address: SocketAddr) -> OwnedFd {
        let socket = self.bound(protocol, address);
        if protocol == Protocol::Tcp {
            listen(&socket, 16).unwrap();
        }
        socket
    }

    /// The same, and it does not listen.
    pub fn bound(&self, protocol: Protocol, address: SocketAddr) -> OwnedFd {
        self.net.near.run(|| bound(protocol, address))
    }

    /// Has the program decide about a frame, which then vanishes.
    pub fn to(&self, packet: &Packet) -> To {
        let before = self.counts();
        let verdict = self.deployment.program().test_run(&packet.frame(), 1).unwrap().verdict;
        let after = self.counts();
        match verdict {
            1 => To::Nowhere,
            2 => To::Kernel,
            4 => {
                let pairs = after.selected.iter().zip(&before.selected);
                let grown: Vec<usize> =
                    (0..).zip(pairs).filter(|(_, (a, b))| a > b).map(|(lane, _)| lane).collect();
                assert_eq!(grown.len(), 1, "{before:?} {after:?}");
                To::Lane(grown[0])
            }
            other => panic!("verdict {other}"),
        }
    }

    pub fn counts(&self) -> Counts {
        self.deployment.counts().unwrap()
    }
}

/// A bound socket of this thread's namespace.
fn bound(protocol: Protocol, address: SocketAddr) -> OwnedFd {
    let kind = match protocol {
        Protocol::Tcp => SocketType::STREAM,
        Protocol::Udp => SocketType::DGRAM,
    };
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket(family, kind, None).unwrap();
    sockopt::set_socket_reuseport(&socket, true).unwrap();
    if !address.is_ipv4() {
        sockopt::set_ipv6_v6only(&socket, true).unwrap();
    }
    bind(&socket, &address).unwrap();
    socket
}
