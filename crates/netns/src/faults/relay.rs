//! A program between two ends that passes frames on, with faults.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::{RecvFlags, SendFlags, sockopt};

use super::{Impairment, RelayCounts, RelayOptions};
use crate::pair::{TO_FAR, TO_NEAR};
use crate::{Namespace, Pair};

/// The longest frame: that of an interface with jumbo frames.
const FRAME: usize = 9216;
/// What may wait for the thread, in bytes of the kernel's; a small frame takes 768.
const BUFFER: usize = 8 << 20;
/// Frames read from one side before the other gets its turn.
const BATCH: usize = 64;

/// The directions, in the order of their sockets: what one receives goes out by the other.
const FROM_NEAR: usize = 0;
const FROM_FAR: usize = 1;

/// A pair of namespaces whose frames pass through a thread of this process, with faults.
///
/// ```no_run
/// use heddle_netns::faults::{Relay, RelayOptions};
///
/// let relay = Relay::new(1, RelayOptions { loss: 0.01, ..RelayOptions::default() })?;
/// let server = relay.net.near.run(|| std::net::TcpListener::bind((heddle_netns::NEAR4, 80)))?;
/// // From now on, nothing that is longer than 1,000 bytes arrives at the client.
/// relay.set_to_far(RelayOptions { mtu: Some(1000), ..RelayOptions::default() });
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Relay {
    /// The ends, as those of a usual pair.
    pub net: Pair,
    directions: Arc<Directions>,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    _middle: Namespace,
}

type Directions = [Mutex<Impairment>; 2];

impl Relay {
    /// Creates the namespaces, with interfaces of `queues` queues, and starts to pass frames on. Both directions have
    /// the same options, and random numbers of their own.
    ///
    /// # Errors
    /// The message of `ip` or `ethtool`; usually a lack of privilege.
    pub fn new(queues: u32, options: RelayOptions) -> io::Result<Self> {
        let middle = Namespace::new()?;
        // Its own kernel sends nothing.
        let _ = middle.set("ipv6/conf/all/disable_ipv6", "1");
        let net = Pair::through(&middle, queues)?;
        net.introduce()?;
        let open = |interface| {
            let index = middle.index_of(interface)?;
            let socket = middle.run(|| heddle_sys::packet::socket(index))?;
            sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER)?;
            Ok::<_, io::Error>(socket)
        };
        let sockets = [open(TO_NEAR)?, open(TO_FAR)?];
        let directions =
            [FROM_NEAR, FROM_FAR].map(|direction| Impairment::new(salted(options, direction)));
        let directions = Arc::new(directions.map(Mutex::new));
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let pump = Pump {
            sockets,
            directions: Arc::clone(&directions),
            stop: Arc::clone(&stop),
            begin: Instant::now(),
            buffer: vec![0; FRAME],
        };
        let builder = std::thread::Builder::new().name("relay".into());
        let thread = Some(builder.spawn(move || pump.run())?);
        Ok(Self { net, directions, stop, thread, _middle: middle })
    }

    /// Changes what happens to frames on their way to the near end.
    pub fn set_to_near(&self, options: RelayOptions) {
        lock(&self.directions[FROM_FAR]).set(salted(options, FROM_FAR));
    }

    /// Changes what happens to frames on their way to the far end.
    pub fn set_to_far(&self, options: RelayOptions) {
        lock(&self.directions[FROM_NEAR]).set(salted(options, FROM_NEAR));
    }

    /// Returns what happened to frames on their way to the near end.
    #[must_use]
    pub fn to_near(&self) -> RelayCounts {
        lock(&self.directions[FROM_FAR]).counts()
    }

    /// Returns what happened to frames on their way to the far end.
    #[must_use]
    pub fn to_far(&self) -> RelayCounts {
        lock(&self.directions[FROM_NEAR]).counts()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Makes the random numbers of the directions differ.
fn salted(options: RelayOptions, direction: usize) -> RelayOptions {
    RelayOptions { seed: super::mix(options.seed.wrapping_add(direction as u64)), ..options }
}

fn lock(direction: &Mutex<Impairment>) -> MutexGuard<'_, Impairment> {
    direction.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread's state.
struct Pump {
    sockets: [OwnedFd; 2],
    directions: Arc<Directions>,
    stop: Arc<OwnedFd>,
    begin: Instant,
    buffer: Vec<u8>,
}

impl Pump {
    fn run(mut self) {
        while self.wait() {
            for direction in [FROM_NEAR, FROM_FAR] {
                self.receive(direction);
                self.send(direction);
            }
        }
    }

    /// Sleeps until a frame comes in or must go out. Returns false at the end.
    fn wait(&self) -> bool {
        let next = self.directions.iter().filter_map(|direction| lock(direction).next()).min();
        let left = next.map(|next| next.saturating_sub(self.begin.elapsed()));
        let timeout = left.map(|left| Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        });
        let input = PollFlags::IN;
        let mut fds = [
            PollFd::new(&self.sockets[0], input),
            PollFd::new(&self.sockets[1], input),
            PollFd::new(&*self.stop, input),
        ];
        let _ = poll(&mut fds, timeout.as_ref());
        !fds[2].revents().contains(input)
    }

    fn receive(&mut self, direction: usize) {
        let missed = heddle_sys::packet::take_lost(self.sockets[direction].as_fd()).unwrap_or(0);
        lock(&self.directions[direction]).miss(missed.into());
        for _ in 0..BATCH {
            let received = rustix::net::recv(
                &self.sockets[direction],
                &mut self.buffer[..],
                RecvFlags::empty(),
            );
            let Ok((_, length)) = received else { return };
            let frame = self.buffer[..length.min(FRAME)].to_vec();
            lock(&self.directions[direction]).offer(self.begin.elapsed(), frame);
        }
    }

    fn send(&self, direction: usize) {
        let out = &self.sockets[1 - direction];
        loop {
            let frame = lock(&self.directions[direction]).take(self.begin.elapsed());
            let Some(frame) = frame else { return };
            // A full device loses the frame, as a full switch would.
            let _ = rustix::net::send(out, &frame, SendFlags::empty());
        }
    }
}
