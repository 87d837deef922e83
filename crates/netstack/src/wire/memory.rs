//! Queues in memory: two ends, for tests and benchmarks.

use super::{Handle, Losses, Segmentation, Transmit, Wire};
use heddle_tcp::checksum::{self, Sum};
use heddle_tcp::wire::Flags;
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type Frames = Arc<Mutex<VecDeque<Vec<u8>>>>;

/// Maximum number of frames on the way in a direction.
const CAPACITY: usize = 1024;

fn lock(frames: &Frames) -> MutexGuard<'_, VecDeque<Vec<u8>>> {
    frames.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One end; see [`pair`].
#[derive(Debug)]
pub struct MemoryWire {
    incoming: Frames,
    sender: MemorySender,
}

/// The sending half of a [`MemoryWire`].
#[derive(Debug)]
pub struct MemorySender {
    outgoing: Frames,
    full: u64,
    cuts: bool,
}

/// Returns two ends; what one sends, the other receives.
#[must_use]
pub fn pair() -> (MemoryWire, MemoryWire) {
    let (there, back) = (Frames::default(), Frames::default());
    let end = |incoming: &Frames, outgoing: &Frames| MemoryWire {
        incoming: Arc::clone(incoming),
        sender: MemorySender { outgoing: Arc::clone(outgoing), full: 0, cuts: false },
    };
    (end(&back, &there), end(&there, &back))
}

impl MemoryWire {
    /// Makes it take large frames, and cut them, as an interface with segmentation offload does.
    pub fn cut_large_frames(&mut self) {
        self.sender.cuts = true;
    }
}

impl MemorySender {
    fn is_full(&mut self) -> bool {
        let is_full = lock(&self.outgoing).len() >= CAPACITY;
        self.full += u64::from(is_full);
        is_full
    }
}

impl Transmit for MemorySender {
    fn send_with(&mut self, length: usize, write: impl FnOnce(&mut [u8])) -> bool {
        if self.is_full() {
            return false;
        }
        let mut frame = vec![0; length];
        write(&mut frame);
        lock(&self.outgoing).push_back(frame);
        true
    }

    fn has_large(&self) -> bool {
        self.cuts
    }

    fn largest(&mut self) -> usize {
        if self.cuts { usize::from(u16::MAX) } else { 0 }
    }

    fn send_large(
        &mut self,
        how: Segmentation,
        length: usize,
        write: impl FnOnce(&mut [u8]),
    ) -> bool {
        if !self.cuts || self.is_full() {
            return false;
        }
        let mut frame = vec![0; length];
        write(&mut frame);
        lock(&self.outgoing).extend(cut(&frame, how));
        true
    }
}

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;

/// Cuts a large frame as the kernel does.
fn cut(frame: &[u8], how: Segmentation) -> Vec<Vec<u8>> {
    let Segmentation { is_v6, before, header, payload } = how;
    let (before, header, step) = (usize::from(before), usize::from(header), usize::from(payload));
    let (heads, body) = frame.split_at(before + header);
    let count = body.len().div_ceil(step);
    let unfinished = u16::from_be_bytes([heads[before + 16], heads[before + 17]]);
    let piece = |(number, body): (usize, &[u8])| {
        let mut piece = [heads, body].concat();
        let (ip, tcp) = piece[ETHERNET..].split_at_mut(before - ETHERNET);
        let length = |bytes: usize| u16::try_from(bytes).unwrap_or(u16::MAX).to_be_bytes();
        if is_v6 {
            ip[4..6].copy_from_slice(&length(tcp.len()));
        } else {
            ip[2..4].copy_from_slice(&length(before - ETHERNET + tcp.len()));
            ip[10..12].fill(0);
            let sum = checksum::checksum(ip);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        let first = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
        let seq = first.wrapping_add((number * step) as u32);
        tcp[4..8].copy_from_slice(&seq.to_be_bytes());
        if number + 1 < count {
            tcp[13] &= !(Flags::FIN.0 | Flags::PSH.0);
        }
        // The sum of the pseudo header is in the field; its length becomes the piece's (RFC 1624).
        let mut sum = Sum::new();
        sum.add(&unfinished.to_be_bytes());
        sum.add(&(!((header + frame.len() - heads.len()) as u16)).to_be_bytes());
        sum.add(&(tcp.len() as u16).to_be_bytes());
        tcp[16..18].fill(0);
        sum.add(tcp);
        tcp[16..18].copy_from_slice(&sum.finish().to_be_bytes());
        piece
    };
    body.chunks(step).enumerate().map(piece).collect()
}

impl Wire for MemoryWire {
    type Transmit = MemorySender;
    type Handle = MemoryHandle;

    fn exchange(&mut self, max: usize, mut each: impl FnMut(&[u8], &mut MemorySender)) -> usize {
        let mut count = 0;
        while count < max {
            let Some(frame) = lock(&self.incoming).pop_front() else { break };
            each(&frame, &mut self.sender);
            count += 1;
        }
        count
    }

    fn transmit(&mut self) -> &mut MemorySender {
        &mut self.sender
    }

    fn publish(&mut self) -> u32 {
        0
    }

    fn handle(&self) -> MemoryHandle {
        MemoryHandle(Arc::clone(&self.incoming))
    }

    fn losses(&self) -> Losses {
        Losses { send_full: self.sender.full, ..Losses::default() }
    }
}

/// The handle of a [`MemoryWire`].
#[derive(Debug)]
pub struct MemoryHandle(Frames);

impl Handle for MemoryHandle {
    fn is_ready(&self) -> bool {
        !lock(&self.0).is_empty()
    }

    fn kick(&self) -> bool {
        false
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
