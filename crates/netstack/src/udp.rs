//! UDP sockets: what lanes deliver, until a task receives it.
//!
//! A socket is known to every lane, because the steering policy decides for each datagram which lane gets it. Its queue
//! is bounded in bytes, as a kernel socket's is (`SO_RCVBUF`), and what does not fit is dropped and counted.

use crate::woken::{Ready, Token, Tokens, Woken};
use heddle_sync::SpinCell;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes of datagrams that wait in a socket, with their addresses, at most: Linux's default (`net.core.rmem_default`).
const QUEUE: usize = 212_992;

/// Bytes that a record takes beside its payload: length, port, family and address.
const HEADER: usize = 2 + 2 + 1 + 16;

/// A UDP socket as lanes see it.
#[derive(Debug)]
pub struct UdpSocket {
    local: SocketAddr,
    tokens: Tokens,
    queue: SpinCell<Queue>,
    /// Datagrams of others than the peer are dropped, if there is one.
    peer: SpinCell<Option<SocketAddr>>,
    has_peer: AtomicBool,
    /// An ICMP error that the connected peer's host sent; taken by the next operation.
    refused: AtomicBool,
    received: AtomicU64,
    dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct Queue {
    bytes: VecDeque<u8>,
}

impl UdpSocket {
    /// Returns a socket bound to `local`, whose readiness is reported with `token`.
    #[must_use]
    pub fn new(local: SocketAddr, token: Token) -> UdpSocket {
        UdpSocket {
            local,
            tokens: Tokens::new(token),
            queue: SpinCell::default(),
            peer: SpinCell::default(),
            has_peer: AtomicBool::new(false),
            refused: AtomicBool::new(false),
            received: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        }
    }

    /// Returns the address to which it is bound.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Reports its readiness with `token` as well.
    pub fn add_token(&self, token: Token) {
        self.tokens.add(token);
    }

    /// Reports its readiness with `token` no more.
    pub fn remove_token(&self, token: Token) {
        self.tokens.remove(token);
    }

    /// Adds its handles to what is reported.
    pub(crate) fn wake(&self, ready: Ready, woken: &mut Woken) {
        self.tokens.wake(ready, woken);
    }

    /// Returns the peer to which it is connected.
    #[must_use]
    pub fn peer(&self) -> Option<SocketAddr> {
        if self.has_peer.load(Ordering::Acquire) { *self.peer.lock() } else { None }
    }

    /// Connects it: it receives from `peer` alone. What others sent before that is dropped.
    pub fn connect(&self, peer: SocketAddr) {
        *self.peer.lock() = Some(peer);
        self.has_peer.store(true, Ordering::Release);
        self.queue.lock().bytes.clear();
    }

    /// Returns whether it takes datagrams to `destination` (the port is right).
    #[must_use]
    pub fn is_bound_to(&self, destination: IpAddr) -> bool {
        match self.local.ip() {
            IpAddr::V4(own) => {
                destination.is_ipv4() && (own.is_unspecified() || own == destination)
            }
            // Such a socket takes both families, as the kernel's does unless IPV6_V6ONLY is set.
            IpAddr::V6(own) => own.is_unspecified() || canonical(IpAddr::V6(own)) == destination,
        }
    }

    /// Returns how specific its address is, to choose among sockets with one port.
    pub(crate) fn is_wildcard(&self) -> bool {
        self.local.ip().is_unspecified()
    }

    /// Queues a datagram from `source`. Returns false if it was dropped.
    pub(crate) fn deliver(&self, source: SocketAddr, payload: &[u8]) -> bool {
        let is_wanted = self.peer().is_none_or(|peer| same(peer, source));
        let is_queued = is_wanted && self.queue.lock().push(source, payload);
        self.received.fetch_add(u64::from(is_queued), Ordering::Relaxed);
        self.dropped.fetch_add(u64::from(is_wanted && !is_queued), Ordering::Relaxed);
        is_queued
    }

    /// Takes a datagram, or looks at it (`peek`). Returns how many bytes `buf` has got, and the sender in the form that
    /// the socket's family has.
    pub fn receive(&self, buf: &mut [u8], peek: bool) -> Option<(usize, SocketAddr)> {
        let (length, source) = self.queue.lock().take(buf, peek)?;
        Some((length, as_seen_by(self.local, source)))
    }

    /// The peer's host says that nothing listens there.
    pub(crate) fn refuse(&self, remote: SocketAddr) -> bool {
        let concerns = self.peer().is_some_and(|peer| same(peer, remote));
        self.refused.fetch_or(concerns, Ordering::Release);
        concerns
    }

    /// Returns whether the peer's host has refused a datagram since the last call.
    pub fn take_refusal(&self) -> bool {
        self.refused.load(Ordering::Relaxed) && self.refused.swap(false, Ordering::Acquire)
    }

    /// Returns how many datagrams were queued, and how many dropped for lack of room.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        (self.received.load(Ordering::Relaxed), self.dropped.load(Ordering::Relaxed))
    }

    /// Returns the bytes that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.lock().bytes.len()
    }
}

impl Queue {
    fn push(&mut self, source: SocketAddr, payload: &[u8]) -> bool {
        if self.bytes.len() + HEADER + payload.len() > QUEUE {
            return false;
        }
        let mut header = [0; HEADER];
        header[..2].copy_from_slice(&(payload.len() as u16).to_ne_bytes());
        header[2..4].copy_from_slice(&source.port().to_ne_bytes());
        match source.ip() {
            IpAddr::V4(v4) => header[5..9].copy_from_slice(&v4.octets()),
            IpAddr::V6(v6) => {
                header[4] = 1;
                header[5..].copy_from_slice(&v6.octets());
            }
        }
        self.bytes.extend(&header);
        self.bytes.extend(payload);
        true
    }

