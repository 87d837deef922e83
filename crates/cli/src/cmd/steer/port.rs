//! Attaching and detaching by port, for other commands.

use heddle_observe::Protocol as Transport;
use heddle_steer::client::Steering;
use heddle_steer::process::Protocol;
use heddle_steer::request::Attachment;

use super::selector::Selector;
use super::{attach, connect, detach, policy, refused};

/// Connects to what attaches policies.
pub fn open() -> anyhow::Result<Steering> {
    connect::open(false)
}

/// Returns the attachments at a port.
pub fn at(steering: &Steering, port: u16, protocol: Transport) -> anyhow::Result<Vec<Attachment>> {
    let selector = selector(port, protocol);
    let all = steering.list().map_err(refused)?;
    let here = |one: &Attachment| {
        let address = one.address.parse().ok();
        let endpoint = Protocol::from_name(&one.protocol).zip(address);
        one.interface.is_none() && endpoint.is_some_and(|endpoint| selector.matches(endpoint))
    };
    Ok(all.into_iter().filter(here).collect())
}

/// Attaches `policy` to the server at a port.
pub fn attach(
    steering: &Steering,
    port: u16,
    protocol: Transport,
    policy: &str,
) -> anyhow::Result<()> {
    attach::all(steering, &selector(port, protocol), &policy::parse(policy)?).map(drop)
}

/// Ends an attachment.
pub fn detach(steering: &Steering, attachment: &Attachment) -> anyhow::Result<()> {
    detach::one(steering, attachment).map(drop).map_err(refused)
}

fn selector(port: u16, protocol: Transport) -> Selector {
    let protocol = match protocol {
        Transport::Tcp => Protocol::Tcp,
        Transport::Udp => Protocol::Udp,
    };
    Selector { ports: vec![port], protocols: vec![protocol], ..Selector::default() }
}
