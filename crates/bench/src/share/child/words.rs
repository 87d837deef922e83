//! Numbers that the two processes of a switch share, and the phases in which they run.

use heddle_sys::memory::{PAGE, sealed_file, shared_words};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// What the leader lets both do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Sleep: the CPU is for others.
    Rest,
    /// Switch.
    Run,
    /// End.
    Stop,
}

/// The memory: a page of a file that lives in memory only. Each word has a cache line.
#[derive(Clone, Copy)]
pub(super) struct Words(&'static [AtomicU32; PAGE / 4]);

const LINE: usize = 16;
const PHASE: usize = 0;
const READY: usize = LINE;
const TAKEN: usize = 2 * LINE;
const TURN: [usize; 2] = [3 * LINE, 4 * LINE];

impl Words {
    /// Makes the memory; returns the path by which another process finds it while the file is open here.
    pub(super) fn make() -> io::Result<(Words, File, PathBuf)> {
        let file = File::from(sealed_file(c"heddle-switch", PAGE)?);
        let words = Words(shared_words(&file)?);
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        Ok((words, file, path.into()))
    }

    /// Maps the memory of another process.
    pub(super) fn open(path: &PathBuf) -> io::Result<Words> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Words(shared_words(&file)?))
    }

    pub(super) fn phase(&self) -> Phase {
        match self.0[PHASE].load(SeqCst) {
            0 => Phase::Rest,
            1 => Phase::Run,
            _ => Phase::Stop,
        }
    }

    pub(super) fn begin(&self, phase: Phase) {
        self.0[PHASE].store(phase as u32, SeqCst);
    }

    /// Says that another process is ready.
    pub(super) fn join(&self) {
        self.0[READY].fetch_add(1, SeqCst);
    }

    /// Returns how many are.
    pub(super) fn joined(&self) -> u32 {
        self.0[READY].load(SeqCst)
    }

    /// The peer has taken its turn once more. Only the peer writes it.
    pub(super) fn take(&self) {
        let taken = &self.0[TAKEN];
        taken.store(taken.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Returns how often the peer has.
    pub(super) fn taken(&self) -> u32 {
        self.0[TAKEN].load(Relaxed)
    }

    /// Returns the word on which a side sleeps: the leader's is 0.
    pub(super) fn turn(&self, side: usize) -> &'static AtomicU32 {
        &self.0[TURN[side]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_opens_the_memory_sees_what_is_written() {
        let (words, _file, path) = Words::make().unwrap();
        let other = Words::open(&path).unwrap();
        assert_eq!(other.phase(), Phase::Rest);
        for phase in [Phase::Run, Phase::Stop, Phase::Rest] {
            words.begin(phase);
            assert_eq!(other.phase(), phase);
        }
        (0..3).for_each(|_| other.take());
        other.join();
        assert_eq!((words.taken(), words.joined()), (3, 1));
        words.turn(1).store(5, SeqCst);
        assert_eq!((other.turn(1).load(SeqCst), other.turn(0).load(SeqCst)), (5, 0));
    }
}
