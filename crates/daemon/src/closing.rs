//! Closing connections on which descriptors may wait that nobody has received. To close such a one can take for ever (see
//! [`crate::connection`]), so a thread with descriptors of its own does it, and of these there are few for each user.

use std::collections::BTreeMap;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use heddle_sys::apart::thread_apart;
use rustix::io::ioctl_fionread;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, ReturnFlags, recvmsg};

use crate::permits::ConnectionPermits;

/// Threads of a user that close at a time.
const THREADS_PER_USER: usize = 4;

/// Closes connections.
pub struct Closing {
    threads: Arc<ConnectionPermits>,
    /// Those for which there was no thread yet, by user.
    waiting: BTreeMap<u32, Vec<UnixStream>>,
}

impl Closing {
    /// Where no connection is closed yet.
    pub fn new() -> Self {
        Self { threads: ConnectionPermits::new(THREADS_PER_USER), waiting: BTreeMap::new() }
    }

    /// Closes a connection of user `uid`, now or when there is a thread for it. Nothing more is received or sent on it.
    pub fn close(&mut self, uid: u32, client: UnixStream) {
        // The client knows that it is over, however long it takes.
        let _ = client.shutdown(Shutdown::Both);
        if !is_empty(&client).unwrap_or(false) {
            self.waiting.entry(uid).or_default().push(client);
        }
        for (uid, waiting) in &mut self.waiting {
            while let Some(client) = waiting.pop() {
                let left = match self.threads.take(*uid) {
                    Some(permit) => close_apart(client.into(), permit).map_err(UnixStream::from),
                    None => Err(client),
                };
                if let Err(client) = left {
                    waiting.push(client);
                    break;
                }
            }
        }
        self.waiting.retain(|_, waiting| !waiting.is_empty());
    }
}

/// Closes `fd` in a thread of its own, which has `keep` until then; gives it back if there can be none.
pub fn close_apart<T: Send + 'static>(fd: OwnedFd, keep: T) -> Result<(), OwnedFd> {
    let close = move |fds| {
        drop::<Vec<OwnedFd>>(fds);
        drop(keep);
    };
    thread_apart("closing", vec![fd], close).map_err(|(_, mut fds)| fds.swap_remove(0))
}

/// Whether no descriptor waits on a connection on which nothing more is received.
fn is_empty(client: &UnixStream) -> io::Result<bool> {
    let waiting = usize::try_from(ioctl_fionread(client)?).unwrap_or(usize::MAX);
    let mut bytes = vec![0; waiting.min(1 << 20)];
    let mut piece = [io::IoSliceMut::new(&mut bytes)];
    // Without room for descriptors the kernel says that there are some, and keeps them.
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let seen = recvmsg(client.as_fd(), &mut piece, &mut RecvAncillaryBuffer::default(), flags)?;
    Ok(seen.bytes == waiting && !seen.flags.contains(ReturnFlags::CTRUNC))
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::io::Write as _;
    use std::sync::mpsc;
    use std::time::Duration;

    use heddle_steer::client::wire::send;
    use heddle_sys::locked::Locked;

    const SOON: Duration = Duration::from_secs(60);

    fn pair() -> (UnixStream, UnixStream) {
        UnixStream::pair().expect("a pair of sockets")
    }

    /// A connection in which a file waits that nobody can close, until the other is dropped.
    fn stuck() -> Option<(UnixStream, Locked)> {
        let (client, ours) = pair();
        let (file, _peer) = pair();
        let locked = Locked::epoll_of(file.as_fd()).ok()?;
        // The first message has none.
        (&client).write_all(b"x").expect("sent");
        send(&client, &(), &[file.into()], SOON).expect("sent");
        Some((ours, locked))
    }

    #[test]
    fn a_connection_without_descriptors_is_closed_at_once() {
        let mut closing = Closing::new();
        for n in [0, 1, 5000] {
            let (client, ours) = pair();
            (&client).write_all(&vec![7; n]).expect("sent");
            closing.close(7, ours);
            assert!((&client).write(b"x").is_err());
            assert!(closing.waiting.is_empty() && closing.threads.held() == 0);
        }
    }

    #[test]
    fn stuck_connections_block_no_one_else_and_use_few_threads_per_user() {
        // Where no fork of another test's has copies.
        let (sender, done) = mpsc::channel();
        thread_apart("test", Vec::new(), move |_| {
            sender
                .send(std::panic::catch_unwind(connections_that_cannot_be_closed))
                .expect("heard");
        })
        .expect("a thread");
        done.recv().expect("a result").expect("passed");
    }

    fn connections_that_cannot_be_closed() {
        let Some((first, locked)) = stuck() else {
            eprintln!("SKIPPED: needs userfaultfd, which is root's");
            return;
        };
        let mut closing = Closing::new();
        let wait = |closing: &Closing| closing.waiting.values().map(Vec::len).sum::<usize>();
        closing.close(7, first);
        let mut others = Vec::new();
        for _ in 0..THREADS_PER_USER + 2 {
            let (one, locked) = stuck().expect("another");
            closing.close(7, one);
            others.push(locked);
        }
        assert_eq!((closing.threads.held(), wait(&closing)), (THREADS_PER_USER, 3));
        let (another, locked_too) = stuck().expect("another");
        closing.close(8, another);
        assert_eq!((closing.threads.held(), wait(&closing)), (THREADS_PER_USER + 1, 3));
        drop((locked, others, locked_too));
        // Whoever comes later sees to those that waited.
        while closing.threads.held() + wait(&closing) > 0 {
            closing.close(9, pair().0);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
