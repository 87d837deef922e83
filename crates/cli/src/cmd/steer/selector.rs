//! Options that select by port, protocol, address and process. `attach` selects sockets with them; `detach`,
//! `replace`, `stats` and `ls` select attachments. They mean the same everywhere.
//!
//! A match has one of the ports, and one of the protocols and addresses if any are named. Each named port,
//! protocol and address must have a match; not every combination exists, since DNS over TLS, for example, has
//! no UDP.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use heddle_steer::process::{Protocol, Serving};

/// Where a socket is bound, or where an attachment steers.
pub type Endpoint = (Protocol, SocketAddr);

/// Options that select sockets or attachments.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Selector {
    /// The server's first process: select its sockets and those of its descendants [default: any process].
    #[arg(long)]
    pub pid: Option<u32>,
    /// A port, or several: 53,853.
    #[arg(long = "port", value_name = "PORT", value_delimiter = ',')]
    pub ports: Vec<u16>,
    /// Only this protocol, or both: udp,tcp.
    #[arg(long = "protocol", value_name = "PROTOCOL", value_delimiter = ',', value_parser = protocols())]
    pub protocols: Vec<Protocol>,
    /// Only this address, or several: 127.0.0.1,::1.
    #[arg(long = "address", value_name = "IP", value_delimiter = ',')]
    pub addresses: Vec<IpAddr>,
    /// The network namespace, by inode, once it is known.
    #[arg(skip)]
    pub namespace: Option<u64>,
    /// The processes whose sockets are meant, if they are not those of `pid`.
    #[arg(skip)]
    pub processes: Option<BTreeSet<u32>>,
}

fn protocols() -> impl TypedValueParser<Value = Protocol> {
    let names = Protocol::ALL.map(Protocol::name);
    PossibleValuesParser::new(names).try_map(|name| Protocol::from_name(&name).ok_or("no protocol"))
}

/// A named port, protocol or address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Criterion {
    Port(u16),
    Protocol(Protocol),
    Address(IpAddr),
}

impl Criterion {
    /// Whether `endpoint` matches.
    pub fn matches(self, (protocol, address): Endpoint) -> bool {
        match self {
            Self::Port(port) => port == address.port(),
            Self::Protocol(named) => named == protocol,
            Self::Address(named) => named == address.ip(),
        }
    }
}

impl Selector {
    /// Whether nothing was named.
    pub fn is_empty(&self) -> bool {
        self.pid.is_none() && self.criteria().next().is_none()
    }

    /// Whether `endpoint` is selected.
    pub fn matches(&self, endpoint @ (protocol, address): Endpoint) -> bool {
        self.matches_port(endpoint)
            && (self.protocols.is_empty() || self.protocols.contains(&protocol))
            && (self.addresses.is_empty() || self.addresses.contains(&address.ip()))
    }

    /// Whether `endpoint` is at one of the ports.
    pub fn matches_port(&self, (_, address): Endpoint) -> bool {
        self.ports.is_empty() || self.ports.contains(&address.port())
    }

    fn criteria(&self) -> impl Iterator<Item = Criterion> {
        [self.ports(), self.protocols(), self.addresses()].into_iter().flatten()
    }

    /// Whether one of the processes holds `socket`.
    pub fn includes(&self, socket: &Serving) -> bool {
        self.processes.as_ref().is_none_or(|processes| !processes.is_disjoint(&socket.holders))
    }

    /// Returns the first named port, protocol or address without a match in `endpoints`.
    pub fn missing(&self, endpoints: &[Endpoint]) -> Option<Criterion> {
        self.criteria().find(|one| endpoints.iter().all(|endpoint| !one.matches(*endpoint)))
    }

    /// Returns the same selector with `criterion` as the only one of its kind.
    pub fn only(&self, criterion: Criterion) -> Self {
        let mut only = self.clone();
        match criterion {
            Criterion::Port(port) => only.ports = vec![port],
            Criterion::Protocol(protocol) => only.protocols = vec![protocol],
            Criterion::Address(address) => only.addresses = vec![address],
        }
        only
    }

