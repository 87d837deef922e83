//! The threads, each with its sockets, a partition of the store, and a queue of requests received by others for it.

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver as Queue, Sender, bounded};
use heddle_xsk::FrameAction;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::network::Receiver;
use super::partition::{Partition, REQUEST, home, key_of};

/// Most frames queued for a thread; further ones are dropped.
const QUEUE: usize = 1024;
/// Requests of each socket between two checks of the queue.
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
    pub fn start(receivers: Vec<Receiver>) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (mut doors, mut queues) = (Vec::new(), Vec::new());
        for _ in &receivers {
            let (frames, queue) = bounded(QUEUE);
            doors.push(Mailbox { frames, bell: eventfd(0, EventfdFlags::NONBLOCK)? });
            queues.push(queue);
        }
        let doors = Arc::new(doors);
        let start = |((own, receiver), queue)| {
            let (stop, doors) = (Arc::clone(&stop), Arc::clone(&doors));
            thread::spawn(move || Worker::new(own, receiver, queue, doors).run(&stop))
        };
        let threads = (0..).zip(receivers).zip(queues).map(start).collect();
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
    receiver: Receiver,
    queue: Queue<Vec<u8>>,
    doors: Arc<Vec<Mailbox>>,
    partition: Partition,
    served: Served,
}

impl Worker {
    fn new(own: u32, receiver: Receiver, queue: Queue<Vec<u8>>, doors: Arc<Vec<Mailbox>>) -> Self {
        let partition = Partition::new(own, u32::try_from(doors.len()).unwrap_or(1));
        Self { own, receiver, queue, doors, partition, served: Served::default() }
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
        let (doors, own, partition) = (&self.doors, self.own, &mut self.partition);
        let served = &mut self.served;
        let threads = u32::try_from(doors.len()).unwrap_or(1);
        let sockets = match &mut self.receiver {
            Receiver::Xdp(sockets) => sockets,
            Receiver::Udp(socket) => return serve(socket, partition, served),
        };
        let mut count = 0;
        for socket in sockets {
            count += socket.receive(BATCH, |frame| {
                served.requests += 1;
                let to = key_of(frame.bytes()).map_or(own, |key| home(key, threads));
                if to == own {
                    partition.serve_frame(frame.bytes_mut());
                    return FrameAction::Send;
                }
                served.passed_on += 1;
                pass_on(&doors[to as usize], frame.bytes());
                FrameAction::Recycle
            })?;
        }
        Ok(count)
    }

    /// Serves requests that others received for this thread.
    fn take_over(&mut self) -> io::Result<usize> {
        let Receiver::Xdp(sockets) = &mut self.receiver else { return Ok(0) };
        // Each thread sends them on a queue of its own, as far as there are enough.
        let at = self.own as usize % sockets.len();
        let mut count = 0;
        for mut frame in self.queue.try_iter().take(BATCH) {
            self.partition.serve_frame(&mut frame);
            // Requests that do not fit are lost, as in a full kernel queue; the client counts them.
            let _ = sockets[at].send(&frame);
            count += 1;
        }
        if count > 0 {
            sockets[at].flush()?;
        }
        Ok(count)
    }

    fn sleep(&self) -> io::Result<()> {
        let bell = &self.doors[self.own as usize].bell;
        let of = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let mut fds = vec![of(bell.as_fd())];
        match &self.receiver {
            Receiver::Xdp(sockets) => fds.extend(sockets.iter().map(|socket| of(socket.as_fd()))),
            Receiver::Udp(socket) => fds.push(of(socket.as_fd())),
        }
        poll(&mut fds, Some(&NAP))?;
        // Drained before the queue is checked, so that no wakeup is missed.
        let _ = rustix::io::read(bell, &mut [0; 8]);
        Ok(())
    }
}

/// Serves what waits in an ordinary socket, whose requests are all for this thread's keys.
fn serve(socket: &UdpSocket, partition: &mut Partition, served: &mut Served) -> io::Result<usize> {
    let mut datagram = [0; REQUEST];
    for count in 0..BATCH {
        let client = match socket.recv_from(&mut datagram) {
            Ok((_, client)) => client,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(count),
            Err(error) => return Err(error),
        };
        served.requests += 1;
        let _ = partition.serve(&mut datagram);
        // An answer for which there is no room is lost, and the client counts it.
        match socket.send_to(&datagram, client) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
    }
    Ok(BATCH)
}

fn pass_on(door: &Mailbox, frame: &[u8]) {
    if door.frames.try_send(frame.to_vec()).is_ok() {
        let _ = rustix::io::write(&door.bell, &1_u64.to_ne_bytes());
    }
}
