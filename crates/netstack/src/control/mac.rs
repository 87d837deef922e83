//! Ethernet addresses.

use std::fmt;

/// An Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// The address of all hosts on a link.
    pub const BROADCAST: Mac = Mac([0xff; 6]);

    /// Returns whether it is a single host's: it is neither a group's address nor all zeros.
    #[must_use]
    pub fn is_unicast(self) -> bool {
        self.0[0] & 1 == 0 && self.0 != [0; 6]
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, last] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{last:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_written_as_ip_writes_it() {
        assert_eq!(Mac([2, 0, 0, 0, 0xab, 1]).to_string(), "02:00:00:00:ab:01");
    }

    #[test]
    fn groups_and_zeros_are_not_unicast() {
        assert!(Mac([2, 0, 0, 0, 0, 1]).is_unicast());
        assert!(!Mac::BROADCAST.is_unicast());
        assert!(!Mac([1, 0, 0x5e, 0, 0, 1]).is_unicast());
        assert!(!Mac::default().is_unicast());
    }
}
