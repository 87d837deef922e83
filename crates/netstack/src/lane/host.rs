//! The host that a lane is: its sockets and connections, apart from the wires, which are used at the same time.

use super::connections::{Connections, Segments};
use super::{Counters, Ready, Sent, Woken};
use crate::control::Mac;
use crate::icmp::{self, Problem};
use crate::packet::{self, ICMP, ICMP6, Packet, TCP, UDP, UDP_HEADER};
use crate::paths::{Paths, Routes, Way};
use crate::udp::{UdpSocket, canonical};
use crate::wire::Transmit;
use heddle_core::Ns;
use heddle_tcp::Stack;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

pub(super) struct Host {
    paths: Paths,
    udp: HashMap<u16, Vec<Arc<UdpSocket>>>,
    pub(super) connections: Connections,
    pub(super) counters: Counters,
    /// Where to put segments of connections that another lane may have; `None` if none can.
    pub(super) strays: Option<Vec<Box<[u8]>>>,
}

/// Maximum number of segments that wait to be given to their lanes. More are lost, and sent again.
const MAX_STRAYS: usize = 64;

impl Host {
    pub(super) fn new(number: usize, routes: Arc<dyn Routes>, stack: Stack) -> Host {
        Host {
            paths: Paths::new(routes),
            udp: HashMap::new(),
            connections: Connections::new(number, stack),
            counters: Counters::default(),
            strays: None,
        }
    }