    fn take(&mut self, buf: &mut [u8], peek: bool) -> Option<(usize, SocketAddr)> {
        if self.bytes.is_empty() {
            return None;
        }
        let mut header = [0; HEADER];
        self.copy(0, &mut header);
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let port = u16::from_ne_bytes([header[2], header[3]]);
        let copied = length.min(buf.len());
        self.copy(HEADER, &mut buf[..copied]);
        if !peek {
            self.bytes.drain(..HEADER + length);
        }
        let mut address = [0; 16];
        address.copy_from_slice(&header[5..]);
        let ip = match header[4] {
            0 => IpAddr::from([address[0], address[1], address[2], address[3]]),
            _ => IpAddr::from(address),
        };
        Some((copied, SocketAddr::new(ip, port)))
    }

    /// Copies the bytes from `at` on.
    fn copy(&self, at: usize, to: &mut [u8]) {
        let (front, back) = self.bytes.as_slices();
        let in_front = front.len().saturating_sub(at).min(to.len());
        if in_front > 0 {
            to[..in_front].copy_from_slice(&front[at..at + in_front]);
        }
        let rest = to.len() - in_front;
        let from = (at + in_front) - front.len().min(at + in_front);
        to[in_front..].copy_from_slice(&back[from..from + rest]);
    }
}

/// Returns an IPv4-mapped address as the IPv4 address that it stands for.
#[must_use]
pub fn canonical(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}

fn same(one: SocketAddr, other: SocketAddr) -> bool {
    one.port() == other.port() && canonical(one.ip()) == canonical(other.ip())
}

/// Returns `remote` as a socket bound to `local` shows it: an IPv6 socket shows IPv4 addresses as mapped.
#[must_use]
pub fn as_seen_by(local: SocketAddr, remote: SocketAddr) -> SocketAddr {
    match (local, remote) {
        (SocketAddr::V6(_), SocketAddr::V4(v4)) => {
            let mapped: Ipv6Addr = v4.ip().to_ipv6_mapped();
            SocketAddrV6::new(mapped, v4.port(), 0, 0).into()
        }
        _ => remote,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn socket(local: &str) -> UdpSocket {
        UdpSocket::new(address(local), Token(0))
    }

    proptest! {
        #[test]
        fn datagrams_are_received_in_order_and_whole(
            steps in proptest::collection::vec((any::<bool>(), 0..1500_usize), 1..200),
        ) {
            let socket = socket("0.0.0.0:9");
            let (mut sent, mut buf) = (VecDeque::new(), [0; 2048]);
            for (number, (sends, length)) in steps.into_iter().enumerate() {
                if sends {
                    let payload = vec![number as u8; length];
                    let source = SocketAddr::from(([10, 0, 0, 1], number as u16));
                    if socket.deliver(source, &payload) {
                        sent.push_back((source, payload));
                    }
                    continue;
                }
                let peeked = socket.receive(&mut buf, true);
                prop_assert_eq!(peeked, socket.receive(&mut buf, false));
                let received = peeked.map(|(length, source)| (source, buf[..length].to_vec()));
                prop_assert_eq!(received, sent.pop_front());
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_dropped_and_counted() {
        let socket = socket("0.0.0.0:9");
        let mut queued = 0;
        while socket.deliver(address("10.0.0.1:1"), &[0; 1000]) {
            queued += 1;
        }
        assert_eq!(queued, QUEUE / (HEADER + 1000));
        assert_eq!(socket.counts(), (queued as u64, 1));
        let mut short = [0; 10];
        assert_eq!(socket.receive(&mut short, false), Some((10, address("10.0.0.1:1"))));
        assert!(
            socket.deliver(address("10.0.0.1:1"), &[0; 1000]),
            "the rest of the datagram is gone too"
        );
    }

    #[test]
    fn a_connected_socket_hears_its_peer_alone() {
        let socket = socket("[::]:9");
        socket.deliver(address("10.0.0.1:1"), b"before");
        socket.connect(address("[::ffff:10.0.0.1]:1"));
        let mut buf = [0; 8];
        assert_eq!(socket.receive(&mut buf, false), None);
        assert!(
            !socket.deliver(address("10.0.0.2:1"), b"other")
                && socket.deliver(address("10.0.0.1:1"), b"peer")
        );
        assert_eq!(socket.receive(&mut buf, false), Some((4, address("[::ffff:10.0.0.1]:1"))));
        assert_eq!(socket.counts().1, 0, "others' datagrams are no losses");
        assert!(!socket.refuse(address("10.0.0.2:1")) && socket.refuse(address("10.0.0.1:1")));
        assert!(socket.take_refusal() && !socket.take_refusal());
    }

    #[test]
    fn addresses_decide_which_datagrams_are_taken() {
        let takes = |local: &str, to: &str| socket(local).is_bound_to(to.parse().unwrap());
        assert!(takes("0.0.0.0:1", "10.0.0.1") && !takes("0.0.0.0:1", "fd00::1"));
        assert!(takes("[::]:1", "10.0.0.1") && takes("[::]:1", "fd00::1"));
        assert!(takes("10.0.0.1:1", "10.0.0.1") && !takes("10.0.0.1:1", "10.0.0.2"));
        assert!(takes("[fd00::1]:1", "fd00::1") && !takes("[fd00::1]:1", "fd00::2"));
    }
}
