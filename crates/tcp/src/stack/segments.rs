//! Segments and reports that come in.

use super::opening::{Arrived, is_unicast};
use super::{IcmpError, Stack};
use crate::address::Tuple;
use crate::connection::Context;
use crate::error::Error;
use crate::flows::Target;
use crate::half_open::Bare;
use crate::output::Output;
use crate::seq::Seq;
use crate::state::State;
use crate::time_wait::Verdict;
use crate::wire::{Flags, OutgoingOptions, parse};
use core::net::{IpAddr, SocketAddr};
use heddle_core::Ns;

impl Stack {
    /// Takes one segment, TCP header and payload, of a packet from `source` to `destination`. The caller has verified
    /// the checksum ([`checksum::verify`](crate::checksum::verify)) and that the packet is for this machine. `link_mtu`
    /// is what the link takes, IP header included: it limits the MSS that is offered.
    ///
    /// Answers leave by `out` before this returns.
    pub fn receive(
        &mut self,
        now: Ns,
        source: IpAddr,
        destination: IpAddr,
        segment: &[u8],
        link_mtu: u16,
        out: &mut impl Output,
    ) {
        self.counters.segments_in += 1;
        let Ok((header, payload)) = parse(segment) else {
            self.counters.bad_segments += 1;
            return;
        };
        let (local_port, remote_port) = (header.destination_port, header.source_port);
        let tuple =
            Tuple { local: destination.into(), remote: source.into(), local_port, remote_port };
        let hash = self.secret.flow(&tuple);
        match self.find(hash, &tuple) {
            Some(Target::Connection(index)) => {
                self.with(index, now, |connection, cx| {
                    connection.receive(&header, payload, cx, out)
                });
            }
            other => {
                let arrived = Arrived { now, tuple, hash, header: &header, payload, mtu: link_mtu };
                self.receive_elsewhere(other, &arrived, out);
            }
        }
    }

    fn receive_elsewhere(
        &mut self,
        target: Option<Target>,
        segment: &Arrived<'_>,
        out: &mut impl Output,
    ) {
        match target {
            Some(Target::HalfOpen(index)) => self.receive_half_open(index, segment, out),
            Some(Target::TimeWait(index)) => self.receive_time_wait(index, segment, out),
            _ => self.receive_unknown(segment, None, out),
        }
    }

    /// A segment of no connection (RFC 9293, sections 3.10.7.1 and 3.10.7.2). `floor` is for what replaces a connection
    /// in TIME_WAIT.
    fn receive_unknown(
        &mut self,
        segment: &Arrived<'_>,
        floor: Option<Seq>,
        out: &mut impl Output,
    ) {
        let flags = segment.header.flags;
        let is_answerable =
            is_unicast(segment.tuple.remote.to_ip()) && is_unicast(segment.tuple.local.to_ip());
        if flags.contains(Flags::RST) || !is_answerable {
            return;
        }
        match self.listener_for(&segment.tuple) {
            Some(listener) if flags.contains(Flags::ACK) => {
                if flags.contains(Flags::SYN) || !self.receive_cookie(listener, segment, out) {
                    self.send_reset(segment, out);
                }
            }
            // Nonsense that is often sent to find out about a system: both SYN and FIN.
            Some(_) if flags.contains(Flags::SYN.with(Flags::FIN)) => {
                self.counters.bad_segments += 1
            }
            Some(listener) if flags.contains(Flags::SYN) => {
                self.receive_syn(listener, segment, floor, out)
            }
            // Neither SYN, ACK nor RST: nothing that anyone sends.
            Some(_) => self.counters.bad_segments += 1,
            None => self.send_reset(segment, out),
        }
    }

    /// Resets what `segment` is of (RFC 9293, section 3.5.2), within limits.
    pub(super) fn send_reset(&mut self, segment: &Arrived<'_>, out: &mut impl Output) {
        let header = segment.header;
        if header.is(Flags::RST) {
            return;
        }
        if !self.resets.take(segment.now, self.config.resets) {
            self.counters.reset_limits += 1;
            return;
        }
        self.counters.resets_out += 1;
        let (seq, ack, flags) = if header.is(Flags::ACK) {
            (header.ack, Seq(0), Flags::RST)
        } else {
            (Seq(0), header.seq + header.length(segment.payload), Flags::RST.with(Flags::ACK))
        };
        let reset = Bare {
            tuple: segment.tuple,
            seq,
            ack,
            flags,
            window: 0,
            options: OutgoingOptions::default(),
        };
        self.send_bare(&reset, out);
    }

    fn receive_time_wait(&mut self, index: u32, segment: &Arrived<'_>, out: &mut impl Output) {
        let Some(record) = self.time_waits.get_mut(index) else { return };
        let verdict = record.receive(segment.header, segment.payload);
        match verdict {
            Verdict::Ignore => return,
            Verdict::Reuse if self.listening.is_empty() => return,
            Verdict::Reuse => {
                // Beyond all that the old connection may have had in flight (RFC 6191, section 2).
                let floor = record.nxt + 0x1_0001;
                self.counters.time_wait_reuses += 1;
                self.forget_time_wait(index);
                return self.receive_unknown(segment, Some(floor), out);
            }
            Verdict::Restart => record.restart(segment.now + self.config.time_wait),
            Verdict::Acknowledge => {}
        }
        if !self.answers.take(segment.now, self.config.resets) {
            self.counters.challenge_limits += 1;
            return;
        }
        let answer =
            record.acknowledgement(self.secret.timestamp_offset(&segment.tuple), segment.now);
        self.send_bare(&answer, out);
    }

    /// Takes a report of ICMP about a segment with the number `sequence` from `local` to `remote`. It is believed only
    /// if that segment may be in flight (RFC 5927, section 4.1).
    pub fn icmp_error(
        &mut self,
        now: Ns,
        local: SocketAddr,
        remote: SocketAddr,
        sequence: u32,
        error: IcmpError,
        out: &mut impl Output,
    ) {
        let tuple = Tuple::new(local, remote);
        let hash = self.secret.flow(&tuple);
        let is_valid = match self.find(hash, &tuple) {
            Some(Target::Connection(index)) => {
                let take = |c: &mut crate::connection::Connection, cx: &mut Context<'_>| {
                    c.icmp_error(Seq(sequence), error, cx, out)
                };
                self.with(index, now, take).unwrap_or(false)
            }
            _ => false,
        };
        match is_valid {
            true => self.counters.icmp_valid += 1,
            false => self.counters.icmp_ignored += 1,
        }
    }
}

impl crate::connection::Connection {
    /// Returns whether the report was believed.
    fn icmp_error(
        &mut self,
        seq: Seq,
        error: IcmpError,
        cx: &mut Context<'_>,
        out: &mut impl Output,
    ) -> bool {
        let is_in_flight =
            self.send.una != self.send.nxt && seq.is_between(self.send.una, self.send.nxt - 1);
        if !is_in_flight {
            return false;
        }
        match error {
            IcmpError::PacketTooBig { mtu } => self.packet_too_big(mtu, cx, out),
            IcmpError::Unreachable { is_hard } => {
                if is_hard && matches!(self.state, State::SynSent | State::SynReceived) {
                    cx.counters.failed_opens += 1;
                    self.end(Some(Error::Unreachable), cx);
                }
            }
        }
        true
    }
}
