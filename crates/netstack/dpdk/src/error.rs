//! What can go wrong, and what to do.

use crate::shim::Code;

/// Why DPDK or a port of it cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// DPDK was initialised before, perhaps without success.
    #[error(
        "DPDK is initialised once in a process, and was before; share the `Eal` of the first call"
    )]
    Initialised,
    /// An argument contains a zero byte.
    #[error("{0:?} contains a zero byte, which DPDK cannot be given; remove it")]
    Text(String),
    /// DPDK does not start.
    #[error(
        "DPDK cannot be initialised with {arguments:?}: {code}; its log on stderr says more. It \
         needs root, and huge pages unless `Memory::Plain` is chosen"
    )]
    Init {
        /// What it was given.
        arguments: Vec<String>,
        /// Its reason.
        code: Code,
    },
    /// A device does not exist, is in use, or its driver refuses.
    #[error(
        "cannot attach the DPDK device {device:?}: {code}; its log on stderr says more. See `dpdk-devbind.py -s` for \
         cards, or name a virtual device such as \"net_tap0,iface=x\""
    )]
    Attach {
        /// As DPDK was given it.
        device: String,
        /// Its reason.
        code: Code,
    },
    /// A port cannot be configured or started.
    #[error(
        "cannot start the DPDK device {device:?} with {queues} queues of {descriptors} descriptors: {code}; try fewer"
    )]
    Open {
        /// As DPDK was given it.
        device: String,
        /// Queues in each direction.
        queues: u16,
        /// Descriptors for each queue.
        descriptors: u16,
        /// The driver's reason.
        code: Code,
    },
    /// A port does not answer.
    #[error("cannot read the {what} of a DPDK port: {code}")]
    Query {
        /// What was asked for.
        what: &'static str,
        /// The driver's reason.
        code: Code,
    },
    /// No more threads.
    #[error("cannot register this thread with DPDK: {0}; drop registrations of other threads")]
    Register(Code),
}
