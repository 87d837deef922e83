//! The veth pair, the policy on it, and a socket for each thread.

use std::io;
use std::os::fd::AsFd as _;

use heddle_netns::{NEAR, NEAR4, Pair};
use heddle_steer::hook::xdp::{
    Claim, Executors, Holders, Interface, Mode, Protocol, Root, load_policy, put_claim, put_policy,
    put_socket,
};
use heddle_steer::policy::{Maps, read, shipped};
use heddle_xsk::{Options, XdpSocket};

/// The address of the server.
pub const PORT: u16 = 8000;

/// Everything that must live until the measurement is over.
pub struct Network {
    pub pair: Pair,
    sockets: Vec<XdpSocket>,
    _root: Root,
    _maps: Maps,
}

impl Network {
    /// A pair with one queue, whose requests `policy` distributes to `threads` sockets.
    pub fn new(policy: &str, threads: u32) -> io::Result<Self> {
        let pair = Pair::new(1)?;
        let interface = Interface::by_name(NEAR, Some(pair.near.file()?))?;
        let root = Root::attach(&interface, Some(Mode::Native)).map_err(io::Error::other)?;
        let object = read(shipped(policy).unwrap_or_default()).map_err(io::Error::other)?;
        let mut maps = Maps::new();
        let kind = (Executors::Sockets, Mode::Native);
        let program = load_policy(policy, kind, &object, &mut maps).map_err(io::Error::other)?;
        let control = maps.get("hd_control").ok_or_else(|| io::Error::other("no executors"))?;
        control.update(&0_u32.to_ne_bytes(), &threads.to_ne_bytes())?;
        let options = Options::default();
        let sockets =
            pair.near.run(|| XdpSocket::bind_many(interface.index(), 0, threads, &options))?;
        for (index, socket) in (0..).zip(&sockets) {
            put_socket(&maps, index, 0, socket.as_fd())?;
        }
        put_policy(&root.maps, 0, &program)?;
        let claim = Claim { protocol: Protocol::Udp, address: (NEAR4, PORT).into() };
        put_claim(&root.maps, &claim, 0, Holders::default()).map_err(io::Error::other)?;
        Ok(Self { pair, sockets, _root: root, _maps: maps })
    }

    /// The server's sockets, one per thread.
    pub fn take_sockets(&mut self) -> Vec<XdpSocket> {
        std::mem::take(&mut self.sockets)
    }
}
