//! What a deployment of lanes can be told, and why it can fail.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::str::FromStr;

use crate::hook::xdp::{AttachError, Mode};
use crate::policy::{FEW_EXECUTORS, LoadError};
use crate::request;

/// The maximum number of lanes.
pub const MAX_LANES: u32 = FEW_EXECUTORS;

/// How packets get to lanes.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many lanes there are, at most [`MAX_LANES`].
    pub lanes: u32,
    /// Which lane gets what: `hash`, `sita:scan=2`, or a file, as [`crate::client::policy_of`] reads it.
    pub policy: String,
    /// The sources whose packets reach claimed ports; others are dropped. Empty: all. Firewall rules do not apply
    /// to claimed ports.
    pub allow: Vec<Cidr>,
    /// Where the program runs; `None`: in the driver if it supports XDP, otherwise in generic mode.
    pub mode: Option<Mode>,
}

impl Options {
    /// Returns the options for `lanes` lanes, over which flows are spread by their hash.
    #[must_use]
    pub fn new(lanes: u32) -> Self {
        Self { lanes, policy: "hash".into(), allow: Vec::new(), mode: None }
    }
}

/// A range of addresses: `10.1.0.0/16`, `fd00::/8`, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    address: IpAddr,
    bits: u8,
}

impl Cidr {
    /// Returns the range of the addresses that share the first `bits` bits of `address`; `None` if it has fewer.
    #[must_use]
    pub fn new(address: IpAddr, bits: u8) -> Option<Self> {
        let most = if address.is_ipv4() { 32 } else { 128 };
        (bits <= most).then_some(Self { address, bits })
    }

    pub(super) fn is_ipv4(self) -> bool {
        self.address.is_ipv4()
    }

    /// `struct hd_prefix4` or `struct hd_prefix6`.
    pub(super) fn key(self) -> Vec<u8> {
        let mut key = u32::from(self.bits).to_ne_bytes().to_vec();
        match self.address {
            IpAddr::V4(ip) => key.extend(ip.octets()),
            IpAddr::V6(ip) => key.extend(ip.octets()),
        }
        key
    }
}

impl FromStr for Cidr {
    type Err = DeployError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
        let parse = || {
            let address: IpAddr = address.parse().ok()?;
            let most = if address.is_ipv4() { 32 } else { 128 };
            Self::new(address, bits.map_or(Some(most), |bits| bits.parse().ok())?)
        };
        let why = || format!("`{text}` is no range of addresses such as 10.1.0.0/16 or fd00::/8");
        parse().ok_or_else(|| DeployError::Options(why()))
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// Why lanes cannot be deployed.
#[derive(Debug, thiserror::Error)]
pub enum DeployError {
    /// An option makes no sense.
    #[error("{0}")]
    Options(String),
    /// There is no such policy, or it does not compile, or may not be loaded.
    #[error(transparent)]
    Policy(#[from] request::Error),
    /// The kernel refuses the program.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The interface is of a kind that cannot have lanes.
    #[error("{0}")]
    Kind(String),
    /// The caller lacks a privilege.
    #[error(
        "lanes on {interface} take CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON and, for their sockets, CAP_NET_RAW (or root): \
         {error}"
    )]
    Denied {
        /// The interface.
        interface: String,
        /// What the kernel said.
        error: LoadError,
    },
    /// The interface does not take it.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// Another failure.
    #[error("cannot deploy lanes on {interface}: {error}")]
    System {
        /// The interface.
        interface: String,
        /// What the system said.
        error: io::Error,
    },
}

impl DeployError {
    /// Makes a refusal of the program on `interface` one of the caller, if it is for a lack of privilege.
    pub(super) fn on(self, interface: &str) -> Self {
        match self {
            Self::Load(error) if is_denied(&error) => {
                Self::Denied { interface: interface.into(), error }
            }
            other => other,
        }
    }
}

/// To a process without CAP_PERFMON, the verifier says that pointers may not be computed with.
fn is_denied(error: &LoadError) -> bool {
    match error {
        LoadError::Map { error, .. } => error.kind() == io::ErrorKind::PermissionDenied,
        LoadError::Refused(refused) => {
            refused.error.kind() == io::ErrorKind::PermissionDenied
                && (refused.log.is_empty() || refused.to_string().contains("prohibited for !root"))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_parsed_and_shown() {
        for text in ["10.1.0.0/16", "0.0.0.0/0", "fd00::/8", "::1/128"] {
            assert_eq!(text.parse::<Cidr>().unwrap().to_string(), text);
        }
        assert_eq!("10.1.2.3".parse::<Cidr>().unwrap().to_string(), "10.1.2.3/32");
        for text in ["10.1.0.0/33", "fd00::/129", "10.1/16", "example.org", "10.1.0.0/", ""] {
            let error = text.parse::<Cidr>().unwrap_err();
            assert!(error.to_string().contains("fd00::/8"), "{error}");
        }
    }

    #[test]
    fn a_key_has_the_bits_and_then_the_address() {
        let key = "10.1.0.0/16".parse::<Cidr>().unwrap().key();
        assert_eq!(key, [16_u32.to_ne_bytes(), [10, 1, 0, 0]].concat());
        assert_eq!("::/0".parse::<Cidr>().unwrap().key(), [0; 20]);
    }
}
