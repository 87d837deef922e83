//! Conversion of names and literals to socket addresses.

use super::resolve::{resolve, resolve_async};
use std::io;
use std::iter::Cloned;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::{option, slice, vec};

/// A value that converts to one or more socket addresses: `std::net`'s trait of this name, except that a name
/// lookup leaves the worker to other tasks and ends at a [`crate::timeout`].
///
/// ```
/// use heddle_rt::net::ToSocketAddrs;
/// let addrs: Vec<_> = ("127.0.0.1", 80).to_socket_addrs()?.collect();
/// assert_eq!(addrs, ["127.0.0.1:80".parse().unwrap()]);
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait ToSocketAddrs {
    /// The iterator that [`ToSocketAddrs::to_socket_addrs`] returns.
    type Iter: Iterator<Item = SocketAddr>;

    /// Returns the addresses.
    ///
    /// # Errors
    /// Fails if the name is unknown, cannot be looked up or lacks a port, or if a time limit passes.
    fn to_socket_addrs(&self) -> io::Result<Self::Iter>;

    /// What a future looks up, which must not wait here. (A type outside this crate has only
    /// [`ToSocketAddrs::to_socket_addrs`]: it is called, and if it waits, so does the poll.)
    #[doc(hidden)]
    fn target(&self) -> io::Result<Target> {
        self.to_socket_addrs().map(|addrs| Target(Kind::Addrs(addrs.collect())))
    }
}

/// Addresses, or a name that is still to be looked up.
#[doc(hidden)]
#[derive(Debug)]
pub struct Target(Kind);

#[derive(Debug)]
enum Kind {
    Addrs(Vec<SocketAddr>),
    Name(String, u16),
}

impl Target {
    /// The addresses; waits for the lookup.
    fn addrs(self) -> io::Result<vec::IntoIter<SocketAddr>> {
        match self.0 {
            Kind::Addrs(addrs) => Ok(addrs.into_iter()),
            Kind::Name(host, port) => resolve(&host, port).map(Vec::into_iter),
        }
    }

    /// The addresses; a future that waits for the lookup.
    pub(super) async fn addrs_async(self) -> io::Result<Vec<SocketAddr>> {
        match self.0 {
            Kind::Addrs(addrs) => Ok(addrs),
            Kind::Name(host, port) => resolve_async(&host, port).await,
        }
    }
}

impl ToSocketAddrs for SocketAddr {
    type Iter = option::IntoIter<SocketAddr>;

    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        Ok(Some(*self).into_iter())
    }
}

macro_rules! addresses {
    ($($type:ty),*) => {$(
        impl ToSocketAddrs for $type {
            type Iter = option::IntoIter<SocketAddr>;

            fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
                SocketAddr::from(*self).to_socket_addrs()
            }
        }
    )*};
}

addresses!(SocketAddrV4, SocketAddrV6, (IpAddr, u16), (Ipv4Addr, u16), (Ipv6Addr, u16));

impl ToSocketAddrs for (&str, u16) {
    type Iter = vec::IntoIter<SocketAddr>;

    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        self.target()?.addrs()
    }

    fn target(&self) -> io::Result<Target> {
        let (host, port) = *self;
        Ok(Target(match host.parse::<IpAddr>() {
            Ok(ip) => Kind::Addrs(vec![SocketAddr::new(ip, port)]),
            Err(_) => Kind::Name(host.to_owned(), port),
        }))
    }
}

impl ToSocketAddrs for (String, u16) {
    type Iter = vec::IntoIter<SocketAddr>;

    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        self.target()?.addrs()
    }

    fn target(&self) -> io::Result<Target> {
        (&*self.0, self.1).target()
    }
}

impl ToSocketAddrs for str {
    type Iter = vec::IntoIter<SocketAddr>;

    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        self.target()?.addrs()
    }

    fn target(&self) -> io::Result<Target> {
        if let Ok(addr) = self.parse() {
            return Ok(Target(Kind::Addrs(vec![addr])));
        }
        let invalid = |why| io::Error::new(io::ErrorKind::InvalidInput, why);
        let (host, port) =
            self.rsplit_once(':').ok_or_else(|| invalid("invalid socket address"))?;
        let port = port.parse().map_err(|_| invalid("invalid port value"))?;
        (host, port).target()
    }
}

impl ToSocketAddrs for String {
    type Iter = vec::IntoIter<SocketAddr>;

    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        (**self).to_socket_addrs()
    }

    fn target(&self) -> io::Result<Target> {
        (**self).target()
    }
}

impl<'a> ToSocketAddrs for &'a [SocketAddr] {
    type Iter = Cloned<slice::Iter<'a, SocketAddr>>;

    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        Ok(self.iter().cloned())
    }
}

impl<T: ToSocketAddrs + ?Sized> ToSocketAddrs for &T {
    type Iter = T::Iter;

    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        (**self).to_socket_addrs()
    }

    fn target(&self) -> io::Result<Target> {
        (**self).target()
    }
}

/// Returns the result of `f` for the first address for which it succeeds, or else the last error.
pub(super) fn first_that<R>(
    addr: impl ToSocketAddrs,
    mut f: impl FnMut(SocketAddr) -> io::Result<R>,
) -> io::Result<R> {
    let mut last = None;
    for addr in addr.to_socket_addrs()? {
        match f(addr) {
            Ok(result) => return Ok(result),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(no_address))
}

/// Like [`first_that`], as a future.
pub(super) async fn first_that_async<R, F: Future<Output = io::Result<R>>>(
    target: io::Result<Target>,
    mut f: impl FnMut(SocketAddr) -> F,
) -> io::Result<R> {
    let mut last = None;
    for addr in target?.addrs_async().await? {
        match f(addr).await {
            Ok(result) => return Ok(result),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(no_address))
}

fn no_address() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "could not resolve to any addresses")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Converts `addr` here and in the standard library.
    fn both<A: ToSocketAddrs + std::net::ToSocketAddrs>(
        addr: A,
    ) -> [Result<Vec<SocketAddr>, String>; 2] {
        let text = |error: io::Error| format!("{:?} {error}", error.kind());
        [
            ToSocketAddrs::to_socket_addrs(&addr).map(Iterator::collect).map_err(text),
            std::net::ToSocketAddrs::to_socket_addrs(&addr).map(Iterator::collect).map_err(text),
        ]
    }

    #[test]
    fn addresses_are_parsed_as_by_the_standard_library() {
        let some: SocketAddr = "[::1]:7".parse().unwrap();
        let all = [
            both(some),
            both("127.0.0.1:80"),
            both("[::1]:80".to_owned()),
            both("127.0.0.1"),
            both("127.0.0.1:65536"),
            both("localhost:http"),
            both(("::1", 9)),
            both(("127.0.0.1".to_owned(), 9)),
            both((Ipv4Addr::LOCALHOST, 1)),
            both((IpAddr::from(Ipv6Addr::LOCALHOST), 1)),
            both(&[some, some][..]),
        ];
        for [ours, theirs] in all {
            assert_eq!(ours, theirs);
        }
    }

    #[test]
    fn the_first_address_that_works_is_used() {
        let addrs: Vec<SocketAddr> =
            (1..4).map(|port| (Ipv4Addr::LOCALHOST, port).into()).collect();
        let odd = |addr: SocketAddr| match addr.port() {
            2 => Ok(addr.port()),
            port => Err(io::Error::other(port.to_string())),
        };
        assert_eq!(first_that(&addrs[..], odd).unwrap(), 2);
        assert_eq!(first_that(&addrs[2..], odd).unwrap_err().to_string(), "3");
        assert_eq!(first_that(&addrs[..0], odd).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
