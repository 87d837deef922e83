//! Connections that begin: SYNs to listeners, cookies, and `connect`.

use super::Stack;
use crate::address::Tuple;
use crate::connection::{Agreed, Connection, Context, timestamp};
use crate::cookie::{self, CookieOptions};
use crate::error::ConnectError;
use crate::flows::Target;
use crate::half_open::{Bare, HalfOpen};
use crate::id::ConnectionId;
use crate::output::Output;
use crate::seq::Seq;
use crate::wire::{Flags, Header};
use core::net::{IpAddr, SocketAddr};
use heddle_core::Ns;

/// A segment that has no connection yet, and where it came from.
pub(super) struct Arrived<'a> {
    pub now: Ns,
    pub tuple: Tuple,
    pub hash: u32,
    pub header: &'a Header,
    pub payload: &'a [u8],
    pub mtu: u16,
}

impl Stack {
    /// Begins a connection from `local` to `remote` over a path that takes packets of `mtu` bytes, IP header included.
    /// The caller chooses the local port, and another one if it is taken.
    ///
    /// An event reports [`is_connected`](crate::Ready::is_connected) or [`is_failed`](crate::Ready::is_failed).
    ///
    /// # Errors
    /// [`ConnectError`] says why no connection was begun.
    pub fn connect(
        &mut self,
        now: Ns,
        local: SocketAddr,
        remote: SocketAddr,
        mtu: u16,
        out: &mut impl Output,
    ) -> Result<ConnectionId, ConnectError> {
        let is_usable = |addr: SocketAddr| addr.port() != 0 && is_unicast(addr.ip());
        if !is_usable(local)
            || !is_usable(remote)
            || local.is_ipv4() != remote.is_ipv4()
            || local == remote
        {
            return Err(ConnectError::InvalidAddress);
        }
        let tuple = Tuple::new(local, remote);
        let hash = self.secret.flow(&tuple);
        if self.find(hash, &tuple).is_some() {
            return Err(ConnectError::AddressInUse);
        }
        if self.connections.len() >= self.config.max_connections {
            self.counters.connection_overflows += 1;
            return Err(ConnectError::TooManyConnections);
        }
        self.counters.active_opens += 1;
        let iss = Seq(self.secret.initial_sequence(&tuple, now));
        let offset = self.secret.timestamp_offset(&tuple);
        let id = self.add(hash, now, |id, cx| Connection::new(id, tuple, iss, mtu, offset, cx));
        self.with(id.index, now, |connection, cx| connection.open(cx, out));
        Ok(id)
    }

