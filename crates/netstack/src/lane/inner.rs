//! What a lane's lock guards: the wires, and the host behind them.

use super::connections::Segments;
use super::host::Host;
use super::unsent::Published;
use super::{Accepted, BATCH, FLUSH_PERIOD, Sent, Snapshot, Token, Woken};
use crate::capture::{Capture, Tap};
use crate::paths::Routes;
use crate::pcap::Direction;
use crate::tcp::TcpListener;
use crate::udp::UdpSocket;
use crate::wire::{FrameCounts, Losses, Transmit as _, Wire};
use heddle_core::Ns;
use heddle_tcp::{ConnectionId, ListenError, ListenerId, Stack};
use std::net::SocketAddr;
use std::sync::Arc;

pub(super) struct Inner<W> {
    wires: Box<[W]>,
    /// The queue to look at first: all get their turn.
    next: usize,
    /// The queue of frames that are no answers.
    home: usize,
    host: Host,
    capture: Option<Capture>,
}

impl<W: Wire> Inner<W> {
    pub(super) fn new(
        number: usize,
        wires: Box<[W]>,
        routes: Arc<dyn Routes>,
        stack: Stack,
    ) -> Inner<W> {
        let home = number % wires.len();
        Inner { wires, next: home, home, host: Host::new(number, routes, stack), capture: None }
    }

    pub(super) fn poll(&mut self, now: Ns, woken: &mut Woken) -> usize {
        let (count, mut frames) = (self.wires.len(), 0);
        // What these frames acknowledge makes room for large segments, if all of it is known.
        let gathers = self.wires[self.home].transmit().has_large();
        self.host.connections.stack.set_gathering(gathers);
        for _ in 0..count {
            let (host, capture) = (&mut self.host, self.capture.as_ref());
            let wire = &mut self.wires[self.next];
            frames += wire.exchange(BATCH - frames, |frame, transmit| {
                if let Some(capture) = capture {
                    capture.record(Direction::Received, frame);
                }
                host.take(now, frame, &mut Tap { transmit, capture }, woken);
            });
            if frames == BATCH {
                break;
            }
            self.next = (self.next + 1) % count;
        }
        self.with_stack(|stack, out| {
            stack.set_gathering(false);
            if stack.next_deadline().is_some_and(|deadline| deadline <= now) {
                stack.advance(now, out);
            }
            if stack.needs_flush() {
                stack.flush(now, out);
            }
        });
        self.host.connections.report(woken);
        frames
    }

    /// Runs `f` on the stack, with its output.
    pub(super) fn with_stack<R>(
        &mut self,
        f: impl FnOnce(&mut Stack, &mut Segments<'_, Tap<'_, W::Transmit>>) -> R,
    ) -> R {
        let Inner { wires, home, host, capture, .. } = self;
        host.with_stack(&mut tap(wires, *home, capture), None, f)
    }

    pub(super) fn set_capture(&mut self, capture: Capture) {
        self.capture = Some(capture);
    }

    /// Makes the lane keep segments of connections that it does not know, for [`super::Lane::take_strays`].
    pub(super) fn keep_strays(&mut self) {
        self.host.strays = Some(Vec::new());
    }

    pub(super) fn has_strays(&self) -> bool {
        self.host.strays.as_ref().is_some_and(|strays| !strays.is_empty())
    }

    pub(super) fn take_strays(&mut self) -> Vec<Box<[u8]>> {
        self.host.strays.as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub(super) fn take_stray(
        &mut self,
        now: Ns,
        frame: &[u8],
        anyway: bool,
    ) -> Option<(SocketAddr, SocketAddr)> {
        let Inner { wires, home, host, capture, .. } = self;
        host.take_stray(now, frame, anyway, &mut tap(wires, *home, capture))
    }

    pub(super) fn stack(&mut self) -> &mut Stack {
        &mut self.host.connections.stack
    }

    pub(super) fn listen(
        &mut self,
        listener: &Arc<TcpListener>,
        backlog: usize,
    ) -> Result<ListenerId, ListenError> {
        self.host.connections.listen(listener, backlog)
    }

    pub(super) fn close_listener(&mut self, now: Ns, id: ListenerId) {
        self.with_stack(|stack, out| stack.close_listener(id, now, out));
        self.host.connections.forget_listener(id);
    }

    pub(super) fn accept(&mut self, now: Ns, id: ListenerId) -> Option<Accepted> {
        self.host.connections.accept(now, id)
    }

    pub(super) fn set_token(&mut self, id: ConnectionId, token: Option<Token>) {
        self.host.connections.set_token(id, token);
    }

    pub(super) fn add_token(&mut self, id: ConnectionId, token: Token) {
        self.host.connections.add_token(id, token);
    }

    pub(super) fn add_udp(&mut self, socket: &Arc<UdpSocket>) {
        self.host.add_udp(socket);
    }

    pub(super) fn remove_udp(&mut self, socket: &Arc<UdpSocket>) {
        self.host.remove_udp(socket);
    }

    pub(super) fn send_udp(&mut self, socket: &UdpSocket, payload: &[u8], to: SocketAddr) -> Sent {
        let Inner { wires, home, host, capture, .. } = self;
        host.send_udp(&mut tap(wires, *home, capture), socket, payload, to)
    }

    /// Makes queued frames visible. Returns those of which their senders must be told.
    pub(super) fn publish(&mut self) -> Published {
        let mut published = Published::default();
        for (queue, wire) in self.wires.iter_mut().enumerate() {
            let frames = wire.publish();
            published.frames += frames;
            published.queues |= u128::from(frames != 0) << queue;
        }
        published
    }

    pub(super) fn has_events(&self) -> bool {
        self.host.connections.stack.has_events()
    }

    pub(super) fn deadline(&self, now: Ns) -> Ns {
        let stack = &self.host.connections.stack;
        let timer = stack.next_deadline().unwrap_or(Ns::MAX);
        if stack.needs_flush() { timer.min(now + FLUSH_PERIOD) } else { timer }
    }

    pub(super) fn frames(&self) -> FrameCounts {
        let mut all = FrameCounts::default();
        self.wires.iter().for_each(|wire| all += wire.frames());
        all
    }

    pub(super) fn counters(&self) -> Snapshot {
        let mut losses = Losses::default();
        for wire in &self.wires {
            losses += wire.losses();
        }
        Snapshot {
            packets: self.host.counters,
            losses,
            tcp: self.host.connections.stack.counters(),
        }
    }
}

/// Returns where frames that are no answers are put.
fn tap<'a, W: Wire>(
    wires: &'a mut [W],
    home: usize,
    capture: &'a Option<Capture>,
) -> Tap<'a, W::Transmit> {
    Tap { transmit: wires[home].transmit(), capture: capture.as_ref() }
}
