//! The control plane against the kernel, in network namespaces.

mod interface;
mod neighbours;
mod routes;

use std::net::IpAddr;
use std::process::Command;
use std::sync::Arc;

use heddle_netns::{NEAR, Namespace, Pair};
use heddle_netstack::control::{Control, ControlError, Snapshot};
use heddle_test_support::until;

/// Returns a pair of namespaces; `None`, with a message, if this process may not make any.
fn pair() -> Option<Pair> {
    if let Some(missing) = heddle_netns::missing_privilege() {
        eprintln!("skipped: {missing}");
        return None;
    }
    Some(Pair::new(1).unwrap())
}

/// Follows the near interface.
fn start(net: &Pair) -> Control {
    start_on(&net.near, NEAR).unwrap()
}

fn start_on(namespace: &Namespace, interface: &str) -> Result<Control, ControlError> {
    namespace.run(|| Control::start(interface))
}

/// Waits until the newest snapshot is as described, and returns it.
fn snapshot_when(
    control: &Control,
    what: &str,
    holds: impl Fn(&Snapshot) -> bool,
) -> Arc<Snapshot> {
    until(what, || holds(&control.snapshot()));
    control.snapshot()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// What `ip neighbour show` prints about an address.
fn kernel_neighbour(namespace: &Namespace, address: &str) -> String {
    let output =
        Command::new("ip").args(["-n", namespace.name(), "neighbour", "show", address]).output();
    String::from_utf8(output.unwrap().stdout).unwrap()
}

/// Adds a second interface, `other0`, to the near namespace.
fn add_other_interface(net: &Pair) {
    net.near.ip("link add other0 type veth peer name other1").unwrap();
    net.near.ip("link set other0 up").unwrap();
    net.near.ip("link set other1 up").unwrap();
}
