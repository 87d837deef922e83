//! A frame in use: its bytes.

use rustix::net::xdp::XdpDesc;

use super::memory::Mapping;

/// A received frame, lent to the function that processes it.
#[derive(Debug)]
pub struct Frame<'a> {
    /// From the start of the packet to the end of the frame.
    room: &'a mut [u8],
    length: usize,
}

impl Frame<'_> {
    /// Returns the packet, from the Ethernet header on.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.room[..self.length]
    }

    /// Returns the packet for changing it.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.room[..self.length]
    }

    /// Returns the packet's length in bytes.
    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// Changes the packet's length to `length` bytes. Returns false if this does not fit the frame.
    pub fn resize(&mut self, length: usize) -> bool {
        let fits = length <= self.room.len();
        if fits {
            self.length = length;
        }
        fits
    }
}

/// Returns the bytes from `desc` to `end`, which `Layout::frame_of` has found to be inside one frame.
///
/// # Safety
/// The frame has no other user for as long as the result lives.
pub(super) unsafe fn lend(memory: &Mapping, end: u64, desc: XdpDesc) -> Frame<'_> {
    let (from, to) = (desc.addr as usize, end as usize);
    assert!(from <= to && to <= memory.length(), "I4");
    // SAFETY: the range is inside the mapping, which outlives the frame, and has no other user.
    let room =
        unsafe { std::slice::from_raw_parts_mut(memory.base().as_ptr().add(from), to - from) };
    Frame { length: (desc.len as usize).min(room.len()), room }
}
