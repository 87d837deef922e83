//! Settings of a stack.

use heddle_core::Ns;

/// How the congestion window grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Congestion {
    /// RFC 9438.
    #[default]
    Cubic,
    /// RFC 5681 and RFC 6582.
    NewReno,
    /// BBR, version 1: window and rate follow the bandwidth and the shortest round trip that were measured, not the
    /// losses.
    Bbr,
}

impl Congestion {
    /// All of them.
    pub const ALL: [Congestion; 3] = [Congestion::Cubic, Congestion::NewReno, Congestion::Bbr];

    /// The name, as Linux has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Congestion::Cubic => "cubic",
            Congestion::NewReno => "reno",
            Congestion::Bbr => "bbr",
        }
    }

    /// Returns that with the name `name`.
    #[must_use]
    pub fn named(name: &str) -> Option<Congestion> {
        Congestion::ALL.into_iter().find(|congestion| congestion.name() == name)
    }
}

/// When an idle connection is probed (RFC 9293, section 3.8.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// Silence before the first probe.
    pub idle: Ns,
    /// Time between two probes.
    pub interval: Ns,
    /// Probes without an answer after which the connection has failed, from 1.
    pub probes: u8,
}

impl Default for KeepAlive {
    /// Linux's times: 2 h, 75 s, 9 probes.
    fn default() -> KeepAlive {
        KeepAlive { idle: Ns::from_secs(7200), interval: Ns::from_secs(75), probes: 9 }
    }
}

/// Settings of a stack. Times are as in Linux where nothing else is said.
#[derive(Clone, Debug)]
pub struct Config {
    /// The smallest retransmission timeout, from 1 ms: 200 ms. RFC 6298 says 1 s; in a data centre 5 ms is sensible.
    pub rto_min: Ns,
    /// The largest retransmission timeout: 120 s (RFC 6298, section 2.5: at least 60 s).
    pub rto_max: Ns,
    /// After so long without an acknowledgement a connection has failed: 924 s (RFC 9293, section 3.8.3, asks for
    /// at least 100 s).
    pub user_timeout: Ns,
    /// The same for a connection that the application has closed: 120 s. It also limits how long such a connection
    /// probes a closed window.
    pub orphan_timeout: Ns,
    /// The same for a handshake: 127 s.
    pub connect_timeout: Ns,
    /// The initial congestion window in segments, from 1: 10 (RFC 6928).
    pub initial_window: u8,
    /// Whether the congestion window starts again after silence for a timeout (RFC 5681, section 4.1).
    pub restart_after_idle: bool,
    /// The congestion control of new connections.
    pub congestion: Congestion,
    /// Whether SACK is offered and accepted (RFC 2018). Without it losses are repaired one a round trip.
    pub sack: bool,
    /// Whether timestamps are offered and accepted (RFC 7323).
    pub timestamps: bool,
    /// How long an acknowledgement may wait for data to go with: 40 ms (RFC 9293, section 3.8.6.3: below 500 ms).
    pub delayed_ack: Ns,
    /// Whether new connections delay small segments while data is unacknowledged (RFC 9293, section 3.7.4).
    pub nagle: bool,
    /// When new connections are probed; `None`, the default, is never.
    pub keep_alive: Option<KeepAlive>,
    /// The largest window offered, in bytes per connection, from 4 KiB to 1 GiB: 256 KiB.
    pub receive_buffer: u32,
    /// Bytes that `write` takes before they are acknowledged, per connection, from 4 KiB to 1 GiB: 256 KiB.
    pub send_buffer: u32,
    /// How long TIME_WAIT lasts: 60 s.
    pub time_wait: Ns,
    /// How long a closed connection waits in FIN_WAIT_2 for the other end: 60 s.
    pub fin_wait: Ns,
    /// Connections, those not accepted yet included: 65,536.
    pub max_connections: usize,
    /// Connections whose handshake is not over, as small records: 1,024. Beyond it the stack answers with cookies.
    pub max_half_open: usize,
    /// Whether cookies are used; without them SYNs beyond `max_half_open` are dropped.
    pub syn_cookies: bool,
    /// How often a SYN-ACK is sent again: 5.
    pub syn_ack_retries: u8,
    /// Records of connections in TIME_WAIT: 65,536. Beyond it the oldest is dropped.
    pub max_time_wait: usize,
    /// Bytes of all send and receive buffers together: 1 GiB.
    pub max_buffered: usize,
    /// Bytes beyond a gap, per connection: 256 KiB, as the receive buffer.
    pub max_out_of_order: u32,
    /// Ranges beyond a gap, per connection, from 1: 32.
    pub max_ranges: u8,
    /// Challenge ACKs (RFC 5961, section 7) per connection and second: 10.
    pub challenge_acks: u8,
    /// Resets per second in answer to segments of no connection: 1,000.
    pub resets: u32,
    /// Whether retransmissions that time out again and again make segments smaller, as if something on the path dropped
    /// large ones silently (RFC 4821, section 7.7).
    pub black_hole_detection: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            rto_min: Ns::from_ms(200),
            rto_max: Ns::from_secs(120),
            user_timeout: Ns::from_secs(924),
            orphan_timeout: Ns::from_secs(120),
            connect_timeout: Ns::from_secs(127),
            initial_window: 10,
            restart_after_idle: true,
            congestion: Congestion::Cubic,
            sack: true,
            timestamps: true,
            delayed_ack: Ns::from_ms(40),
            nagle: true,
            keep_alive: None,
            receive_buffer: 256 << 10,
            send_buffer: 256 << 10,
            time_wait: Ns::from_secs(60),
            fin_wait: Ns::from_secs(60),
            max_connections: 1 << 16,
            max_half_open: 1 << 10,
            syn_cookies: true,
            syn_ack_retries: 5,
            max_time_wait: 1 << 16,
            max_buffered: 1 << 30,
            max_out_of_order: 256 << 10,
            max_ranges: 32,
            challenge_acks: 10,
            resets: 1_000,
            black_hole_detection: true,
        }
    }
}

