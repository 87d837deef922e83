//! Queues in memory: two ends, for tests and benchmarks.

use super::{Handle, Losses, Transmit, Wire};
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
}

/// Returns two ends; what one sends, the other receives.
#[must_use]
pub fn pair() -> (MemoryWire, MemoryWire) {
    let (there, back) = (Frames::default(), Frames::default());
    let end = |incoming: &Frames, outgoing: &Frames| MemoryWire {
        incoming: Arc::clone(incoming),
        sender: MemorySender { outgoing: Arc::clone(outgoing), full: 0 },
    };
    (end(&back, &there), end(&there, &back))
}

impl Transmit for MemorySender {
    fn send_with(&mut self, length: usize, write: impl FnOnce(&mut [u8])) -> bool {
        if lock(&self.outgoing).len() >= CAPACITY {
            self.full += 1;
            return false;
        }
        let mut frame = vec![0; length];
        write(&mut frame);
        lock(&self.outgoing).push_back(frame);
        true
    }
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
