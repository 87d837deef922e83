//! What a command is about: ports, protocols, addresses, a process. `attach` chooses sockets by it, `detach`, `replace`, `stats` and
//! `ls` choose attachments: the options and their meaning are the same everywhere, and are here.
//!
//! What fits is of one of the ports, and of one of the protocols and addresses if any is named. Something must fit each port,
//! protocol and address that is named; not every combination of them exists, since DNS over TLS, say, has no UDP.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use heddle_steer::process::Protocol;

/// Where a socket is bound, or what an attachment steers.
pub type Place = (Protocol, SocketAddr);

/// Options that choose sockets or attachments.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Wanted {
    /// The server's first process, for its sockets and those of its descendants [default: any process].
    #[arg(long)]
    pub pid: Option<u32>,
    /// The port, or several: 53,853.
    #[arg(long = "port", value_name = "PORT", value_delimiter = ',')]
    pub ports: Vec<u16>,
    /// Only this protocol, or both: udp,tcp.
    #[arg(long = "protocol", value_name = "PROTOCOL", value_delimiter = ',', value_parser = protocols())]
    pub protocols: Vec<Protocol>,
    /// Only what is bound to this address, or one of several: 127.0.0.1,::1.
    #[arg(long = "address", value_name = "IP", value_delimiter = ',')]
    pub addresses: Vec<IpAddr>,
    /// The number of the network namespace, once it is known which one is meant.
    #[arg(skip)]
    pub namespace: Option<u64>,
}

fn protocols() -> impl TypedValueParser<Value = Protocol> {
    let names = Protocol::ALL.map(Protocol::name);
    PossibleValuesParser::new(names).try_map(|name| Protocol::from_name(&name).ok_or("no protocol"))
}

/// One port, protocol or address that was named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    Port(u16),
    Protocol(Protocol),
    Address(IpAddr),
}

impl Named {
    /// Whether something at `place` fits it.
    pub fn fits(self, (protocol, address): Place) -> bool {
        match self {
            Self::Port(port) => port == address.port(),
            Self::Protocol(wanted) => wanted == protocol,
            Self::Address(wanted) => wanted == address.ip(),
        }
    }
}

impl Wanted {
    /// Whether nothing was named.
    pub fn is_empty(&self) -> bool {
        self.pid.is_none() && self.named().next().is_none()
    }

    /// Whether something at `place` is meant.
    pub fn fits(&self, place @ (protocol, address): Place) -> bool {
        self.fits_port(place)
            && (self.protocols.is_empty() || self.protocols.contains(&protocol))
            && (self.addresses.is_empty() || self.addresses.contains(&address.ip()))
    }

    /// Whether `place` is at one of the ports.
    pub fn fits_port(&self, (_, address): Place) -> bool {
        self.ports.is_empty() || self.ports.contains(&address.port())
    }

    fn named(&self) -> impl Iterator<Item = Named> {
        [self.ports(), self.protocols(), self.addresses()].into_iter().flatten()
    }

    /// The first port, protocol or address that nothing at `places` fits.
    pub fn missing(&self, places: &[Place]) -> Option<Named> {
        self.named().find(|named| places.iter().all(|place| !named.fits(*place)))
    }

    /// The same, of `named` only.
    pub fn only(&self, named: Named) -> Self {
        let mut only = self.clone();
        match named {
            Named::Port(port) => only.ports = vec![port],
            Named::Protocol(protocol) => only.protocols = vec![protocol],
            Named::Address(address) => only.addresses = vec![address],
        }
        only
    }

    /// Each combination of a port, a protocol and an address that were named.
    pub fn combinations(&self) -> Vec<Self> {
        let mut all = vec![self.clone()];
        for kind in [self.ports(), self.protocols(), self.addresses()] {
            if !kind.is_empty() {
                let each =
                    |one: Self| kind.iter().map(move |named| one.only(*named)).collect::<Vec<_>>();
                all = all.into_iter().flat_map(each).collect();
            }
        }
        all
    }

    fn ports(&self) -> Vec<Named> {
        self.ports.iter().copied().map(Named::Port).collect()
    }