impl Config {
    /// Brings each setting into its range.
    pub(crate) fn clamped(mut self) -> Config {
        const BUFFER: (u32, u32) = (4 << 10, 1 << 30);
        self.rto_min = self.rto_min.max(Ns::from_ms(1));
        self.rto_max = self.rto_max.max(self.rto_min);
        self.initial_window = self.initial_window.max(1);
        self.receive_buffer = self.receive_buffer.clamp(BUFFER.0, BUFFER.1);
        self.send_buffer = self.send_buffer.clamp(BUFFER.0, BUFFER.1);
        self.max_ranges = self.max_ranges.max(1);
        // Records of flows have 30 bits for an index.
        let most = |limit: usize| limit.min((1 << 30) - 1);
        self.max_connections = most(self.max_connections);
        self.max_half_open = most(self.max_half_open);
        self.max_time_wait = most(self.max_time_wait);
        self
    }

    /// By how many bits windows must be shifted for the whole receive buffer to be offered (RFC 7323, section 2.3).
    pub(crate) fn window_scale(&self) -> u8 {
        let bits = u32::BITS - self.receive_buffer.leading_zeros();
        bits.saturating_sub(16).min(14) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scaled_window_covers_the_buffer() {
        for (buffer, scale) in
            [(4 << 10, 0), (65_535, 0), (65_536, 1), (256 << 10, 3), (1 << 30, 14)]
        {
            let config = Config { receive_buffer: buffer, ..Config::default() };
            assert_eq!(config.window_scale(), scale, "{buffer}");
        }
    }

    #[test]
    fn settings_out_of_range_are_brought_into_it() {
        let config =
            Config { rto_min: Ns::ZERO, rto_max: Ns::ZERO, receive_buffer: 0, ..Config::default() };
        let config = config.clamped();
        assert_eq!((config.rto_min, config.rto_max), (Ns::from_ms(1), Ns::from_ms(1)));
        assert_eq!(config.receive_buffer, 4 << 10);
    }
}
