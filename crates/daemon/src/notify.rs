//! Notifications to systemd (sd_notify), if it has started us: a datagram to the socket that it names.

use std::env;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Notifies systemd of `state`: `READY=1`, `STOPPING=1`. Does nothing, and cannot fail, without systemd.
pub fn notify(state: &str) {
    let Some(name) = env::var_os("NOTIFY_SOCKET") else { return };
    // A name that begins with @ is in the kernel's abstract namespace.
    let address = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(&name),
    };
    let sent = address.and_then(|address| {
        UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
    });
    if let Err(error) = sent {
        eprintln!("heddled: cannot tell systemd {state}: {error}");
    }
}
