//! Ownership of ports. Passing a bound socket claims its port: that port, of that protocol, at that address,
//! in the network namespace of the socket, for as long as the socket has it.
//!
//! - **I1** All claims of a request are in one network namespace; the interface is looked up there.
//! - **I2** Only a socket to which the kernel delivers the port's packets is a proof: of UDP, or of TCP and
//!   listening.
//! - **I3** A claim ends with the last of its sockets, as the kernel sees it ([`xdp::put_holders`]).
//! - **I4** Only root claims packets to addresses that are not the machine's own.
//! - **I5** Only root claims ports at which other users have sockets.
//! - **I6** Nothing is read in a namespace that is closed to users, and no more claims are made than the
//!   quota allows: addresses and sockets may be numerous.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd as _, BorrowedFd};

use heddle_sys::socket::{self, addresses};
use rustix::fs::fstat;
use rustix::io::Errno;
use rustix::net::sockopt::{
    ipv6_v6only, socket_acceptconn, socket_domain, socket_protocol, socket_type,
};
use rustix::net::{AddressFamily, SocketType, ipproto};

use super::quota::Quota;
use super::{TypedDescriptors, foreign_sockets, invalid};
use crate::hook::xdp::{self, Claim, Holders, Interface, MAX_HOLDERS, Protocol, Root};
use crate::request::{Error, ErrorKind, Role};

/// The ports that a request claims, with the sockets that prove it.
pub struct Claims<'a> {
    /// The interface whose packets are claimed.
    pub interface: Interface,
    /// Each claim, with the indices in `sockets` of those that prove it.
    list: BTreeMap<Claim, Holders>,
    sockets: Vec<BorrowedFd<'a>>,
    /// The first one, for display: the address of the first socket.
    pub first: Claim,
}

impl<'a> Claims<'a> {
    /// Builds the claims of user `uid` from the sockets given, at the interface called `name` in their
    /// namespace, at most as many as `quota` allows.
    ///
    /// # Errors
    /// If a socket proves nothing, there is no such interface, it is closed to users, or there are too many
    /// claims.
    pub fn take(
        quota: &Quota,
        given: &'a TypedDescriptors,
        name: &str,
        uid: u32,
    ) -> Result<Self, Error> {
        let claims = given.iter().filter(|(role, _)| *role == Role::Claim);
        let sockets: Vec<BorrowedFd<'_>> = claims.map(|(_, socket)| socket.as_fd()).collect();
        if sockets.is_empty() {
            return Err(invalid(
                "no claim: a socket that is bound to the port shows that the port is yours",
            ));
        }
        if sockets.len() > MAX_HOLDERS {
            let text = format!("{} sockets as claims; {MAX_HOLDERS} at most", sockets.len());
            return Err(invalid(text));
        }
        let bound = all_bound(uid, &sockets)?;
        let interface = interface(&sockets, name)?;
        quota.check_namespace(uid, &interface)?;
        let local = Local::of(&interface, uid)?;
        let mut claims = Self { interface, list: BTreeMap::new(), sockets, first: bound[0] };
        for (index, claim) in bound.into_iter().enumerate() {
            let both = is_both(claims.sockets[index], claim.address)?;
            for address in local.meant_by(claim.address, both)? {
                claims.add(Claim { address, ..claim }, index);
                quota.check_claims(uid, name, claims.len())?;
            }
        }
        if uid != 0 {
            let list: Vec<Claim> = claims.list.keys().copied().collect();
            foreign_sockets::refuse(&claims.interface, &list, &claims.sockets, uid)?;
        }
        Ok(claims)
    }

    fn add(&mut self, claim: Claim, holder: usize) {
        let holders = self.list.entry(claim).or_default();
        *holders = holders.with(holder);
    }

    /// Returns the number of claims.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Registers them for `slot` of `root`.
    ///
    /// # Errors
    /// If one is taken; or if a socket cannot be watched, which only root may do without.
    pub fn put(&self, root: &Root, slot: u32, uid: u32) -> Result<(), Error> {
        let mut watched = true;
        let failed = |error: io::Error| Error::system("cannot clear a place for claims", &error);
        xdp::take_claims(&root.maps, slot).map_err(failed)?;
        let put = xdp::put_holders(&root.maps, uid, slot, &self.sockets);
        for result in put.map_err(|error| not_watched(&error))? {
            match result {
                Ok(()) => {}
                Err(error) if uid == 0 && error.kind() == io::ErrorKind::ResourceBusy => {
                    watched = false;
                }
                Err(error) => return Err(not_watched(&error)),
            }
        }
        for (claim, holders) in &self.list {
            let holders = if watched { *holders } else { Holders::default() };
            xdp::put_claim(&root.maps, claim, slot, holders).map_err(|error| match error {
                xdp::ClaimError::Taken { .. } => Error::new(ErrorKind::Busy, error.to_string()),
                xdp::ClaimError::System(..) => Error::new(ErrorKind::System, error.to_string()),
            })?;
        }
        Ok(())
    }
}

/// Returns the addresses that a user may claim: the machine's own (I4).
enum Local {
    /// Root may claim any.
    Any,
    These(HashSet<IpAddr>),
}

