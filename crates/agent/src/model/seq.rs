//! Sequence numbers.

use core::fmt;

/// A sequence number of a thread (*Tseq*) or of a queue (*Aseq*): the number of its messages so far (ghOSt, section
/// 3.1). A transaction names the one that its decision rests on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

impl Seq {
    /// Returns the number after this one.
    #[must_use]
    pub const fn next(self) -> Seq {
        Seq(self.0 + 1)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}
