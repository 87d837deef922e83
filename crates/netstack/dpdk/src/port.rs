//! Ports: devices that were opened.

use crate::error::Error;
pub use crate::shim::Stats;
use crate::shim::{self, Code, Receiver, Sender};
use std::ffi::CStr;

/// How a port is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortOptions {
    /// Queues in each direction: one for each lane. With several, the device spreads connections by their hash if it
    /// can (RSS).
    pub queues: u16,
    /// Descriptors for each queue, as far as the driver allows.
    pub descriptors: u16,
}

impl Default for PortOptions {
    fn default() -> PortOptions {
        PortOptions { queues: 1, descriptors: 512 }
    }
}

/// The state of a port's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Whether frames can pass.
    pub up: bool,
    /// In Mbit/s; `u32::MAX` if the driver does not know.
    pub speed: u32,
}

pub(crate) fn open(
    device: &str,
    name: &CStr,
    options: &PortOptions,
) -> Result<Vec<(Receiver, Sender)>, Error> {
    let PortOptions { queues, descriptors } = *options;
    let device = device.to_owned();
    let mut port = match shim::attach(name) {
        Ok(port) => port,
        Err(code) => return Err(Error::Attach { device, code }),
    };
    match port.open(queues, descriptors) {
        Ok(()) => Ok(port.into_queues()),
        Err(code) => Err(Error::Open { device, queues, descriptors, code }),
    }
}

/// Names what could not be read.
pub(crate) fn query<T>(what: &'static str, result: Result<T, Code>) -> Result<T, Error> {
    result.map_err(|code| Error::Query { what, code })
}