    /// Stores the connection that `make` returns, and leads its segments to it.
    fn add(
        &mut self,
        hash: u32,
        now: Ns,
        make: impl FnOnce(ConnectionId, &Context<'_>) -> Connection,
    ) -> ConnectionId {
        let index = self.connections.next_index();
        let id = ConnectionId { index, generation: self.connections.generation(index) };
        let Stack { config, pool, counters, .. } = self;
        let mut connection = make(id, &Context { now, config, pool, counters, gathers: false });
        connection.is_registered = true;
        let stored = self.connections.insert(connection);
        debug_assert_eq!(stored, index, "the slab gives the index that it announced");
        self.flows.insert(hash, Target::Connection(index));
        id
    }

    /// Answers a SYN to the listener `listener`. `floor` is a number that ours must be beyond.
    pub(super) fn receive_syn(
        &mut self,
        listener: u32,
        syn: &Arrived<'_>,
        floor: Option<Seq>,
        out: &mut impl Output,
    ) {
        if self.is_backlog_full(listener) {
            self.counters.backlog_overflows += 1;
            return;
        }
        if self.half_open.len() >= self.config.max_half_open {
            return self.answer_overflow(syn, out);
        }
        let iss = Seq(self.secret.initial_sequence(&syn.tuple, syn.now));
        let iss = floor.map_or(iss, |floor| iss.max(floor));
        let half =
            HalfOpen::new(syn.tuple, listener, iss, syn.header, syn.mtu, syn.now, &self.config);
        let index = self.half_open.insert(half);
        self.flows.insert(syn.hash, Target::HalfOpen(index));
        self.send_syn_ack(index, syn.now, out);
        self.arm_half_open(index, syn.now);
    }

    pub(super) fn send_syn_ack(&mut self, index: u32, now: Ns, out: &mut impl Output) {
        let Some(half) = self.half_open.get(index) else { return };
        let value = timestamp(now, self.secret.timestamp_offset(&half.tuple));
        let segment = half.syn_ack(value, &self.config);
        self.send_bare(&segment, out);
    }

    /// Sends a segment of no connection; if the output has no room, the other end will ask again.
    pub(super) fn send_bare(&mut self, segment: &Bare, out: &mut impl Output) {
        if segment.send(out) {
            self.counters.segments_out += 1;
        } else {
            self.counters.output_drops += 1;
        }
    }

    /// Answers a SYN for which there is no record: with a cookie.
    fn answer_overflow(&mut self, syn: &Arrived<'_>, out: &mut impl Output) {
        if !self.config.syn_cookies {
            self.counters.half_open_overflows += 1;
            return;
        }
        self.counters.cookies_sent += 1;
        let header = syn.header;
        let mss = header.options.mss.unwrap_or_else(|| crate::connection::default_mss(&syn.tuple));
        let iss = cookie::make(&self.secret, &syn.tuple, header.seq, mss, syn.now);
        let mut half = HalfOpen::new(syn.tuple, 0, iss, header, syn.mtu, syn.now, &self.config);
        if half.timestamp.is_none() {
            // Nothing comes back that could carry these.
            (half.window_scale, half.sack) = (None, false);
        }
        let options = CookieOptions { window_scale: half.window_scale, sack: half.sack };
        let value = options.encode((syn.now.0 / 1_000_000) as u32);
        let value = value.wrapping_add(self.secret.timestamp_offset(&syn.tuple));
        let segment = half.syn_ack(value, &self.config);
        self.send_bare(&segment, out);
    }

    /// An acknowledgement to a listener, without a record: whether it brings a cookie back. Then it becomes a
    /// connection.
    pub(super) fn receive_cookie(
        &mut self,
        listener: u32,
        ack: &Arrived<'_>,
        out: &mut impl Output,
    ) -> bool {
        let header = ack.header;
        let (irs, iss) = (header.seq - 1, header.ack - 1);
        if !self.config.syn_cookies || self.counters.cookies_sent == 0 {
            return false;
        }
        let Some(mss) = cookie::check(&self.secret, &ack.tuple, irs, iss, ack.now) else {
            self.counters.cookies_failed += 1;
            return false;
        };
        let offset = self.secret.timestamp_offset(&ack.tuple);
        let none = CookieOptions { window_scale: None, sack: false };
        let timestamps = header.options.timestamps.filter(|_| self.config.timestamps);
        let options =
            timestamps.map_or(none, |t| CookieOptions::decode(t.echo.wrapping_sub(offset)));
        let shift = options.window_scale.unwrap_or(0);
        let agreed = Agreed {
            iss,
            irs,
            window: header.window,
            send_shift: shift,
            receive_shift: options.window_scale.map_or(0, |_| self.config.window_scale()),
            has_scale: options.window_scale.is_some(),
            mss,
            sack: options.sack,
            timestamp: timestamps.map(|timestamps| timestamps.value),
        };
        if self.establish(listener, ack, &agreed, ack.mtu, None, out) {
            self.counters.cookies_valid += 1;
        }
        true
    }

    /// A segment for the half-open connection `index`.
    pub(super) fn receive_half_open(
        &mut self,
        index: u32,
        segment: &Arrived<'_>,
        out: &mut impl Output,
    ) {
        let Some(half) = self.half_open.get(index) else { return };
        let (header, now) = (segment.header, segment.now);
        let is_exact = header.seq == half.irs + 1;
        if header.is(Flags::RST) {
            if is_exact {
                self.counters.failed_opens += 1;
                self.forget_half_open(index);
            }
            return;
        }
        if header.is(Flags::SYN) {
            if header.seq == half.irs && !header.is(Flags::ACK) {
                return self.send_syn_ack(index, now, out);
            }
            return self.acknowledge_half_open(index, now, out);
        }
        if !header.is(Flags::ACK) {
            return;
        }
        if header.ack != half.iss + 1 {
            self.counters.bad_acks += 1;
            return self.send_reset(segment, out);
        }
        if header.seq - (half.irs + 1) > u32::from(u16::MAX)
            || self.has_old_timestamp(index, header)
        {
            return self.acknowledge_half_open(index, now, out);
        }
        self.finish_half_open(index, segment, out);
    }

    fn has_old_timestamp(&self, index: u32, header: &Header) -> bool {
        let old = self.half_open.get(index).and_then(|half| half.timestamp);
        let new = header.options.timestamps;
        old.zip(new).is_some_and(|(old, new)| Seq(new.value).is_before(Seq(old)))
    }

    /// A segment that is not expected is answered with what is, within limits.
    fn acknowledge_half_open(&mut self, index: u32, now: Ns, out: &mut impl Output) {
        let Some(half) = self.half_open.get(index) else { return };
        if !self.answers.take(now, self.config.resets) {
            self.counters.challenge_limits += 1;
            return;
        }
        self.counters.challenge_acks += 1;
        let segment =
            half.acknowledgement(self.secret.timestamp_offset(&half.tuple), now, &self.config);
        self.send_bare(&segment, out);
    }

    fn finish_half_open(&mut self, index: u32, ack: &Arrived<'_>, out: &mut impl Output) {
        let Some(half) = self.half_open.get(index) else { return };
        let (listener, agreed, mtu) = (half.listener, half.agreed(&self.config), half.mtu);
        let rtt = (half.retries == 0).then(|| ack.now - half.since);
        if self.is_backlog_full(listener) {
            // The record stays, and the SYN-ACK is sent again: there may be room by then.
            self.counters.backlog_overflows += 1;
            return;
        }
        self.forget_half_open(index);
        self.establish(listener, ack, &agreed, mtu, rtt, out);
    }

    /// Makes a connection that waits to be accepted. Returns false if there are too many.
    fn establish(
        &mut self,
        listener: u32,
        ack: &Arrived<'_>,
        agreed: &Agreed,
        mtu: u16,
        rtt: Option<Ns>,
        out: &mut impl Output,
    ) -> bool {
        if self.connections.len() >= self.config.max_connections {
            self.counters.connection_overflows += 1;
            self.send_reset(ack, out);
            return false;
        }
        if self.is_backlog_full(listener) {
            self.counters.backlog_overflows += 1;
            return false;
        }
        self.counters.passive_opens += 1;
        let (tuple, offset) = (ack.tuple, self.secret.timestamp_offset(&ack.tuple));
        let id = self.add(ack.hash, ack.now, |id, cx| {
            Connection::established(id, tuple, agreed, mtu, offset, cx)
        });
        self.with(id.index, ack.now, |connection, cx| {
            connection.is_in_backlog = true;
            connection.accepted(rtt);
            connection.receive(ack.header, ack.payload, cx, out);
        });
        self.push_ready(listener, id);
        true
    }
}

/// Whether an address names one machine.
pub(super) fn is_unicast(ip: IpAddr) -> bool {
    let is_broadcast = matches!(ip, IpAddr::V4(v4) if v4.is_broadcast());
    !ip.is_unspecified() && !ip.is_multicast() && !is_broadcast
}
