//! Pipes that make themselves ready again: the reader of a pipe's byte writes it back.

use super::demux::Watched;
use std::io::{self, PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::AsFd;

/// Pipes, by number.
pub(super) struct Ring(Vec<(PipeReader, PipeWriter)>);

impl Ring {
    /// Creates empty, non-blocking pipes: of several notified threads, one reads the byte.
    ///
    /// # Errors
    /// System errors.
    pub(super) fn new(pipes: usize) -> io::Result<Ring> {
        let make = |_| {
            let (reader, writer) = pipe()?;
            rustix::io::ioctl_fionbio(&reader, true)?;
            Ok((reader, writer))
        };
        (0..pipes).map(make).collect::<io::Result<_>>().map(Ring)
    }

    pub(super) fn watched(&self) -> Vec<Watched<'_>> {
        self.0.iter().map(|(reader, _)| Watched { fd: reader.as_fd(), high: false }).collect()
    }

    /// Makes pipe `number` ready.
    ///
    /// # Errors
    /// System errors.
    pub(super) fn fill(&self, number: usize) -> io::Result<()> {
        (&self.0[number].1).write_all(&[0])
    }

    /// Takes the byte of pipe `number`; returns false if another thread was faster.
    pub(super) fn take(&self, number: usize) -> bool {
        // A buffer larger than the content, so that a short read shows that nothing is left.
        matches!((&self.0[number].0).read(&mut [0; 8]), Ok(1))
    }

    pub(super) fn fill_all(&self) -> io::Result<()> {
        (0..self.0.len()).try_for_each(|number| self.fill(number))
    }
}
