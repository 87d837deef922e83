//! Limits of the system: a descriptor for each end of a connection, and a port for the client's end.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;
use std::net::Ipv4Addr;

/// Descriptors that a process needs in addition to its connections.
const SPARE: usize = 200;

/// Loopback addresses at most: 127.0.0.1 to 127.0.0.250.
const ADDRESSES: usize = 250;

/// Raises the limit on descriptors so that this process can hold `connections`.
///
/// # Errors
/// An explanation, if the hard limit is lower and the caller cannot raise it.
pub(crate) fn raise(connections: usize) -> io::Result<()> {
    let needed = (connections + SPARE) as u64;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|soft| soft >= needed) {
        return Ok(());
    }
    let hard = limit.maximum.map(|hard| hard.max(needed));
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum: hard }).map_err(|error| {
        let hard = limit.maximum.map_or_else(|| "no limit".into(), |hard| hard.to_string());
        io::Error::other(format!(
            "{connections} connections need {needed} descriptors, and RLIMIT_NOFILE allows {hard} ({error}): \
             raise it as root \
             (ulimit -Hn {needed}), or ask for fewer with --connections"
        ))
    })
}

/// Connections per address: nine tenths of the system's client ports.
///
/// # Errors
/// `/proc` cannot be read.
pub(super) fn ports() -> io::Result<usize> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")?;
    let mut ends = text.split_whitespace().filter_map(|word| word.parse::<usize>().ok());
    let range =
        ends.next().zip(ends.next()).map_or(0, |(first, last)| (last + 1).saturating_sub(first));
    Ok(range * 9 / 10)
}

/// Checks that `connections` connections are possible here, as far as known in advance; raises the limit on
/// descriptors.
///
/// # Errors
/// The reason, and what would help.
pub fn check(connections: usize) -> io::Result<()> {
    raise(connections)?;
    let most = ports()? * ADDRESSES;
    if connections > most {
        return Err(io::Error::other(format!(
            "{connections} connections need more ports than there are ({most} on {ADDRESSES} loopback \
             addresses): widen \
             net.ipv4.ip_local_port_range, or ask for fewer with --connections"
        )));
    }
    Ok(())
}

/// The server's address for connection `number`, with `ports` connections per address.
pub(super) fn address(number: usize, ports: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, (1 + number / ports % ADDRESSES) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_spread_over_loopback_addresses() {
        assert_eq!(address(0, 10), Ipv4Addr::LOCALHOST);
        assert_eq!(address(9, 10), Ipv4Addr::LOCALHOST);
        assert_eq!(address(10, 10), Ipv4Addr::new(127, 0, 0, 2));
        assert!(address(10 * ADDRESSES, 10).is_loopback());
    }

    #[test]
    fn what_cannot_be_had_is_refused_in_words() {
        let refused = check(usize::MAX >> 8).unwrap_err().to_string();
        assert!(refused.contains("--connections"), "{refused}");
        assert!(ports().unwrap() > 0);
    }
}
