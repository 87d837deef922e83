//! The threads, each with a socket, a partition of the store, and a queue of requests received by others for it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver, Sender, bounded};
use heddle_xsk::{FrameAction, XdpSocket};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::partition::{Partition, home, key_of};

/// Most frames queued for a thread; further ones are dropped.
const QUEUE: usize = 1024;
/// Frames between two checks of the queue.
const BATCH: usize = 32;
/// How long a thread sleeps before it checks whether it should end.
const NAP: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// Counts of the threads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Served {
    pub requests: u64,
    pub passed_on: u64,
}

/// Running threads.
pub struct Server {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<io::Result<Served>>>,
}

/// The queue to a thread from the others.
struct Mailbox {
    frames: Sender<Vec<u8>>,
    bell: OwnedFd,
}

impl Server {
    pub fn start(sockets: Vec<XdpSocket>) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (mut doors, mut queues) = (Vec::new(), Vec::new());
        for _ in &sockets {
            let (frames, queue) = bounded(QUEUE);
            doors.push(Mailbox { frames, bell: eventfd(0, EventfdFlags::NONBLOCK)? });
            queues.push(queue);
        }
        let doors = Arc::new(doors);
        let start = |((own, socket), queue)| {
            let (stop, doors) = (Arc::clone(&stop), Arc::clone(&doors));
            thread::spawn(move || Worker::new(own, socket, queue, doors).run(&stop))
        };
        let threads = (0..).zip(sockets).zip(queues).map(start).collect();
        Ok(Self { stop, threads })
    }

    /// Stops the threads; returns their total counts.
    pub fn stop(mut self) -> io::Result<Served> {
        let mut all = Served::default();
        for served in self.join() {
            let served = served?;
            all.requests += served.requests;
            all.passed_on += served.passed_on;
        }
        Ok(all)
    }

    fn join(&mut self) -> Vec<io::Result<Served>> {
        self.stop.store(true, Ordering::Relaxed);
        let panicked = |_| Err(io::Error::other("a thread of the server panicked"));
        self.threads.drain(..).map(|thread| thread.join().unwrap_or_else(panicked)).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.join();
    }
}

struct Worker {
    own: u32,
    socket: XdpSocket,
    queue: Receiver<Vec<u8>>,
    doors: Arc<Vec<Mailbox>>,
    partition: Partition,
    served: Served,
}

impl Worker {
    fn new(
        own: u32,
        socket: XdpSocket,
        queue: Receiver<Vec<u8>>,
        doors: Arc<Vec<Mailbox>>,
    ) -> Self {
        let partition = Partition::new(own, u32::try_from(doors.len()).unwrap_or(1));
        Self { own, socket, queue, doors, partition, served: Served::default() }
    }

    fn run(mut self, stop: &AtomicBool) -> io::Result<Served> {
        while !stop.load(Ordering::Relaxed) {
            if self.receive()? + self.take_over()? == 0 {
                self.sleep()?;
            }
        }
        Ok(self.served)
    }

    /// Serves received requests for this thread's keys, and forwards the rest.
    fn receive(&mut self) -> io::Result<usize> {
        let (doors, own, partition) = (&self.doors, self.own, &self.partition);
        let served = &mut self.served;
        let threads = u32::try_from(doors.len()).unwrap_or(1);
        self.socket.receive(BATCH, |frame| {
            served.requests += 1;
            let to = key_of(frame.bytes()).map_or(own, |key| home(key, threads));
            if to == own {
                partition.serve(frame.bytes_mut());
                return FrameAction::Send;
            }
            served.passed_on += 1;
            pass_on(&doors[to as usize], frame.bytes());
            FrameAction::Recycle
        })
    }

    /// Serves requests that others received for this thread.
    fn take_over(&mut self) -> io::Result<usize> {
        let mut count = 0;
        for mut frame in self.queue.try_iter().take(BATCH) {
            self.partition.serve(&mut frame);
            // Requests that do not fit are lost, as in a full kernel queue; the client counts them.
            let _ = self.socket.send(&frame);
            count += 1;
        }
        if count > 0 {
            self.socket.flush()?;
        }
        Ok(count)
    }

    fn sleep(&self) -> io::Result<()> {
        let bell = &self.doors[self.own as usize].bell;
        let of = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        use std::os::fd::AsFd as _;
        let mut fds = [of(self.socket.as_fd()), of(bell.as_fd())];
        poll(&mut fds, Some(&NAP))?;
        // Drained before the queue is checked, so that no wakeup is missed.
        let _ = rustix::io::read(bell, &mut [0; 8]);
        Ok(())
    }
}

fn pass_on(door: &Mailbox, frame: &[u8]) {
    if door.frames.try_send(frame.to_vec()).is_ok() {
        let _ = rustix::io::write(&door.bell, &1_u64.to_ne_bytes());
    }
}
