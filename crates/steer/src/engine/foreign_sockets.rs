//! Other users' sockets at a port. With SO_REUSEADDR, a user may listen on a port where another user's
//! connections still exist; their packets are not the listener's.

mod diag;

use std::collections::{BTreeSet, HashSet};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::fs::fstat;

use self::diag::Socket;
use crate::hook::xdp::{Claim, Interface, Protocol};
use crate::request::{Error, ErrorKind};

/// How long the kernel may search for sockets; it takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(1);

/// Refuses `claims` of user `uid` if others have sockets at a claimed port and address, apart from those in
/// `given`, which prove the claims and may belong to the user who started the server. Such sockets cannot
/// appear later: the port is taken by then, and where it can be shared (SO_REUSEADDR for datagrams) the
/// kernel lets one user have another's packets anyway.
///
/// # Errors
/// `Denied` if there are any; `Busy` if there are too many sockets at the ports to find out soon; the
/// system's.
pub fn refuse(
    interface: &Interface,
    claims: &[Claim],
    given: &[BorrowedFd<'_>],
    uid: u32,
) -> Result<(), Error> {
    let failed = |error: io::Error| Error::system("cannot list the sockets", &error);
    let inode = |socket: &BorrowedFd<'_>| Ok(fstat(socket)?.st_ino);
    let given = given.iter().map(inode).collect::<io::Result<_>>().map_err(failed)?;
    match interface.run(|| first(claims, &given, uid)).map_err(failed)? {
        None => Ok(()),
        Some((claim, other)) => {
            let text = format!(
                "user {other} has a socket at {claim} too, whose packets are not yours: claim a port at \
                 which no other user has a socket (`ss -tuane` lists them)"
            );
            Err(Error::new(ErrorKind::Denied, text))
        }
    }
}

/// Returns the first socket in this thread's network namespace that conflicts with `claims`: the claim, and
/// the socket's user.
fn first(claims: &[Claim], given: &HashSet<u64>, uid: u32) -> io::Result<Option<(Claim, u32)>> {
    let end = Instant::now() + PATIENCE;
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let claims = || claims.iter().filter(|claim| claim.protocol == protocol);
        let ports: BTreeSet<u16> = claims().map(|claim| claim.address.port()).collect();
        if ports.is_empty() {
            continue;
        }
        let at = |socket: &Socket| claims().find(|claim| meets(socket, claim));
        let other = |socket: &Socket| {
            is_read(socket)
                && socket.uid != uid
                && !given.contains(&socket.inode.into())
                && at(socket).is_some()
        };
        if let Some(socket) = diag::find(protocol, &ports, end, other)? {
            return Ok(at(&socket).map(|claim| (*claim, socket.uid)));
        }
    }
    Ok(None)
}

/// Returns whether a process has the socket: no process reads from a closed TCP socket.
fn is_read(socket: &Socket) -> bool {
    socket.protocol == Protocol::Udp || socket.inode != 0
}

/// Returns whether the socket may receive packets to the claimed address.
fn meets(socket: &Socket, claim: &Claim) -> bool {
    let (local, claimed) = (socket.local.ip().to_canonical(), claim.address.ip());
    let overlap = local == claimed || local.is_unspecified() || claimed.is_unspecified();
    socket.protocol == claim.protocol && socket.local.port() == claim.address.port() && overlap
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_conflicts_if_it_could_receive_a_claimed_packet() {
        let meet = |local: &str, claimed: &str| {
            let socket =
                Socket { protocol: Protocol::Tcp, local: local.parse().unwrap(), uid: 7, inode: 1 };
            meets(&socket, &Claim { protocol: Protocol::Tcp, address: claimed.parse().unwrap() })
        };
        assert!(meet("10.0.0.1:80", "10.0.0.1:80") && meet("0.0.0.0:80", "10.0.0.1:80"));
        assert!(meet("[::ffff:10.0.0.1]:80", "10.0.0.1:80") && meet("[::]:80", "10.0.0.1:80"));
        assert!(!meet("10.0.0.2:80", "10.0.0.1:80") && !meet("10.0.0.1:81", "10.0.0.1:80"));
    }
}
