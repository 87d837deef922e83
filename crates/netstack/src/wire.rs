//! What a lane receives frames from and sends them to: an AF_XDP socket, or queues in memory.

mod memory;
mod xsk;

pub use heddle_xsk::{FrameCounts, Segmentation};
pub use memory::{MemoryHandle, MemoryWire, pair};
pub use xsk::{OpenError, XskHandle, XskWire, open_queue};

use std::os::fd::BorrowedFd;

/// A place to put frames for sending.
pub trait Transmit {
    /// Queues a frame of `length` bytes that `write` builds in place, from the Ethernet header on. Returns false if too
    /// many wait to be sent, or if it is too long.
    fn send_with(&mut self, length: usize, write: impl FnOnce(&mut [u8])) -> bool;

    /// Returns whether it takes large frames, now or later.
    fn has_large(&self) -> bool {
        false
    }

    /// Returns the bytes of the largest frame that [`Transmit::send_large`] takes now; 0, the default, is none.
    fn largest(&mut self) -> usize {
        0
    }

    /// As [`Transmit::send_with`], for a frame with a TCP segment that is cut as `how` says.
    fn send_large(
        &mut self,
        how: Segmentation,
        length: usize,
        write: impl FnOnce(&mut [u8]),
    ) -> bool {
        let _ = (how, length, write);
        false
    }

    /// Returns the number of the batch of large frames that wait to be sent, if any do.
    #[inline]
    fn batch(&self) -> Option<u16> {
        None
    }

    /// As [`Transmit::send_with`], behind the large frames that wait: others may overtake these.
    fn send_behind(&mut self, length: usize, write: impl FnOnce(&mut [u8])) -> bool {
        self.send_with(length, write)
    }
}

/// Frames in and out. One thread at a time uses it; what others may do is its [`Handle`].
pub trait Wire: Send {
    /// Where frames are sent.
    type Transmit: Transmit;
    /// See [`Handle`].
    type Handle: Handle;

    /// Passes up to `max` frames that have arrived to `each`, with the place for answers. Returns their number.
    fn exchange(&mut self, max: usize, each: impl FnMut(&[u8], &mut Self::Transmit)) -> usize;

    /// Returns the place for frames that are not answers.
    fn transmit(&mut self) -> &mut Self::Transmit;

    /// Makes queued frames visible to their sender. Returns of how many it must be told ([`Handle::kick`]).
    fn publish(&mut self) -> u32;

    /// Returns a handle for any thread.
    fn handle(&self) -> Self::Handle;

    /// Returns what was lost so far.
    fn losses(&self) -> Losses;

    /// Returns where the frames of its receive queue are; zeros if they are not counted.
    fn frames(&self) -> FrameCounts {
        FrameCounts::default()
    }
}

/// What any thread may do with a wire, without its lock.
pub trait Handle: Send + Sync {
    /// Returns whether frames wait. A few nanoseconds; no system call.
    fn is_ready(&self) -> bool;

    /// Has published frames sent. In copy mode this is the transmission itself: microseconds. Returns whether some are
    /// left that cannot be sent now.
    fn kick(&self) -> bool;

    /// Returns the descriptor that becomes readable when frames arrive, if there is one.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
}

/// Frames that a wire lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Dropped by the kernel: too large for a frame, or out of memory.
    pub dropped: u64,
    /// Dropped by the kernel because too many waited to be received.
    pub receive_full: u64,
    /// How often the kernel found no empty frame.
    pub no_empty_frame: u64,
    /// Not sent because too many waited to be sent.
    pub send_full: u64,
    /// Large frames, and frames behind them, that the kernel refused to send.
    pub refused: u64,
    /// Invalid descriptors, from or to the kernel.
    pub invalid: u64,
}

impl Losses {
    /// Returns names and values, for tables and exporters.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        [
            ("dropped", self.dropped),
            ("receive_full", self.receive_full),
            ("no_empty_frame", self.no_empty_frame),
            ("send_full", self.send_full),
            ("refused", self.refused),
            ("invalid", self.invalid),
        ]
        .into_iter()
    }
}

impl std::ops::AddAssign for Losses {
    fn add_assign(&mut self, other: Losses) {
        self.dropped += other.dropped;
        self.receive_full += other.receive_full;
        self.no_empty_frame += other.no_empty_frame;
        self.send_full += other.send_full;
        self.refused += other.refused;
        self.invalid += other.invalid;
    }
}
