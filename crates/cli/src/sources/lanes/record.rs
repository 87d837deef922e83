//! The lines of an answer; `heddle_netstack::diag` writes them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A line.
#[derive(Deserialize)]
#[serde(tag = "is", rename_all = "lowercase")]
pub enum Record {
    Net(Network),
    Udp(Udp),
    Listener(Listener),
    Connection(Connection),
    Counters(Counters),
    /// The answer is whole.
    End,
    /// Of a later version.
    #[serde(other)]
    Unknown,
}

/// The network of a runtime.
#[derive(Clone, Deserialize, Serialize)]
pub struct Network {
    pub schema: u32,
    pub interface: String,
    pub up: bool,
    pub mtu: u32,
    pub lanes: usize,
    pub queues: u32,
    pub mode: String,
    pub policy: String,
    pub spin: String,
    /// Of TCP; empty if the process is of an earlier version.
    #[serde(default)]
    pub congestion: String,
}

/// A UDP socket, which all lanes have.
#[derive(Clone, Deserialize, Serialize)]
pub struct Udp {
    pub local: String,
    pub remote: Option<String>,
    /// Bytes.
    pub waiting: u64,
    pub received: u64,
    pub dropped: u64,
}

/// A TCP listener in one lane.
#[derive(Clone, Deserialize, Serialize)]
pub struct Listener {
    pub lane: usize,
    pub local: String,
    /// Connections.
    pub waiting: u64,
    pub backlog: u64,
}

/// A TCP connection.
#[derive(Clone, Deserialize, Serialize)]
pub struct Connection {
    pub lane: usize,
    /// As `ss` writes it.
    pub state: String,
    pub local: String,
    pub remote: String,
    pub recv_q: u64,
    pub send_q: u64,
    pub out_of_order: u64,
    pub unsent: u64,
    pub unacked: u64,
    pub retransmits: u64,
    pub backoff: u64,
    pub srtt_ns: u64,
    pub rttvar_ns: u64,
    pub min_rtt_ns: u64,
    pub rto_ns: u64,
    pub cwnd: u64,
    pub ssthresh: u64,
    pub mss: u64,
    pub send_window: u64,
    pub bytes_received: u64,
    pub bytes_sent: u64,
    pub sack: bool,
    pub timestamps: bool,
}

/// What was counted, by name.
#[derive(Clone, Deserialize, Serialize)]
pub struct Counters {
    /// `packets`, `losses` and `tcp` of a lane; `control` and `xdp` of the network.
    pub of: String,
    pub lane: Option<usize>,
    pub counts: BTreeMap<String, u64>,
}
