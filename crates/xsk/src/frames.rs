//! Ownership of the frames. Plain arithmetic on offsets from the start of the memory; touches no memory.

/// No frame is free for sending: too many wait to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl std::fmt::Display for Full {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no free frame: too many wait to be sent")
    }
}

impl std::error::Error for Full {}

/// Where the frames of a queue are (I1): `filling + sending + free = all`, unless the kernel has named a frame that
/// does not exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameCounts {
    /// All frames of the queue.
    pub all: u32,
    /// With the kernel to be filled, or filled and not yet taken.
    pub filling: u32,
    /// On their way out, or in reserve with a socket of the queue.
    pub sending: u32,
    /// Free.
    pub free: u32,
    /// Of those `sending`, in reserve with this socket.
    pub reserved: u32,
}

impl std::ops::AddAssign for FrameCounts {
    fn add_assign(&mut self, other: FrameCounts) {
        self.all += other.all;
        self.filling += other.filling;
        self.sending += other.sending;
        self.free += other.free;
        self.reserved += other.reserved;
    }
}

/// How the memory is divided into frames.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Bytes per frame: a power of two.
    pub(super) size: u32,
    /// Maximum number of frames that the kernel may fill or has filled and that were not yet taken; as many again may
    /// be on their way out.
    pub(super) half: u32,
}

impl Layout {
    /// Returns the size of the memory in bytes.
    pub(super) fn bytes(self) -> usize {
        self.half as usize * 2 * self.size as usize
    }

    /// Returns the start of the frame that holds `length` bytes from `address` on; `None` if no single frame does.
    pub(super) fn frame_of(self, address: u64, length: u32) -> Option<u64> {
        let size = u64::from(self.size);
        let start = address & !(size - 1);
        let inside = start < size * u64::from(self.half) * 2;
        let fits = (address - start).saturating_add(u64::from(length)) <= size;
        (inside && fits).then_some(start)
    }

    /// Returns the end of the frame that starts at `start`.
    pub(super) fn end_of(self, start: u64) -> u64 {
        start + u64::from(self.size)
    }
}

/// The owner of each frame (I1): `filling + sending + free = all`. At most half are `sending`, so that some are always
/// left for receiving.
#[derive(Debug)]
pub(super) struct Account {
    half: u32,
    /// Starts of the free frames.
    free: Vec<u64>,
    filling: u32,
    sending: u32,
}

impl Account {
    /// Returns an account in which all frames of `layout` are free.
    pub(super) fn new(layout: Layout) -> Self {
        let free = (0..u64::from(layout.half) * 2).map(|n| n * u64::from(layout.size)).collect();
        Self { half: layout.half, free, filling: 0, sending: 0 }
    }

    /// Takes a free frame for the kernel to fill; `None` if the kernel has half of all frames, or none is free.
    pub(super) fn next_to_fill(&mut self) -> Option<u64> {
        let frame = if self.filling < self.half { self.free.pop() } else { None };
        self.filling += u32::from(frame.is_some());
        frame
    }

    /// Records that `count` frames that the kernel filled were taken.
    pub(super) fn filled(&mut self, count: u32) {
        self.filling -= count;
    }

    /// Frees a frame that was taken.
    pub(super) fn recycle(&mut self, frame: u64) {
        self.free.push(frame);
    }

    /// Returns whether one more frame may be sent.
    pub(super) fn may_send(&self) -> bool {
        self.sending < self.half
    }

    /// Takes a free frame to send.
    pub(super) fn next_to_send(&mut self) -> Result<u64, Full> {
        if !self.may_send() {
            return Err(Full);
        }
        let frame = self.free.pop().ok_or(Full)?;
        self.sending += 1;
        Ok(frame)
    }

    /// Records that a frame that was taken is being sent on.
    pub(super) fn send_on(&mut self) {
        self.sending += 1;
    }

    /// Frees a frame that the kernel has sent.
    pub(super) fn sent(&mut self, frame: u64) {
        self.sending -= 1;
        self.free.push(frame);
    }

    /// Returns where the frames are, of which one socket has `reserved`.
    pub(super) fn counts(&self, reserved: u32) -> FrameCounts {
        let free = u32::try_from(self.free.len()).unwrap_or(u32::MAX);
        let (all, filling, sending) = (self.half * 2, self.filling, self.sending);
        FrameCounts { all, filling, sending, free, reserved }
    }

    /// Returns the number of frames being sent.
    #[cfg(test)]
    pub(super) fn sending(&self) -> u32 {
        self.sending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_frame_is_in_one_place_whatever_happens() {
        for seed in 0..300_u64 {
            let half = 1 << (seed % 4);
            let mut account = Account::new(Layout { size: 2048, half });
            let (mut kernel, mut wire): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
            let mut state = seed;
            for _ in 0..300 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                match (state >> 33) % 4 {
                    0 => kernel.extend(account.next_to_fill()),
                    1 => wire.extend(account.next_to_send()),
                    2 if !kernel.is_empty() => {
                        let frame = kernel.remove(0);
                        account.filled(1);
                        match account.may_send() && state >> 40 & 1 == 0 {
                            true => {
                                account.send_on();
                                wire.push(frame);
                            }
                            false => account.recycle(frame),
                        }
                    }
                    3 if !wire.is_empty() => account.sent(wire.remove(0)),
                    _ => {}
                }
                let mut all: Vec<u64> =
                    kernel.iter().chain(&wire).chain(&account.free).copied().collect();
                all.sort_unstable();
                let whole: Vec<u64> = (0..u64::from(half) * 2).map(|n| n * 2048).collect();
                assert_eq!(all, whole, "I1, seed {seed}");
                assert!(kernel.len() <= half as usize && wire.len() <= half as usize, "I2");
                assert_eq!(
                    (account.filling, account.sending),
                    (kernel.len() as u32, wire.len() as u32)
                );
            }
        }
    }

    #[test]
    fn sending_leaves_frames_for_receiving() {
        let mut account = Account::new(Layout { size: 2048, half: 4 });
        while account.next_to_send().is_ok() {}
        let mut filling = 0;
        while account.next_to_fill().is_some() {
            filling += 1;
        }
        assert_eq!((account.sending(), filling), (4, 4));
    }

    #[test]
    fn an_address_outside_belongs_to_no_frame() {
        let layout = Layout { size: 2048, half: 2 };
        assert_eq!(layout.frame_of(256, 1000), Some(0));
        assert_eq!(layout.frame_of(2048 + 256, 1792), Some(2048));
        assert_eq!(layout.frame_of(2048 + 256, 1793), None, "it reaches into the next");
        assert_eq!(layout.frame_of(4 * 2048, 1), None);
        assert_eq!(layout.frame_of(u64::MAX, u32::MAX), None);
    }
}
