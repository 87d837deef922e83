//! Whose sockets a port has. A user's socket may share it with others': with SO_REUSEADDR one may listen where another's
//! connections still are. Their packets are not his.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use procfs::net::TcpState;
use procfs::process::Process;
use rustix::fs::fstat;

use crate::hook::xdp::{Claim, Interface, Protocol};
use crate::request::{Error, ErrorKind};

/// A socket by the kernel's account.
struct Socket {
    protocol: Protocol,
    local: SocketAddr,
    uid: u32,
    inode: u64,
}

/// Refuses `claims` of user `uid` if others have sockets at a port and an address of them, beside those in `given`, which prove the
/// claims and may come from whoever started the server. Such sockets do not come later: the port is taken then, and with
/// SO_REUSEADDR for datagrams, where it can be shared, the kernel lets one user have another's packets anyway.
///
/// # Errors
/// `Denied` if there are any; the system's. Reads the namespace's tables of sockets: O(sockets).
pub fn refuse(
    interface: &Interface,
    claims: &[Claim],
    given: &[BorrowedFd<'_>],
    uid: u32,
) -> Result<(), Error> {
    let failed = |error: io::Error| Error::system("cannot list the sockets", &error);
    let mut sockets = interface.run(sockets).map_err(failed)?;
    for socket in given {
        let inode = fstat(socket).map_err(|error| failed(error.into()))?.st_ino;
        sockets.retain(|there| there.inode != inode);
    }
    sockets.retain(|socket| socket.uid != uid);
    for claim in claims {
        let Some(other) = sockets.iter().find(|socket| meets(socket, claim)) else { continue };
        let text = format!(
            "user {} has a socket at {claim} too, whose packets are not yours: claim a port that nobody else has a socket of (`ss -tuane` lists them)",
            other.uid
        );
        return Err(Error::new(ErrorKind::Denied, text));
    }
    Ok(())
}

/// Whether packets to what is claimed may be for the socket.
fn meets(socket: &Socket, claim: &Claim) -> bool {
    let (local, claimed) = (socket.local.ip().to_canonical(), claim.address.ip());
    let overlap = local == claimed || local.is_unspecified() || claimed.is_unspecified();
    socket.protocol == claim.protocol && socket.local.port() == claim.address.port() && overlap
}

/// The sockets of this thread's network namespace that a process has: from those that were closed nobody reads.
fn sockets() -> io::Result<Vec<Socket>> {
    // Not the process's, which may be in another namespace than this thread.
    let me = format!("/proc/self/task/{}", rustix::thread::gettid().as_raw_nonzero());
    let tables = || {
        let me = Process::new_with_root(me.into())?;
        let tcp = [me.tcp()?, me.tcp6()?].concat();
        Ok::<_, procfs::ProcError>((tcp, [me.udp()?, me.udp6()?].concat()))
    };
    let (tcp, udp) = tables().map_err(|error| io::Error::other(error.to_string()))?;
    let tcp = tcp.into_iter().filter(|one| one.inode != 0 && one.state != TcpState::TimeWait);
    let tcp = tcp.map(|one| (Protocol::Tcp, one.local_address, one.uid, one.inode));
    let udp = udp.into_iter().map(|one| (Protocol::Udp, one.local_address, one.uid, one.inode));
    let socket = |(protocol, local, uid, inode)| Socket { protocol, local, uid, inode };
    Ok(tcp.chain(udp).map(socket).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, UdpSocket};

    #[test]
    fn sockets_of_this_namespace_are_listed_with_their_users() {
        let (tcp, udp) =
            (TcpListener::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("[::1]:0").unwrap());
        let me = rustix::process::geteuid().as_raw();
        let all = sockets().unwrap();
        let has = |protocol, local| {
            all.iter().any(|one| (one.protocol, one.local, one.uid) == (protocol, local, me))
        };
        assert!(has(Protocol::Tcp, tcp.local_addr().unwrap()));
        assert!(has(Protocol::Udp, udp.local_addr().unwrap()));
    }

    #[test]
    fn a_socket_is_in_the_way_where_a_packet_could_be_for_it() {
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
