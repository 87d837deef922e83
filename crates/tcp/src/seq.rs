//! Sequence numbers: 32 bits that wrap (RFC 9293, section 3.4).

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// A sequence number. Two numbers compare as long as they are less than 2^31 apart.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Seq(pub u32);

impl Seq {
    /// Whether `self` comes before `other`.
    pub fn is_before(self, other: Seq) -> bool {
        (self.0.wrapping_sub(other.0) as i32) < 0
    }

    /// Whether `self` comes after `other`.
    pub fn is_after(self, other: Seq) -> bool {
        other.is_before(self)
    }

    /// Returns the later of the two.
    pub fn max(self, other: Seq) -> Seq {
        if self.is_before(other) { other } else { self }
    }

    /// Returns the earlier of the two.
    pub fn min(self, other: Seq) -> Seq {
        if self.is_before(other) { self } else { other }
    }

    /// Whether `first <= self <= last`.
    pub fn is_between(self, first: Seq, last: Seq) -> bool {
        self.0.wrapping_sub(first.0) <= last.0.wrapping_sub(first.0)
    }
}

impl Add<u32> for Seq {
    type Output = Seq;
    fn add(self, n: u32) -> Seq {
        Seq(self.0.wrapping_add(n))
    }
}

impl AddAssign<u32> for Seq {
    fn add_assign(&mut self, n: u32) {
        *self = *self + n;
    }
}

impl Sub<u32> for Seq {
    type Output = Seq;
    fn sub(self, n: u32) -> Seq {
        Seq(self.0.wrapping_sub(n))
    }
}

impl Sub for Seq {
    type Output = u32;
    /// The distance from `earlier`, modulo 2^32.
    fn sub(self, earlier: Seq) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }
}

impl fmt::Debug for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_survives_the_wrap() {
        let (before, after) = (Seq(u32::MAX - 1), Seq(3));
        assert!(before.is_before(after) && after.is_after(before));
        assert_eq!(after - before, 5);
        assert_eq!((before.max(after), before.min(after)), (after, before));
        assert_eq!(before + 5, after);
    }

    #[test]
    fn an_interval_includes_its_ends() {
        let (first, last) = (Seq(u32::MAX), Seq(1));
        assert!([first, Seq(0), last].into_iter().all(|seq| seq.is_between(first, last)));
        assert!(!Seq(2).is_between(first, last) && !Seq(u32::MAX - 1).is_between(first, last));
    }
}
