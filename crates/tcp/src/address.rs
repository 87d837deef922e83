//! The four numbers that name a connection.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// An IP address in 16 bytes: an IPv4 address as IPv4-mapped (RFC 4291, section 2.5.5.2).
///
/// Mapped addresses must not appear on the wire, so the two families cannot be mistaken for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address([u32; 4]);

/// The third word of an IPv4-mapped address.
const MAPPED: u32 = 0xffff;

impl Address {
    /// Whether it is an IPv4 address.
    pub fn is_v4(self) -> bool {
        self.0[..3] == [0, 0, MAPPED]
    }

    /// The address as the standard library has it.
    pub fn to_ip(self) -> IpAddr {
        let [a, b, c, d] = self.0;
        if self.is_v4() {
            return IpAddr::V4(Ipv4Addr::from(d));
        }
        let word = |w: u32| u128::from(w);
        IpAddr::V6(Ipv6Addr::from(word(a) << 96 | word(b) << 64 | word(c) << 32 | word(d)))
    }

    /// The four words, in the host's order, most significant first.
    pub fn words(self) -> [u32; 4] {
        self.0
    }
}

impl From<IpAddr> for Address {
    fn from(ip: IpAddr) -> Address {
        match ip {
            IpAddr::V4(v4) => Address([0, 0, MAPPED, v4.to_bits()]),
            IpAddr::V6(v6) => {
                let bits = v6.to_bits();
                Address([96, 64, 32, 0].map(|shift| (bits >> shift) as u32))
            }
        }
    }
}

/// Both ends of a connection: 36 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuple {
    pub local: Address,
    pub remote: Address,
    pub local_port: u16,
    pub remote_port: u16,
}

impl Tuple {
    /// The tuple of two socket addresses.
    pub fn new(local: SocketAddr, remote: SocketAddr) -> Tuple {
        let (local_port, remote_port) = (local.port(), remote.port());
        Tuple { local: local.ip().into(), remote: remote.ip().into(), local_port, remote_port }
    }

    /// The local end.
    pub fn local_addr(&self) -> SocketAddr {
        SocketAddr::new(self.local.to_ip(), self.local_port)
    }

    /// The remote end.
    pub fn remote_addr(&self) -> SocketAddr {
        SocketAddr::new(self.remote.to_ip(), self.remote_port)
    }

    /// Whether both ends are IPv4.
    pub fn is_v4(&self) -> bool {
        self.local.is_v4()
    }

    /// Bytes of IP and TCP headers without options.
    pub fn header_length(&self) -> u16 {
        if self.is_v4() { 40 } else { 60 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_survives_the_way_there_and_back() {
        for text in ["192.0.2.7", "0.0.0.0", "2001:db8::1", "::", "::1"] {
            let ip: IpAddr = text.parse().unwrap();
            assert_eq!(Address::from(ip).to_ip(), ip);
            assert_eq!(Address::from(ip).is_v4(), ip.is_ipv4(), "{text}");
        }
    }
}