    /// Returns each combination of a named port, protocol and address.
    pub fn combinations(&self) -> Vec<Self> {
        let mut all = vec![self.clone()];
        for kind in [self.ports(), self.protocols(), self.addresses()] {
            if !kind.is_empty() {
                let each = |one: Self| {
                    kind.iter().map(move |criterion| one.only(*criterion)).collect::<Vec<_>>()
                };
                all = all.into_iter().flat_map(each).collect();
            }
        }
        all
    }

    fn ports(&self) -> Vec<Criterion> {
        self.ports.iter().copied().map(Criterion::Port).collect()
    }

    fn protocols(&self) -> Vec<Criterion> {
        self.protocols.iter().copied().map(Criterion::Protocol).collect()
    }

    fn addresses(&self) -> Vec<Criterion> {
        self.addresses.iter().copied().map(Criterion::Address).collect()
    }
}

/// `tcp port 53 or 853 at ::1`
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocols: Vec<&str> = self.protocols.iter().map(|protocol| protocol.name()).collect();
        let mut parts = vec![protocols.join(" or ")];
        parts.push(if self.ports.is_empty() {
            "ports".into()
        } else {
            join_or("port ", &self.ports)
        });
        parts.push(join_or("at ", &self.addresses));
        parts.retain(|part| !part.is_empty());
        f.write_str(&parts.join(" "))
    }
}

fn join_or<T: fmt::Display>(before: &str, all: &[T]) -> String {
    let all: Vec<String> = all.iter().map(T::to_string).collect();
    if all.is_empty() { String::new() } else { format!("{before}{}", all.join(" or ")) }
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, Command, FromArgMatches as _};

    use super::*;

    fn selector(typed: &[&str]) -> Selector {
        let command = Selector::augment_args(Command::new("heddle"));
        let matches = command.try_get_matches_from([&["heddle"], typed].concat()).unwrap();
        Selector::from_arg_matches(&matches).unwrap()
    }

    fn endpoint(protocol: Protocol, at: &str) -> Endpoint {
        (protocol, at.parse().unwrap())
    }

    #[test]
    fn options_are_repeated_or_separated_by_commas() {
        let commas =
            selector(&["--port", "53,853", "--protocol", "udp,tcp", "--address", "127.0.0.1,::1"]);
        let repeated = selector(&[
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
        assert!(selector(&[]).is_empty() && !selector(&["--pid", "1"]).is_empty());
    }

    #[test]
    fn a_match_has_one_of_each_kind() {
        let dns =
            selector(&["--port", "53,853", "--protocol", "udp,tcp", "--address", "127.0.0.1"]);
        for (protocol, at, is_match) in [
            (Protocol::Udp, "127.0.0.1:53", true),
            (Protocol::Tcp, "127.0.0.1:853", true),
            (Protocol::Tcp, "127.0.0.1:54", false),
            (Protocol::Tcp, "127.0.0.2:53", false),
        ] {
            assert_eq!(dns.matches(endpoint(protocol, at)), is_match, "{at}");
        }
        assert!(selector(&["--port", "53"]).matches(endpoint(Protocol::Udp, "[::1]:53")));
    }

    #[test]
    fn each_named_criterion_must_have_a_match() {
        let dns = selector(&["--port", "53,853", "--protocol", "udp,tcp"]);
        let (udp, tls) = (endpoint(Protocol::Udp, "[::]:53"), endpoint(Protocol::Tcp, "[::]:853"));
        assert_eq!(dns.missing(&[udp, tls]), None);
        assert_eq!(dns.missing(&[udp]), Some(Criterion::Port(853)));
        assert_eq!(dns.missing(&[tls]), Some(Criterion::Port(53)));
        let both = [udp, endpoint(Protocol::Udp, "[::]:853")];
        assert_eq!(dns.missing(&both), Some(Criterion::Protocol(Protocol::Tcp)));
        assert_eq!(dns.only(Criterion::Port(853)).to_string(), "udp or tcp port 853");
    }

    #[test]
    fn combinations_are_complete() {
        let dns = selector(&["--port", "53,853", "--protocol", "udp,tcp"]);
        let all: Vec<String> = dns.combinations().iter().map(Selector::to_string).collect();
        assert_eq!(all, ["udp port 53", "tcp port 53", "udp port 853", "tcp port 853"]);
    }
}
