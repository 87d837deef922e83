//! What a lane's lock guards.

use super::{BATCH, Counters, Ready, Sent, Snapshot, Woken};
use crate::icmp::{self, Problem};
use crate::packet::{self, ICMP, ICMP6, Packet, UDP, UDP_HEADER};
use crate::paths::{Paths, Routes, Way};
use crate::udp::{UdpSocket, canonical};
use crate::wire::{Losses, Transmit, Wire};
use heddle_core::Ns;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

pub(super) struct Inner<W> {
    wires: Box<[W]>,
    /// The queue to look at first: all get their turn.
    next: usize,
    host: Host,
}

/// The lane's sockets, apart from its wires: both are used at the same time.
struct Host {
    paths: Paths,
    udp: HashMap<u16, Vec<Arc<UdpSocket>>>,
    counters: Counters,
}

impl<W: Wire> Inner<W> {
    pub(super) fn new(wires: Box<[W]>, routes: Arc<dyn Routes>) -> Inner<W> {
        let host =
            Host { paths: Paths::new(routes), udp: HashMap::new(), counters: Counters::default() };
        Inner { wires, next: 0, host }
    }

    pub(super) fn poll(&mut self, _now: Ns, woken: &mut Woken) -> usize {
        let (count, mut frames) = (self.wires.len(), 0);
        for _ in 0..count {
            let wire = &mut self.wires[self.next];
            let host = &mut self.host;
            frames += wire.exchange(BATCH - frames, |frame, _transmit| host.take(frame, woken));
            if frames == BATCH {
                break;
            }
            self.next = (self.next + 1) % count;
        }
        frames
    }

    pub(super) fn add_udp(&mut self, socket: &Arc<UdpSocket>) {
        let sockets = self.host.udp.entry(socket.local().port()).or_default();
        // A socket with an address comes before one without.
        let at = if socket.is_wildcard() { sockets.len() } else { 0 };
        sockets.insert(at, Arc::clone(socket));
    }

    pub(super) fn remove_udp(&mut self, socket: &Arc<UdpSocket>) {
        let port = socket.local().port();
        if let Some(sockets) = self.host.udp.get_mut(&port) {
            sockets.retain(|other| !Arc::ptr_eq(other, socket));
            if sockets.is_empty() {
                self.host.udp.remove(&port);
            }
        }
    }

    pub(super) fn send_udp(&mut self, socket: &UdpSocket, payload: &[u8], to: SocketAddr) -> Sent {
        let (source, destination) = (canonical(socket.local().ip()), canonical(to.ip()));
        let packet = packet::ip_header(destination) + UDP_HEADER + payload.len();
        let host = &mut self.host;
        let Way::Lane { path, mtu } =
            host.paths.find(unspecified_as(source, destination), destination)
        else {
            host.counters.udp_by_kernel += 1;
            return Sent::ByKernel;
        };
        if packet > mtu as usize {
            host.counters.udp_by_kernel += 1;
            return Sent::ByKernel;
        }
        let ports = (socket.local().port(), to.port());
        let transmit = self.wires[0].transmit();
        let sent = transmit.send_with(path.frame(UDP_HEADER + payload.len()), |frame| {
            packet::write_udp(path.write(frame, UDP), &path, ports, payload);
        });
        host.counters.udp_sent += u64::from(sent);
        if sent { Sent::Sent } else { Sent::Full }
    }

    /// Makes queued frames visible. Returns the queues that need a kick, as bits.
    pub(super) fn publish(&mut self) -> u128 {
        let mut kicks = 0;
        for (queue, wire) in self.wires.iter_mut().enumerate() {
            kicks |= u128::from(wire.publish()) << queue;
        }
        kicks
    }

    pub(super) fn deadline(&self) -> Ns {
        Ns::MAX
    }

    pub(super) fn counters(&self) -> Snapshot {
        let mut losses = Losses::default();
        for wire in &self.wires {
            losses += wire.losses();
        }
        Snapshot { packets: self.host.counters, losses }
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

impl Host {
    /// Takes a frame that arrived.
    fn take(&mut self, frame: &[u8], woken: &mut Woken) {
        self.counters.frames += 1;
        let Some(packet) = packet::parse(frame) else {
            self.counters.malformed += 1;
            return;
        };
        match packet.protocol {
            UDP => self.take_udp(&packet, woken),
            ICMP | ICMP6 => self.take_icmp(&packet, woken),
            _ => self.counters.no_socket += 1,
        }
    }

    fn take_icmp(&mut self, packet: &Packet<'_>, woken: &mut Woken) {
        let Some(error) = icmp::parse(packet) else {
            self.counters.malformed += 1;
            return;
        };
        self.counters.icmp_errors += 1;
        if error.protocol == UDP && error.problem == Problem::Refused {
            let sockets = self.udp.get(&error.local.port());
            for socket in sockets.into_iter().flatten() {
                if socket.refuse(error.remote) {
                    socket.wake(Ready::BROKEN, woken);
                }
            }
        }
    }

    fn take_udp(&mut self, packet: &Packet<'_>, woken: &mut Woken) {
        let partial = self.paths.snapshot().is_veth();
        if !packet::is_checksum_right(packet, partial) {
            self.counters.bad_checksum += 1;
            return;
        }
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
}
