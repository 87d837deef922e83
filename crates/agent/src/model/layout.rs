//! The bytes that the kernel's programs and this crate share (`bpf/sched/include/layout.h`), as words of eight bytes.

/// Something that is read from `N` words.
pub trait FromWords<const N: usize>: Sized {
    /// What can be wrong with them.
    type Error;
    /// Reads it.
    ///
    /// # Errors
    /// Where the words say something that this version does not know.
    fn from_words(words: [u64; N]) -> Result<Self, Self::Error>;
}

/// Something that is written as `N` words.
pub trait ToWords<const N: usize> {
    /// The words.
    fn to_words(&self) -> [u64; N];
}