impl Local {
    fn of(interface: &Interface, uid: u32) -> Result<Self, Error> {
        if uid == 0 {
            return Ok(Self::Any);
        }
        let local = interface.run(socket::local_addresses);
        let local = local.map_err(|error| Error::system("the machine's addresses", &error))?;
        Ok(Self::These(local.into_iter().collect()))
    }

    /// Returns the addresses whose packets reach a socket bound to `address`. There may be many, so they are
    /// produced lazily.
    fn meant_by(
        &self,
        address: SocketAddr,
        both: bool,
    ) -> Result<Box<dyn Iterator<Item = SocketAddr> + '_>, Error> {
        let port = address.port();
        let any_v4 = both.then_some(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port));
        let bound = std::iter::once(address).chain(any_v4);
        let Self::These(local) = self else { return Ok(Box::new(bound)) };
        if address.ip().is_unspecified() {
            let of = move |ip: &&IpAddr| both || ip.is_ipv4() == address.is_ipv4();
            return Ok(Box::new(local.iter().filter(of).map(move |ip| SocketAddr::new(*ip, port))));
        }
        // IP_FREEBIND permits binding to any address, and any user may bind to multicast addresses.
        if address.ip().is_loopback() || local.contains(&address.ip()) {
            return Ok(Box::new(bound));
        }
        let text =
            format!("{} is no address of this machine: its packets are others'", address.ip());
        Err(Error::new(ErrorKind::Denied, text))
    }
}

fn not_watched(error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::ResourceBusy => Error::new(
            ErrorKind::Busy,
            "a claim is steered at socket-select already, or used by another program, so the kernel \
             cannot tell when it ends: give another socket of the port",
        ),
        _ => Error::system("the kernel cannot tell when a claim ends", error),
    }
}

/// Returns the addresses that sockets are bound to. User `uid` may keep the sockets locked.
fn all_bound(uid: u32, sockets: &[BorrowedFd<'_>]) -> Result<Vec<Claim>, Error> {
    let addresses = addresses(uid, sockets).map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => Error::system("cannot look at the claims", &error),
        _ => Error::system("a claim is no socket", &error),
    })?;
    sockets.iter().zip(addresses).map(|(socket, address)| bound(*socket, address)).collect()
}

/// Returns the address that a socket is bound to, if it proves anything (I2). Never takes the socket's lock.
fn bound(socket: BorrowedFd<'_>, address: Option<SocketAddr>) -> Result<Claim, Error> {
    let failed = |error: Errno| Error::system("a claim is no socket", &error.into());
    let domain = socket_domain(socket).map_err(failed)?;
    if ![AddressFamily::INET, AddressFamily::INET6].contains(&domain) {
        return Err(invalid("a claim is no socket of IPv4 or IPv6"));
    }
    let kind = socket_type(socket).map_err(failed)?;
    let protocol = socket_protocol(socket).map_err(failed)?;
    let protocol = match (kind, protocol) {
        (SocketType::STREAM, Some(ipproto::TCP)) => Protocol::Tcp,
        (SocketType::DGRAM, Some(ipproto::UDP)) => Protocol::Udp,
        _ => return Err(invalid("a claim is neither a socket of TCP nor of UDP")),
    };
    let address = address.ok_or_else(|| invalid("a claim is no socket of IPv4 or IPv6"))?;
    if address.port() == 0 {
        return Err(invalid("a claim is bound to no port"));
    }
    if protocol == Protocol::Tcp && !socket_acceptconn(socket).map_err(failed)? {
        return Err(invalid("a claim of TCP does not listen: until then others may have its port"));
    }
    let address = match address {
        // How an IPv6 socket represents an IPv4 address.
        SocketAddr::V6(v6) => match v6.ip().to_ipv4_mapped() {
            Some(v4) => SocketAddr::new(v4.into(), v6.port()),
            None => address,
        },
        SocketAddr::V4(_) => address,
    };
    Ok(Claim { protocol, address })
}

/// Returns whether an IPv6 socket bound to any address also receives IPv4.
fn is_both(socket: BorrowedFd<'_>, address: SocketAddr) -> Result<bool, Error> {
    if address.is_ipv4() || !address.ip().is_unspecified() {
        return Ok(false);
    }
    let only = ipv6_v6only(socket).map_err(|error| Error::system("a claim", &error.into()))?;
    Ok(!only)
}

/// Looks up the interface in the single namespace of all claims (I1).
fn interface(sockets: &[BorrowedFd<'_>], name: &str) -> Result<Interface, Error> {
    let about = |error: io::Error| Error::system(format!("interface `{name}`"), &error);
    let mut namespaces = Vec::new();
    for socket in sockets {
        let namespace = socket::namespace(*socket).map_err(about)?;
        let stat = fstat(&namespace).map_err(|error| about(error.into()))?;
        namespaces.push(((stat.st_dev, stat.st_ino), namespace));
    }
    let (id, namespace) = namespaces.swap_remove(0);
    if namespaces.iter().any(|(other, _)| *other != id) {
        return Err(Error::new(
            ErrorKind::Denied,
            "the claims are of several network namespaces: a port of one is no port of another",
        ));
    }
    Interface::by_name(name, Some(namespace)).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::NODEV) => Error::new(
            ErrorKind::NotFound,
            format!(
                "there is no interface `{name}` in the network namespace of the server (`ip link` \
                there lists them)"
            ),
        ),
        _ => about(error),
    })
}
