//! What systemd is told (sd_notify), when it has started us: a datagram to the socket that it names.

use std::env;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Tells systemd `state`: `READY=1`, `STOPPING=1`. Nothing happens, and nothing fails, without systemd.
pub fn notify(state: &str) {
    let Some(name) = env::var_os("NOTIFY_SOCKET") else { return };
    // A name that begins with @ is one of the kernel's own space of names.
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
