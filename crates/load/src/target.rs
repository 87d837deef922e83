//! Targets that load may be sent to.

use std::net::{SocketAddr, ToSocketAddrs};

/// The one address behind `text`, which must be this machine's loopback unless `allow_remote`.
///
/// A load generator pointed at the wrong host is an attack, so a name from the shell history is not enough:
/// leaving this machine takes a flag.
///
/// # Errors
/// What is wrong with the address, and an example of a valid one.
pub fn resolve(text: &str, allow_remote: bool) -> Result<SocketAddr, TargetError> {
    let bad = |why: String| TargetError::Address(text.to_owned(), why);
    let found = text.to_socket_addrs().map_err(|e| bad(e.to_string()))?.next();
    let addr = found.ok_or_else(|| bad("it has no address".into()))?;
    if addr.port() == 0 {
        return Err(bad("port 0 cannot be sent to".into()));
    }
    if !addr.ip().to_canonical().is_loopback() && !allow_remote {
        return Err(TargetError::Remote(addr));
    }
    Ok(addr)
}

/// Why a target is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// Not an address.
    #[error("`{0}` is not a target: {1}; give host:port, for example 127.0.0.1:7000")]
    Address(String, String),
    /// Another machine.
    #[error("{0} is not on this machine; pass --allow-remote to send load there anyway")]
    Remote(SocketAddr),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_without_the_flag() {
        assert!(resolve("127.0.0.1:7000", false).is_ok());
        assert!(resolve("127.9.9.9:7000", false).is_ok());
        assert!(resolve("[::1]:7000", false).is_ok());
        assert!(resolve("[::ffff:127.0.0.1]:7000", false).is_ok());
        for remote in ["192.0.2.1:7000", "0.0.0.0:7000", "[2001:db8::1]:7000"] {
            let error = resolve(remote, false).unwrap_err();
            assert!(error.to_string().contains("--allow-remote"), "{error}");
            assert!(resolve(remote, true).is_ok());
        }
    }

    #[test]
    fn what_is_no_address_says_so() {
        for text in ["7000", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:70000", ""] {
            let error = resolve(text, true).unwrap_err();
            assert!(error.to_string().contains("127.0.0.1:7000"), "{error}");
        }
    }
}
