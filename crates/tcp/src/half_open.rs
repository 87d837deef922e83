//! Connections whose handshake the other end began and has not finished.

use crate::address::Tuple;
use crate::checksum::{Sum, TCP};
use crate::config::Config;
use crate::connection::{Agreed, default_mss, send_header, timestamp};
use crate::output::{Flow, Output};
use crate::seq::Seq;
use crate::wire::{Flags, Header, Outgoing, OutgoingOptions, Timestamps};
use heddle_core::Ns;

/// What is remembered of a SYN: no connection exists yet.
#[derive(Debug)]
pub struct HalfOpen {
    /// When the first SYN-ACK was sent.
    pub since: Ns,
    pub tuple: Tuple,
    pub listener: u32,
    pub iss: Seq,
    pub irs: Seq,
    /// The other end's timestamp, if it has any.
    pub timestamp: Option<u32>,
    pub window: u16,
    pub mss: u16,
    /// The MTU of the link.
    pub mtu: u16,
    pub window_scale: Option<u8>,
    pub sack: bool,
    /// SYN-ACKs sent again.
    pub retries: u8,
}

/// The fields of a segment that is no connection's.
pub struct Bare {
    pub tuple: Tuple,
    pub seq: Seq,
    pub ack: Seq,
    pub flags: Flags,
    pub window: u16,
    pub options: OutgoingOptions,
}

impl Bare {
    /// Sends the segment; returns false if the output has no room.
    pub fn send(&self, out: &mut impl Output) -> bool {
        let tuple = &self.tuple;
        let header = Outgoing {
            source_port: tuple.local_port,
            destination_port: tuple.remote_port,
            seq: self.seq,
            ack: self.ack,
            flags: self.flags,
            window: self.window,
            options: self.options,
        };
        let sum =
            Sum::pseudo_header(tuple.local.to_ip(), tuple.remote.to_ip(), TCP, header.length());
        send_header(&header, sum, Flow::new(tuple, None), out)
    }
}

impl HalfOpen {
    /// Takes note of a SYN.
    pub fn new(
        tuple: Tuple,
        listener: u32,
        iss: Seq,
        header: &Header,
        mtu: u16,
        now: Ns,
        config: &Config,
    ) -> HalfOpen {
        let options = &header.options;
        HalfOpen {
            since: now,
            tuple,
            listener,
            iss,
            irs: header.seq,
            timestamp: options.timestamps.filter(|_| config.timestamps).map(|t| t.value),
            window: header.window,
            mss: options.mss.unwrap_or_else(|| default_mss(&tuple)),
            mtu,
            window_scale: options.window_scale,
            sack: options.sack_permitted && config.sack,
            retries: 0,
        }
    }

    /// The SYN-ACK, with the timestamp `value` if both ends use them.
    pub fn syn_ack(&self, value: u32, config: &Config) -> Bare {
        let options = OutgoingOptions {
            mss: Some(self.mtu.saturating_sub(self.tuple.header_length())),
            window_scale: self.window_scale.map(|_| config.window_scale()),
            sack_permitted: self.sack,
            timestamps: self.timestamp.map(|echo| Timestamps { value, echo }),
            ..OutgoingOptions::default()
        };
        let window = config.receive_buffer.min(u32::from(u16::MAX)) as u16;
        let flags = Flags::SYN.with(Flags::ACK);
        Bare { tuple: self.tuple, seq: self.iss, ack: self.irs + 1, flags, window, options }
    }

    /// An acknowledgement of what is expected, for segments that are not.
    pub fn acknowledgement(&self, offset: u32, now: Ns, config: &Config) -> Bare {
        let value = timestamp(now, offset);
        let timestamps = self.timestamp.map(|echo| Timestamps { value, echo });
        let options = OutgoingOptions { timestamps, ..OutgoingOptions::default() };
        let window = config.receive_buffer.min(u32::from(u16::MAX)) as u16;
        Bare {
            tuple: self.tuple,
            seq: self.iss + 1,
            ack: self.irs + 1,
            flags: Flags::ACK,
            window,
            options,
        }
    }

    /// What both ends agreed on.
    pub fn agreed(&self, config: &Config) -> Agreed {
        Agreed {
            iss: self.iss,
            irs: self.irs,
            window: self.window,
            send_shift: self.window_scale.unwrap_or(0),
            receive_shift: self.window_scale.map_or(0, |_| config.window_scale()),
            has_scale: self.window_scale.is_some(),
            mss: self.mss,
            sack: self.sack,
            timestamp: self.timestamp,
        }
    }
}
