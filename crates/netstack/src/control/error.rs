//! Why the control plane did not start.

use std::io;

/// An error of [`Control::start`](super::Control::start).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The namespace has no interface of this name.
    #[error("there is no interface {interface}; this network namespace has {existing}")]
    NoInterface {
        /// The name that was asked for.
        interface: String,
        /// The names of the interfaces that exist, separated by commas.
        existing: String,
    },
    /// Frames of this interface cannot be sent and received by AF_XDP alone.
    #[error("{interface} is {kind}, which is not supported; {advice}")]
    Unsupported {
        /// The name that was asked for.
        interface: String,
        /// What it is, with an article: "a bridge".
        kind: String,
        /// The interfaces to use instead, or why there is none.
        advice: String,
    },
    /// The kernel refused a request over netlink.
    #[error("cannot {action} of {interface} over netlink: {source}")]
    Netlink {
        /// The name that was asked for.
        interface: String,
        /// What was to be done, "read the routes" for example.
        action: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The thread could not be started.
    #[error("cannot start the control thread of {interface}: {source}")]
    Thread {
        /// The name that was asked for.
        interface: String,
        /// The reason: usually a limit on threads.
        source: io::Error,
    },
}
