//! Closing connections whose queue may hold descriptors that were never received. Closing one can take
//! forever (see [`crate::connection`]), so a thread with its own descriptor table does it; each user gets
//! only a few such threads.

use std::collections::BTreeMap;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use heddle_sys::isolated::spawn_thread;
use rustix::io::ioctl_fionread;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, ReturnFlags, recvmsg};

use crate::permits::ConnectionPermits;

/// Threads that close at a time, per user.
const THREADS_PER_USER: usize = 4;

/// Closes connections.
pub struct Closing {
    threads: Arc<ConnectionPermits>,
    /// Connections for which there was no thread yet, by user.
    waiting: BTreeMap<u32, Vec<UnixStream>>,
}

impl Closing {
    /// Creates one with no connection to close.
    pub fn new() -> Self {
        Self { threads: ConnectionPermits::new(THREADS_PER_USER), waiting: BTreeMap::new() }
    }

    /// Closes a connection of user `uid`, now or once a thread is free. Nothing more is received or sent on
    /// it.
    pub fn close(&mut self, uid: u32, client: UnixStream) {
        // The client sees the end at once, however long the close takes.
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

/// Closes `fd` in a new thread with its own descriptor table, which holds `keep` meanwhile; returns it if no
/// thread can be started.
pub fn close_apart<T: Send + 'static>(fd: OwnedFd, keep: T) -> Result<(), OwnedFd> {
    let close = move |fds| {
        drop::<Vec<OwnedFd>>(fds);
        drop(keep);
    };
    spawn_thread("closing", vec![fd], close).map_err(|(_, mut fds)| fds.swap_remove(0))
}

/// Returns whether no descriptor is queued on a connection that has been shut down.
fn is_empty(client: &UnixStream) -> io::Result<bool> {
    let waiting = usize::try_from(ioctl_fionread(client)?).unwrap_or(usize::MAX);
    let mut bytes = vec![0; waiting.min(1 << 20)];
    let mut piece = [io::IoSliceMut::new(&mut bytes)];
    // Without room for descriptors the kernel reports that there are some, and keeps them.
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

    /// Returns a connection with a queued file that cannot be closed until the other value is dropped.
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
        // In a separate descriptor table, so that forks of other tests hold no copies.
        let (sender, done) = mpsc::channel();
        spawn_thread("test", Vec::new(), move |_| {
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
        // The next close also handles those that waited.
        while closing.threads.held() + wait(&closing) > 0 {
            closing.close(9, pair().0);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