    /// Runs `f` on the stack, with its output. `from` is the neighbour that sent the packet that is answered.
    pub(super) fn with_stack<T: Transmit, R>(
        &mut self,
        transmit: &mut T,
        from: Option<Mac>,
        f: impl FnOnce(&mut Stack, &mut Segments<'_, T>) -> R,
    ) -> R {
        self.connections.with((transmit, &mut self.paths, &mut self.counters), from, f)
    }

    /// Takes a frame that arrived; answers go to `transmit`.
    pub(super) fn take(
        &mut self,
        now: Ns,
        frame: &[u8],
        transmit: &mut impl Transmit,
        woken: &mut Woken,
    ) {
        self.counters.frames += 1;
        let Some(packet) = packet::parse(frame) else {
            self.counters.malformed += 1;
            return;
        };
        match packet.protocol {
            TCP | UDP if !packet::is_checksum_right(&packet, self.paths.snapshot().is_veth()) => {
                self.counters.bad_checksum += 1;
            }
            TCP if self.is_stray(&packet) => self.keep_stray(frame),
            TCP => self.take_tcp(now, &packet, transmit),
            UDP => self.take_udp(&packet, woken),
            ICMP | ICMP6 => self.take_icmp(now, &packet, transmit, woken),
            _ => self.counters.malformed += 1,
        }
    }

    /// Returns whether a segment belongs to a connection that another lane may have: the program at XDP has forgotten
    /// where it is. A SYN is where it belongs.
    fn is_stray(&self, packet: &Packet<'_>) -> bool {
        self.strays.is_some()
            && packet::is_syn(packet.transport) != Some(true)
            && !self.has_flow(packet)
    }

    fn has_flow(&self, packet: &Packet<'_>) -> bool {
        let Some((source, destination)) = packet::ports(packet.transport) else { return true };
        let local = SocketAddr::new(packet.destination, destination);
        self.connections.stack.has_flow(local, SocketAddr::new(packet.source, source))
    }

    fn keep_stray(&mut self, frame: &[u8]) {
        match &mut self.strays {
            Some(strays) if strays.len() < MAX_STRAYS => strays.push(frame.into()),
            _ => self.counters.strays_lost += 1,
        }
    }

    /// Takes a stray segment of another lane, if its connection is here, or if it is nowhere (`anyway`). Returns
    /// whether it did.
    pub(super) fn take_stray(
        &mut self,
        now: Ns,
        frame: &[u8],
        anyway: bool,
        transmit: &mut impl Transmit,
    ) -> Option<(SocketAddr, SocketAddr)> {
        let packet = packet::parse(frame)?;
        if !anyway && !self.has_flow(&packet) {
            return None;
        }
        self.counters.strays_taken += u64::from(!anyway);
        self.take_tcp(now, &packet, transmit);
        let (source, destination) = packet::ports(packet.transport)?;
        let local = SocketAddr::new(packet.destination, destination);
        Some((local, SocketAddr::new(packet.source, source)))
    }

    fn take_tcp(&mut self, now: Ns, packet: &Packet<'_>, transmit: &mut impl Transmit) {
        self.counters.tcp_received += 1;
        let mtu = self.mtu();
        let Packet { from, source, destination, transport, .. } = *packet;
        self.with_stack(transmit, Some(from), |stack, out| {
            stack.receive(now, source, destination, transport, mtu, out);
        });
    }

    fn mtu(&mut self) -> u16 {
        u16::try_from(self.paths.snapshot().mtu()).unwrap_or(u16::MAX)
    }

    fn take_icmp(
        &mut self,
        now: Ns,
        packet: &Packet<'_>,
        transmit: &mut impl Transmit,
        woken: &mut Woken,
    ) {
        let Some(error) = icmp::parse(packet) else {
            self.counters.malformed += 1;
            return;
        };
        self.counters.icmp_errors += 1;
        match (error.protocol, error.problem) {
            (TCP, problem) => self.with_stack(transmit, None, |stack, out| {
                let icmp::Error { local, remote, sequence, .. } = error;
                stack.icmp_error(now, local, remote, sequence, problem.into(), out);
            }),
            (_, Problem::Refused) => self.refuse(&error, woken),
            _ => {}
        }
    }

    /// No socket has the port of a connected UDP socket's peer.
    fn refuse(&mut self, error: &icmp::Error, woken: &mut Woken) {
        for socket in self.udp.get(&error.local.port()).into_iter().flatten() {
            if socket.refuse(error.remote) {
                socket.wake(Ready::BROKEN, woken);
            }
        }
    }

    fn take_udp(&mut self, packet: &Packet<'_>, woken: &mut Woken) {
        let Some(datagram) = packet::parse_udp(packet.transport) else {
            self.counters.malformed += 1;
            return;
        };
        let sockets = self.udp.get(&datagram.destination);
        let bound = |socket: &&Arc<UdpSocket>| socket.is_bound_to(packet.destination);
        let Some(socket) = sockets.and_then(|sockets| sockets.iter().find(bound)) else {
            self.counters.no_socket += 1;
            return;
        };
        if socket.deliver(SocketAddr::new(packet.source, datagram.source), datagram.payload) {
            self.counters.udp_received += 1;
            socket.wake(Ready::READ, woken);
        } else {
            self.counters.udp_full += 1;
        }
    }

    pub(super) fn add_udp(&mut self, socket: &Arc<UdpSocket>) {
        let sockets = self.udp.entry(socket.local().port()).or_default();
        // A socket with an address comes before one without.
        let at = if socket.is_wildcard() { sockets.len() } else { 0 };
        sockets.insert(at, Arc::clone(socket));
    }

    pub(super) fn remove_udp(&mut self, socket: &Arc<UdpSocket>) {
        let port = socket.local().port();
        if let Some(sockets) = self.udp.get_mut(&port) {
            sockets.retain(|other| !Arc::ptr_eq(other, socket));
            if sockets.is_empty() {
                self.udp.remove(&port);
            }
        }
    }

    pub(super) fn send_udp(
        &mut self,
        transmit: &mut impl Transmit,
        socket: &UdpSocket,
        payload: &[u8],
        to: SocketAddr,
    ) -> Sent {
        let (source, destination) = (canonical(socket.local().ip()), canonical(to.ip()));
        let packet = packet::ip_header(destination) + UDP_HEADER + payload.len();
        let way = self.paths.find(unspecified_as(source, destination), destination);
        let path = match way {
            Way::Lane { path, mtu } if packet <= mtu as usize => path,
            _ => {
                self.counters.udp_by_kernel += 1;
                return Sent::ByKernel;
            }
        };
        let ports = (socket.local().port(), to.port());
        let sent = transmit.send_with(path.frame(UDP_HEADER + payload.len()), |frame| {
            packet::write_udp(path.write(frame, UDP), &path, ports, payload);
        });
        self.counters.udp_sent += u64::from(sent);
        if sent { Sent::Sent } else { Sent::Full }
    }
}

/// The unspecified address of the family of `destination` in place of that of another family: a socket bound to `[::]`
/// also sends over IPv4.
fn unspecified_as(source: IpAddr, destination: IpAddr) -> IpAddr {
    match (source.is_unspecified(), destination) {
        (true, IpAddr::V4(_)) => IpAddr::from([0; 4]),
        _ => source,
    }
}
