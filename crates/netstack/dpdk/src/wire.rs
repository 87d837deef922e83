//! A queue of a port as the wire of a lane.

use crate::error::Error;
use crate::port::{Link, Stats, query};
use crate::shim::{self, Port, Receiver};
use heddle_netstack::wire::{Handle, Losses, Transmit, Wire};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// One queue of a port, in both directions.
///
/// [`Wire::publish`] gives frames to the driver. On a card that is a write to a register; `af_packet` and `tap` make
/// their system calls there, so under the lane's lock.
#[derive(Debug)]
pub struct DpdkWire {
    receiver: Receiver,
    sender: DpdkSender,
    /// Frames in several parts, which are not taken.
    parts: u64,
    /// The driver refused frames, which wait for the next poll.
    has_unsent: Arc<AtomicBool>,
}

/// The sending half of a [`DpdkWire`].
#[derive(Debug)]
pub struct DpdkSender {
    inner: shim::Sender,
    full: u64,
}

/// The handle of a [`DpdkWire`].
#[derive(Debug)]
pub struct DpdkHandle {
    port: Arc<Port>,
    queue: u16,
    has_unsent: Arc<AtomicBool>,
}

impl DpdkWire {
    pub(crate) fn new(receiver: Receiver, inner: shim::Sender) -> DpdkWire {
        let sender = DpdkSender { inner, full: 0 };
        DpdkWire { receiver, sender, parts: 0, has_unsent: Arc::default() }
    }

    /// Returns the Ethernet address of the port.
    ///
    /// # Errors
    /// The driver's.
    pub fn mac(&self) -> Result<[u8; 6], Error> {
        query("Ethernet address", self.receiver.port().mac())
    }

    /// Returns the state of the port's link.
    ///
    /// # Errors
    /// The driver's.
    pub fn link(&self) -> Result<Link, Error> {
        let (up, speed) = query("link", self.receiver.port().link())?;
        Ok(Link { up, speed })
    }

    /// Returns what the port has counted, on all its queues.
    ///
    /// # Errors
    /// The driver's.
    pub fn stats(&self) -> Result<Stats, Error> {
        query("counters", self.receiver.port().stats())
    }
}

impl Transmit for DpdkSender {
    #[inline]
    fn send_with(&mut self, length: usize, write: impl FnOnce(&mut [u8])) -> bool {
        let is_queued = self.inner.push(length, write);
        self.full += u64::from(!is_queued);
        is_queued
    }
}

impl Wire for DpdkWire {
    type Transmit = DpdkSender;
    type Handle = DpdkHandle;

    fn exchange(&mut self, max: usize, mut each: impl FnMut(&[u8], &mut DpdkSender)) -> usize {
        let DpdkWire { receiver, sender, parts, .. } = self;
        receiver.receive(max, |frame| match frame {
            [] => *parts += 1,
            frame => each(frame, sender),
        })
    }

    fn transmit(&mut self) -> &mut DpdkSender {
        &mut self.sender
    }

    fn publish(&mut self) -> u32 {
        let has_unsent = self.sender.inner.flush();
        self.has_unsent.store(has_unsent, Ordering::Relaxed);
        0
    }

    fn handle(&self) -> DpdkHandle {
        let (port, queue) = (Arc::clone(self.receiver.port()), self.receiver.number());
        DpdkHandle { port, queue, has_unsent: Arc::clone(&self.has_unsent) }
    }

    /// The port's losses are those of its first queue.
    fn losses(&self) -> Losses {
        let stats = match self.receiver.number() {
            0 => self.stats().unwrap_or_default(),
            _ => Stats::default(),
        };
        Losses {
            dropped: stats.receive_errors + stats.send_errors,
            receive_full: stats.missed,
            no_empty_frame: stats.no_buffer,
            send_full: self.sender.full,
            invalid: self.parts,
            ..Losses::default()
        }
    }
}

impl Handle for DpdkHandle {
    /// True if the driver cannot tell, which is so for af_packet, tap and null: then only a thread that polls anyway
    /// learns something.
    #[inline]
    fn is_ready(&self) -> bool {
        self.has_unsent.load(Ordering::Relaxed)
            || self.port.waiting(self.queue).is_none_or(|frames| frames > 0)
    }

    /// Does nothing: [`Wire::publish`] has given the frames to the driver.
    fn kick(&self) -> bool {
        false
    }

    /// There is none: DPDK polls.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