    fn protocols(&self) -> Vec<Named> {
        self.protocols.iter().copied().map(Named::Protocol).collect()
    }

    fn addresses(&self) -> Vec<Named> {
        self.addresses.iter().copied().map(Named::Address).collect()
    }
}

/// `tcp port 53 or 853 at ::1`
impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocols: Vec<&str> = self.protocols.iter().map(|protocol| protocol.name()).collect();
        let mut parts = vec![protocols.join(" or ")];
        parts.push(if self.ports.is_empty() {
            "ports".into()
        } else {
            either("port ", &self.ports)
        });
        parts.push(either("at ", &self.addresses));
        parts.retain(|part| !part.is_empty());
        f.write_str(&parts.join(" "))
    }
}

fn either<T: fmt::Display>(before: &str, all: &[T]) -> String {
    let all: Vec<String> = all.iter().map(T::to_string).collect();
    if all.is_empty() { String::new() } else { format!("{before}{}", all.join(" or ")) }
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, Command, FromArgMatches as _};

    use super::*;

    fn wanted(typed: &[&str]) -> Wanted {
        let command = Wanted::augment_args(Command::new("heddle"));
        let matches = command.try_get_matches_from([&["heddle"], typed].concat()).unwrap();
        Wanted::from_arg_matches(&matches).unwrap()
    }

    fn place(protocol: Protocol, at: &str) -> Place {
        (protocol, at.parse().unwrap())
    }

    #[test]
    fn options_are_repeated_or_separated_by_commas() {
        let commas =
            wanted(&["--port", "53,853", "--protocol", "udp,tcp", "--address", "127.0.0.1,::1"]);
        let repeated = wanted(&[
            "--port",
            "53",
            "--port",
            "853",
            "--protocol",
            "udp",
            "--protocol",
            "tcp",
            "--address",
            "127.0.0.1",
            "--address",
            "::1",
        ]);
        assert_eq!(commas.to_string(), "udp or tcp port 53 or 853 at 127.0.0.1 or ::1");
        assert_eq!(commas.to_string(), repeated.to_string());
        assert!(wanted(&[]).is_empty() && !wanted(&["--pid", "1"]).is_empty());
    }

    #[test]
    fn what_fits_is_of_one_of_each() {
        let dns = wanted(&["--port", "53,853", "--protocol", "udp,tcp", "--address", "127.0.0.1"]);
        for (protocol, at, fits) in [
            (Protocol::Udp, "127.0.0.1:53", true),
            (Protocol::Tcp, "127.0.0.1:853", true),
            (Protocol::Tcp, "127.0.0.1:54", false),
            (Protocol::Tcp, "127.0.0.2:53", false),
        ] {
            assert_eq!(dns.fits(place(protocol, at)), fits, "{at}");
        }
        assert!(wanted(&["--port", "53"]).fits(place(Protocol::Udp, "[::1]:53")));
    }

    #[test]
    fn something_must_fit_each_that_is_named() {
        let dns = wanted(&["--port", "53,853", "--protocol", "udp,tcp"]);
        let (udp, tls) = (place(Protocol::Udp, "[::]:53"), place(Protocol::Tcp, "[::]:853"));
        assert_eq!(dns.missing(&[udp, tls]), None);
        assert_eq!(dns.missing(&[udp]), Some(Named::Port(853)));
        assert_eq!(dns.missing(&[tls]), Some(Named::Port(53)));
        let both = [udp, place(Protocol::Udp, "[::]:853")];
        assert_eq!(dns.missing(&both), Some(Named::Protocol(Protocol::Tcp)));
        assert_eq!(dns.only(Named::Port(853)).to_string(), "udp or tcp port 853");
    }

    #[test]
    fn combinations_are_all_there_are() {
        let dns = wanted(&["--port", "53,853", "--protocol", "udp,tcp"]);
        let all: Vec<String> = dns.combinations().iter().map(Wanted::to_string).collect();
        assert_eq!(all, ["udp port 53", "tcp port 53", "udp port 853", "tcp port 853"]);
    }
}
