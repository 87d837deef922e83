//! The veth pair, the policy on it, and each thread's sockets.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;

use heddle_netns::{NEAR, NEAR4, Pair};
use heddle_steer::hook::observe::Observed;
use heddle_steer::hook::xdp::{
    Claim, Executors, Holders, Interface, Mode, Protocol, Root, load_policy, put_claim, put_policy,
    put_socket,
};
use heddle_steer::policy::{Maps, read, shipped};
use heddle_xsk::{Options, XdpSocket};

use super::way::Way;
use crate::steer::Group;
use crate::steer::sockets::bind_group;

/// The address of the server.
pub const SERVER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(NEAR4), 8000);

/// Frames of a socket that wait to be received, and to be sent: each thread has a socket on every queue.
const FRAMES: u32 = 256;

/// What one thread of the server receives on.
pub enum Receiver {
    /// AF_XDP, a socket for each receive queue.
    Xdp(Vec<XdpSocket>),
    /// Ordinary.
    Udp(UdpSocket),
}

/// Everything that must live until the measurement is over.
pub struct Network {
    pub pair: Pair,
    receivers: Vec<Receiver>,
    _policy: Attached,
}

/// The policy, which is detached when this is dropped.
enum Attached {
    Xdp { _root: Root, _maps: Maps },
    Sockets { _group: Group },
}

impl Network {
    /// A pair with `queues` queues, whose requests the policy of `way` distributes to `threads` threads.
    pub fn new(way: Way, threads: u32, queues: u32) -> io::Result<Self> {
        let pair = Pair::new(queues)?;
        let (receivers, policy) = match way {
            Way::Application | Way::Native => xdp(&pair, way, Mode::Native, (threads, queues))?,
            Way::Generic => xdp(&pair, way, Mode::Generic, (threads, queues))?,
            Way::Sockets => sockets(&pair, way, threads)?,
        };
        Ok(Self { pair, receivers, _policy: policy })
    }

    /// What the server's threads receive on.
    pub fn take_receivers(&mut self) -> Vec<Receiver> {
        std::mem::take(&mut self.receivers)
    }
}

fn xdp(
    pair: &Pair,
    way: Way,
    mode: Mode,
    (threads, queues): (u32, u32),
) -> io::Result<(Vec<Receiver>, Attached)> {
    let interface = Interface::by_name(NEAR, Some(pair.near.file()?))?;
    let root = Root::attach(&interface, Some(mode)).map_err(io::Error::other)?;
    let object = read(shipped(way.policy()).unwrap_or_default()).map_err(io::Error::other)?;
    let mut maps = Maps::new();
    let kind = (Executors::Sockets, mode);
    let program = load_policy(way.policy(), kind, &object, &mut maps).map_err(io::Error::other)?;
    let control = maps.get("hd_control").ok_or_else(|| io::Error::other("no executors"))?;
    control.update(&0_u32.to_ne_bytes(), &threads.to_ne_bytes())?;
    let options = Options { frames: FRAMES, ..Options::default() };
    let mut of_threads: Vec<Vec<XdpSocket>> = (0..threads).map(|_| Vec::new()).collect();
    for queue in 0..queues {
        let bind = || XdpSocket::bind_many(interface.index(), queue, threads, &options);
        for ((thread, own), socket) in (0..).zip(&mut of_threads).zip(pair.near.run(bind)?) {
            put_socket(&maps, thread, queue, socket.as_fd())?;
            own.push(socket);
        }
    }
    put_policy(&root.maps, 0, &program)?;
    let claim = Claim { protocol: Protocol::Udp, address: SERVER };
    put_claim(&root.maps, &claim, 0, Holders::default()).map_err(io::Error::other)?;
    let receivers = of_threads.into_iter().map(Receiver::Xdp).collect();
    Ok((receivers, Attached::Xdp { _root: root, _maps: maps }))
}

fn sockets(pair: &Pair, way: Way, threads: u32) -> io::Result<(Vec<Receiver>, Attached)> {
    let sockets = pair.near.run(|| bind_group(SERVER, threads as usize))?;
    for socket in &sockets {
        socket.set_nonblocking(true)?;
    }
    let group = Group::attach(way.policy(), &sockets, Observed::Datagrams)?;
    let receivers = sockets.into_iter().map(Receiver::Udp).collect();
    Ok((receivers, Attached::Sockets { _group: group }))
}
