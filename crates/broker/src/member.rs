//! A member, as the broker knows it, and what others get of it.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;

use heddle_core::Ns;
use heddle_share::{AppMemory, Kind};
use rustix::fs::OFlags;

use crate::overtime::Complaint;
use crate::realtime::Demoted;

/// A CPU that a member keeps although it is demoted.
#[derive(Clone, Copy, Debug)]
pub struct Overtime {
    /// The CPU (an index).
    pub cpu: usize,
    /// The word that it kept.
    pub word: u32,
    /// When it was demoted.
    pub since: Ns,
}

/// An application of the share.
#[derive(Debug)]
pub struct Member {
    /// The number of its connection.
    pub client: usize,
    pub pid: u32,
    pub uid: u32,
    pub process: OwnedFd,
    pub name: String,
    pub kind: Kind,
    pub rank: u32,
    pub weight: u32,
    pub joined: Ns,
    pub memory: AppMemory,
    /// The pipes by which it is asked, one for each CPU, once it takes part.
    pub pipes: Vec<OwnedFd>,
    /// What it complains of, for each CPU.
    pub complaints: Vec<Vec<Complaint>>,
    pub overtime: Vec<Overtime>,
    /// Its threads that were made idle.
    pub demoted: Vec<Demoted>,
    pub demotions: u64,
}

impl Member {
    /// Returns whether it takes part.
    pub fn is_ready(&self) -> bool {
        !self.pipes.is_empty()
    }

    /// Returns its name and process, for messages.
    pub fn label(&self) -> (&str, u32) {
        (&self.name, self.pid)
    }

    /// Returns descriptors of its pipes for one other member. They are opened anew: what one member does to its
    /// descriptors changes nothing for another, which must never wait in a write.
    ///
    /// # Errors
    /// The system's: out of descriptors.
    pub fn open_pipes(&self) -> io::Result<Vec<OwnedFd>> {
        self.pipes.iter().map(open_anew).collect()
    }
}

/// Checks that each descriptor is a pipe.
pub fn are_pipes(fds: &[OwnedFd]) -> bool {
    // The kernel names it so by itself: no file system is asked, which might not answer.
    let name = |fd: &OwnedFd| fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    let is_pipe = |fd| {
        name(fd).is_ok_and(|name| name.to_str().is_some_and(|name| name.starts_with("pipe:[")))
    };
    fds.iter().all(is_pipe)
}

/// Opens a pipe again: for writing without waiting, and for reading too, so that no write ends in SIGPIPE because the
/// reader has died. One that reads takes nothing from the reader, whom the signal reaches all the same.
///
/// # Errors
/// The system's: it is another user's and this process not root's.
pub fn open_anew(pipe: &OwnedFd) -> io::Result<OwnedFd> {
    let without_waiting = OFlags::NONBLOCK.bits().cast_signed();
    let path = format!("/proc/self/fd/{}", pipe.as_fd().as_raw_fd());
    let mut options = File::options();
    options.read(true).write(true).custom_flags(without_waiting).open(path).map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::{PipeFlags, pipe_with};

    #[test]
    fn pipes_are_distinguished_from_other_files() {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        assert!(are_pipes(&[reader, writer]));
        let file: OwnedFd = File::open("/proc/self/status").unwrap().into();
        assert!(!are_pipes(&[file]));
    }

    #[test]
    fn a_pipe_opened_anew_never_waits_whatever_its_owner_does() {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap();
        let anew = open_anew(&writer).unwrap();
        let bytes = [0; 4096];
        while rustix::io::write(&anew, &bytes).is_ok() {}
        assert_eq!(rustix::io::write(&anew, &bytes), Err(rustix::io::Errno::AGAIN));
        drop(reader);
        let mut byte = [0; 1];
        assert_eq!(rustix::io::read(&anew, &mut byte), Ok(1));
        assert_eq!(
            rustix::io::write(&writer, &byte),
            Err(rustix::io::Errno::AGAIN),
            "and not EPIPE"
        );
    }
}
