//! What happened, in numbers.

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// How often each thing happened since the stack was made.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// Names and values, for tables and exporters.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }

            /// Adds those of another stack.
            pub fn add(&mut self, other: &Counters) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counters! {
    /// Segments received.
    segments_in,
    /// Segments sent.
    segments_out,
    /// Payload bytes received in order.
    bytes_in,
    /// Payload bytes sent, retransmissions included.
    bytes_out,
    /// Segments with a malformed header.
    bad_segments,
    /// Connections opened by this end.
    active_opens,
    /// Connections opened by the other end.
    passive_opens,
    /// Handshakes that failed.
    failed_opens,
    /// Segments sent again, for whatever reason.
    retransmits,
    /// Of these in fast recovery (RFC 6675, RFC 8985).
    fast_retransmits,
    /// Of these after a timeout.
    timeout_retransmits,
    /// Tail loss probes (RFC 8985, section 7).
    tail_probes,
    /// Expired retransmission timers.
    timeouts,
    /// Timeouts found out to be spurious and undone (RFC 4015).
    spurious_timeouts,
    /// Times that fast recovery was entered.
    recoveries,
    /// Recoveries found out to be spurious and undone.
    spurious_recoveries,
    /// Probes of a closed window.
    window_probes,
    /// Keep-alive probes.
    keep_alives,
    /// Connections that failed because nothing was acknowledged in time.
    timed_out,
    /// SYN-ACKs sent again.
    syn_ack_retransmits,
    /// Cookies sent (RFC 4987, section 3.6).
    cookies_sent,
    /// Connections made of a cookie.
    cookies_valid,
    /// Acknowledgements to a listener without a valid cookie.
    cookies_failed,
    /// SYNs dropped: no room for half-open connections, and no cookies.
    half_open_overflows,
    /// Handshakes that ended while the listener's backlog was full: the acknowledgement is dropped.
    backlog_overflows,
    /// Connections refused at the limit of connections.
    connection_overflows,
    /// Records of TIME_WAIT dropped at their limit.
    time_wait_overflows,
    /// Connections that entered TIME_WAIT.
    time_waits,
    /// Connections in TIME_WAIT that a new SYN replaced (RFC 6191).
    time_wait_reuses,
    /// Segments dropped because the buffers of all connections were full.
    memory_drops,
    /// Segments, or ends of segments, beyond the window.
    window_drops,
    /// Segments beyond a gap that were dropped at the limit of bytes or ranges.
    out_of_order_drops,
    /// Segments that arrived beyond a gap.
    out_of_order,
    /// Segments without a new byte.
    duplicates,
    /// Segments dropped for their timestamp (RFC 7323, section 5).
    old_timestamps,
    /// Segments dropped for their acknowledgement number.
    bad_acks,
    /// Challenge ACKs sent (RFC 5961).
    challenge_acks,
    /// Challenge ACKs not sent, at their limit.
    challenge_limits,
    /// Resets sent.
    resets_out,
    /// Resets not sent, at their limit.
    reset_limits,
    /// Resets received that ended a connection.
    resets_in,
    /// Acknowledgements sent without data.
    pure_acks,
    /// Of these delayed until the timer expired.
    delayed_acks,
    /// D-SACKs received: the other end had the data already (RFC 2883).
    dsacks_in,
    /// Segments of connections that the output refused, and that will be sent later.
    output_full,
    /// Segments of no connection that the output refused.
    output_drops,
    /// Segments made smaller after a report of ICMP, or after timeouts.
    mtu_reductions,
    /// Reports of ICMP that were believed.
    icmp_valid,
    /// Reports of ICMP that were not (RFC 5927).
    icmp_ignored,
}
