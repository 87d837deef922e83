//! What a client sends, received where its descriptors do no harm.
//!
//! A descriptor may be of a file system that its owner serves (FUSE): to close it can take for ever, and no signal ends that. So
//! messages are received by a thread with a table of descriptors of its own, and only what heddled works with goes on
//! into heddled's: sockets, processes and maps, whose closing waits for nobody. A thread that hangs keeps its user's place.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use heddle_steer::client::wire::{Call, receive, send};
use heddle_steer::request::{Error, ErrorKind};
use heddle_sys::apart::thread_apart;

use crate::places::Place;

/// How the kernel names what may come: `socket:[4711]`. A file's name begins with a slash.
const KINDS: [&str; 4] = ["socket:[", "anon_inode:[pidfd]", "pidfd:[", "anon_inode:bpf-map"];

/// The messages of one client.
pub struct Receiver {
    /// The thread's end is at the other side.
    inner: UnixStream,
    patience: Duration,
}

/// What the thread passes on.
type Passed = Result<Option<Call>, Error>;

impl Receiver {
    /// Of what `client` sends, each message within `patience`. The thread has `place` for as long as it lives.
    ///
    /// # Errors
    /// The system's: there can be no thread.
    pub fn start(client: &UnixStream, patience: Duration, place: Arc<Place>) -> io::Result<Self> {
        let (inner, outer) = UnixStream::pair()?;
        thread_apart("receiver", &[outer.as_fd(), client.as_fd()], move |fds| {
            let mut streams = fds.into_iter().map(UnixStream::from);
            if let (Some(outer), Some(client)) = (streams.next(), streams.next()) {
                pass_on(&client, &outer, patience);
            }
            drop(place);
        })?;
        Ok(Self { inner, patience })
    }

    /// The next message; none if the client has said all it had to say.
    ///
    /// # Errors
    /// If it is none, does not come in time, or has a descriptor that is neither a socket nor a process nor a map.
    pub fn next(&self) -> Result<Option<(Call, Vec<OwnedFd>)>, Error> {
        let lost = |error| Error::system("the receiver of messages is gone", &error);
        (&self.inner).write_all(&[0]).map_err(lost)?;
        // The thread takes its time, and then as long as it takes to pass on what came.
        match receive::<Passed>(&self.inner, 2 * self.patience)? {
            Some((Ok(Some(call)), fds)) => Ok(Some((call, fds))),
            Some((Ok(None), _)) | None => Ok(None),
            Some((Err(error), _)) => Err(error),
        }
    }
}

/// The thread: a message for each byte that `outer` says.
fn pass_on(client: &UnixStream, mut outer: &UnixStream, patience: Duration) {
    while outer.read_exact(&mut [0]).is_ok() {
        let (passed, fds): (Passed, Vec<OwnedFd>) = match receive::<Call>(client, patience) {
            Ok(Some((call, fds))) => (Ok(Some(call)), fds),
            Ok(None) => (Ok(None), Vec::new()),
            Err(error) => (Err(error), Vec::new()),
        };
        let sent = match fds.iter().find_map(strange) {
            None => send(outer, &passed, &fds, patience),
            Some(error) => send(outer, &Passed::Err(error), &[], patience),
        };
        // It may hang from here on.
        drop(fds);
        if sent.is_err() {
            return;
        }
    }
}

/// What is wrong with a descriptor.
fn strange(fd: &OwnedFd) -> Option<Error> {
    // Its name is asked of nobody's file system.
    let name = fs::read_link(format!("/proc/thread-self/fd/{}", fd.as_raw_fd()));
    let name = name.map(|name| name.to_string_lossy().into_owned());
    let name = match name {
        Ok(name) if KINDS.iter().any(|kind| name.starts_with(kind)) => return None,
        Ok(name) => name.chars().filter(|c| !c.is_control()).take(200).collect(),
        Err(error) => error.to_string(),
    };
    let text = format!("a descriptor of {name}, which is no socket, no process and no map");
    Some(Error::new(ErrorKind::Invalid, text))
}
