//! Where `heddle metrics` listens.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;

/// An address of TCP, or a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// Parses `127.0.0.1:9464`, `localhost:9464` or `unix:PATH`.
pub fn parse(text: &str) -> Result<Address, String> {
    match text.strip_prefix("unix:") {
        Some("") => return Err("`unix:` needs a path".into()),
        Some(path) => return Ok(Address::Unix(path.into())),
        None => {}
    }
    let wrong = |error| format!("`{text}` is neither HOST:PORT nor unix:PATH: {error}");
    let mut found = text.to_socket_addrs().map_err(wrong)?;
    found.next().map(Address::Tcp).ok_or_else(|| format!("`{text}` has no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_of_tcp_or_paths() {
        assert_eq!(parse("unix:/run/x"), Ok(Address::Unix("/run/x".into())));
        assert_eq!(parse("127.0.0.1:9464"), Ok(Address::Tcp(([127, 0, 0, 1], 9464).into())));
        assert!(parse("9464").unwrap_err().contains("HOST:PORT"));
        assert!(parse("unix:").is_err());
    }
}
