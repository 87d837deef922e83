//! Closing what clients have sent. A descriptor can be of any file, and the end of some waits for a server that its
//! sender runs; so does that of a connection on which descriptors were not received. Each user has a thread for it.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use heddle_share::wire::{NoMessage, receive_packet};
use rustix::net::{Shutdown, shutdown};

/// What may wait to be closed, for each user.
const MOST: usize = 1024;

/// The threads that close.
#[derive(Debug, Default)]
pub struct Closing {
    users: BTreeMap<u32, Queue>,
}

#[derive(Debug)]
struct Queue {
    sender: Sender<(OwnedFd, Content)>,
    waiting: Arc<AtomicUsize>,
}

/// What is in a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    /// What a client has sent.
    Unknown,
    /// Its connection.
    Connection,
}

impl Closing {
    /// Closes descriptors that user `uid` has sent, soon.
    pub fn close(&mut self, uid: u32, fds: impl IntoIterator<Item = OwnedFd>) {
        fds.into_iter().for_each(|fd| self.put(uid, fd, Content::Unknown));
    }

    /// Closes a connection of user `uid`, soon; the client hears what was said last.
    pub fn close_connection(&mut self, uid: u32, socket: OwnedFd) {
        self.put(uid, socket, Content::Connection);
    }

    fn put(&mut self, uid: u32, fd: OwnedFd, content: Content) {
        let queue = self.users.entry(uid).or_insert_with(Queue::new);
        queue.waiting.fetch_add(1, Ordering::Relaxed);
        // Without a thread it is closed here.
        let _ = queue.sender.send((fd, content));
    }

    /// Returns whether so much of a user waits to be closed that the user's clients must be refused.
    pub fn is_stuck(&self, uid: u32) -> bool {
        self.users.get(&uid).is_some_and(|queue| queue.waiting.load(Ordering::Relaxed) > MOST)
    }
}

impl Queue {
    fn new() -> Queue {
        let (sender, receiver): (_, Receiver<(OwnedFd, Content)>) = channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let done = Arc::clone(&waiting);
        let work = move || {
            for (fd, content) in receiver {
                if content == Content::Connection {
                    drain(&fd);
                }
                drop(fd);
                done.fetch_sub(1, Ordering::Relaxed);
            }
        };
        // The thread ends with the broker.
        let builder = thread::Builder::new().name("heddle-closing".into());
        let _ = builder.stack_size(256 << 10).spawn(work);
        Queue { sender, waiting }
    }
}

/// Reads what a client has sent and was not heard: if it were left, the client would learn of that instead of the
/// broker's last word. Nothing can be sent any more.
fn drain(socket: &OwnedFd) {
    let _ = shutdown(socket, Shutdown::Both);
    while receive_packet(socket).is_ok_and(|packet| packet.message != Err(NoMessage::Gone)) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_test_support::until;

    #[test]
    fn descriptors_are_closed_and_their_other_ends_learn_of_it() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let mut closing = Closing::default();
        closing.close(1, []);
        assert!(closing.users.is_empty());
        closing.close(1, [reader]);
        until("the reading end is closed", || rustix::io::write(&writer, &[0]).is_err());
        assert!(!closing.is_stuck(1));
    }
}
