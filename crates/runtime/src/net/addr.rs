//! Conversion of names and literals to socket addresses.

use super::resolve::resolve;
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
        let (host, port) = *self;
        let addrs = match host.parse::<IpAddr>() {
            Ok(ip) => vec![SocketAddr::new(ip, port)],
            Err(_) => resolve(host, port)?,
        };
        Ok(addrs.into_iter())
    }
}

impl ToSocketAddrs for (String, u16) {
    type Iter = vec::IntoIter<SocketAddr>;

    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        (&*self.0, self.1).to_socket_addrs()
    }
}

impl ToSocketAddrs for str {
    type Iter = vec::IntoIter<SocketAddr>;

    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        if let Ok(addr) = self.parse() {
            return Ok(vec![addr].into_iter());
        }
        let invalid = |why| io::Error::new(io::ErrorKind::InvalidInput, why);
        let (host, port) =
            self.rsplit_once(':').ok_or_else(|| invalid("invalid socket address"))?;
        let port = port.parse().map_err(|_| invalid("invalid port value"))?;
        (host, port).to_socket_addrs()
    }
}

impl ToSocketAddrs for String {
    type Iter = vec::IntoIter<SocketAddr>;

    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        (**self).to_socket_addrs()
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
    let none = || io::Error::new(io::ErrorKind::InvalidInput, "could not resolve to any addresses");
    Err(last.unwrap_or_else(none))
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
