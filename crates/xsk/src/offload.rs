//! Large frames that the kernel cuts: what AF_XDP sockets in copy mode do not offer.
//!
//! In copy mode each frame of an AF_XDP socket is a packet of its own all the way: its memory, its pass through the
//! driver, and on a veth pair through the receiver's stack. A packet socket (packet(7)) takes a TCP segment of up to 64
//! KiB with a header that says how to cut it. The kernel passes it on whole to a device that cuts it, or that need not
//! (veth, virtio), and cuts it itself for others.
//!
//! Frames are built in buffers, under the lock of the [`Sender`](crate::Sender), and sent by [`OffloadHandle::kick`]
//! without it. Unlike those of AF_XDP they pass queueing disciplines and filters (tc).
//!
//! - **I5** Buffers are bounded, and made outside of the lock, when one was missing.
//! - **I6** One thread at a time sends buffers, in their order: who finds another at it leaves its own to that.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::net::{SendFlags, send};

/// Bytes of the largest frame. Larger ones the kernel cuts itself, whatever the device can (`gso_max_size`).
const LARGEST: usize = (1 << 16) - 1;

/// Bytes of `struct virtio_net_hdr`.
const VIRTIO: usize = 10;

/// Bytes of a buffer: a largest frame, and some small ones behind it.
const BUFFER: usize = 72 << 10;

/// Maximum number of frames in a buffer.
const FRAMES: usize = 64;

/// Maximum number of buffers.
const BUFFERS: usize = 16;

/// How the kernel cuts a frame with a TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segmentation {
    /// Whether it is an IPv6 packet.
    pub is_v6: bool,
    /// Bytes before the TCP header.
    pub before: u16,
    /// Bytes of the TCP header, whose checksum field has the sum of the pseudo header.
    pub header: u16,
    /// Bytes of payload of each piece; the last one may have fewer.
    pub payload: u16,
}

impl Segmentation {
    /// Returns the `struct virtio_net_hdr`, in the machine's byte order.
    fn virtio(self) -> [u8; VIRTIO] {
        /// `VIRTIO_NET_HDR_F_NEEDS_CSUM`, `VIRTIO_NET_HDR_GSO_TCPV4` and `VIRTIO_NET_HDR_GSO_TCPV6`.
        const NEEDS_CHECKSUM: u8 = 1;
        const TCP_V4: u8 = 1;
        const TCP_V6: u8 = 4;
        /// Where in the TCP header the checksum is.
        const CHECKSUM: u16 = 16;
        let kind = if self.is_v6 { TCP_V6 } else { TCP_V4 };
        let words = [self.before + self.header, self.payload, self.before, CHECKSUM];
        let mut header = [0; VIRTIO];
        header[..2].copy_from_slice(&[NEEDS_CHECKSUM, kind]);
        for (to, word) in header[2..].chunks_exact_mut(2).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        header
    }
}

/// The half that takes frames, under its owner's lock.
#[derive(Debug)]
pub struct Offload {
    shared: Arc<Shared>,
    /// The buffer that is being filled.
    open: Option<Buffer>,
    /// The number of the batch: all frames that were queued since none waited.
    batch: u16,
    /// A call since [`Offload::publish`] has changed something, or missed a buffer.
    is_touched: bool,
    full: u64,
}

/// The half that sends: for any thread.
#[derive(Clone, Debug)]
pub struct OffloadHandle(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    socket: OwnedFd,
    state: Mutex<State>,
    /// Published frames have not all been sent. Changed with the state locked.
    is_waiting: AtomicBool,
    /// Frames that the kernel refused.
    refused: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Buffer>,
    free: Vec<Buffer>,
    /// How many buffers there are, and whether one was missing.
    made: usize,
    is_missing: bool,
    /// A thread sends.
    is_sending: bool,
}

/// Frames one after the other, each behind its header of virtio.
#[derive(Debug)]
struct Buffer {
    bytes: Box<[u8]>,
    /// Where each frame ends.
    ends: Vec<usize>,
}

impl Buffer {
    fn new() -> Buffer {
        // Not of zeros: memory that was never written would be a page fault each page, under the lock.
        Buffer { bytes: vec![u8::MAX; BUFFER].into(), ends: Vec::with_capacity(FRAMES) }
    }

    fn used(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Returns the bytes of the largest frame that fits.
    fn room(&self) -> usize {
        let room = (self.bytes.len() - self.used()).saturating_sub(VIRTIO).min(LARGEST);
        if self.ends.len() < FRAMES { room } else { 0 }
    }

    /// Adds a frame that fits.
    fn push(&mut self, length: usize, header: [u8; VIRTIO], write: impl FnOnce(&mut [u8])) {
        let start = self.used();
        let (head, frame) = self.bytes[start..start + VIRTIO + length].split_at_mut(VIRTIO);
        head.copy_from_slice(&header);
        write(frame);
        self.ends.push(start + VIRTIO + length);
    }

    /// Returns the frames with their headers.
    fn frames(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.bytes[start..*end])
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Offload {
    /// Returns a queue of frames for a packet socket that is bound to an interface, does not block, and expects the
    /// header of virtio (`PACKET_VNET_HDR`).
    #[must_use]
    pub fn new(socket: OwnedFd) -> Offload {
        let (is_waiting, refused) = (AtomicBool::new(false), AtomicU64::new(0));
        let shared = Shared { socket, state: Mutex::default(), is_waiting, refused };
        Offload { shared: Arc::new(shared), open: None, batch: 0, is_touched: false, full: 0 }
    }

    /// Returns the half that sends.
    #[must_use]
    pub fn handle(&self) -> OffloadHandle {
        OffloadHandle(Arc::clone(&self.shared))
    }

    /// Returns the bytes of the largest frame that [`Offload::push`] takes now.
    pub fn room(&mut self) -> usize {
        self.is_touched = true;
        let mut state = self.shared.state();
        if !state.free.is_empty() {
            return LARGEST;
        }
        state.is_missing = true;
        self.open.as_ref().or(state.queue.back()).map_or(0, Buffer::room)
    }

    /// Returns the number of the present batch if frames wait to be sent: who has frames in it and wants these to stay
    /// in order has later ones queued behind them.
    #[must_use]
    pub fn batch(&self) -> Option<u16> {
        self.is_waiting().then_some(self.batch)
    }

    fn is_waiting(&self) -> bool {
        self.open.is_some() || self.shared.is_waiting.load(Ordering::Acquire)
    }

    /// Queues a frame of `length` bytes that `write` builds in place, from the Ethernet header on. It is cut as `how`
    /// says, or not at all. Returns false if there is no room.
    pub fn push(
        &mut self,
        length: usize,
        how: Option<Segmentation>,
        write: impl FnOnce(&mut [u8]),
    ) -> bool {
        if length > LARGEST || !self.make_room(length) {
            self.full += 1;
            return false;
        }
        let header = how.map_or([0; VIRTIO], Segmentation::virtio);
        if let Some(open) = &mut self.open {
            open.push(length, header, write);
        }
        true
    }

    /// Makes `open` a buffer with room for `length` bytes.
    fn make_room(&mut self, length: usize) -> bool {
        self.is_touched = true;
        if self.open.as_ref().is_some_and(|open| length <= open.room()) {
            return true;
        }
        if !self.is_waiting() {
            self.batch = self.batch.wrapping_add(1);
        }
        let mut state = self.shared.state();
        // A buffer that was published and waits for its kick is filled up first.
        if self.open.is_none() && state.queue.back().is_some_and(|last| length <= last.room()) {
            self.open = state.queue.pop_back();
            return true;
        }
        let Some(empty) = state.free.pop() else {
            state.is_missing = true;
            return false;
        };
        if let Some(full) = self.open.replace(empty) {
            self.shared.queue(&mut state, full);
        }
        true
    }

    /// Shows the queued frames to [`OffloadHandle::kick`]. Returns whether it must be called.
    pub fn publish(&mut self) -> bool {
        if !std::mem::take(&mut self.is_touched) {
            return false;
        }
        let mut state = self.shared.state();
        if let Some(open) = self.open.take() {
            self.shared.queue(&mut state, open);
        }
        !state.queue.is_empty() || state.has_to_grow()
    }

    /// Returns how many frames were not sent: no buffer was free, or the kernel refused them.
    #[must_use]
    pub fn losses(&self) -> (u64, u64) {
        (self.full, self.shared.refused.load(Ordering::Relaxed))
    }
}

impl Shared {
    fn queue(&self, state: &mut State, buffer: Buffer) {
        state.queue.push_back(buffer);
        self.is_waiting.store(true, Ordering::Release);
    }
}

impl State {
    fn has_to_grow(&self) -> bool {
        self.is_missing && self.made < BUFFERS
    }
}

impl OffloadHandle {
    /// Sends published frames, unless another thread is at it, which then sends these too (I6). A frame that the kernel
    /// refuses is lost and counted, as on a full queue of a card.
    pub fn kick(&self) {
        let shared = &*self.0;
        let mut state = shared.state();
        if state.is_sending {
            return;
        }
        state.is_sending = true;
        while let Some(mut buffer) = state.queue.pop_front() {
            drop(state);
            for frame in buffer.frames() {
                if send(&shared.socket, frame, SendFlags::DONTWAIT).is_err() {
                    shared.refused.fetch_add(1, Ordering::Relaxed);
                }
            }
            buffer.ends.clear();
            state = shared.state();
            // The last one used is the next one: it is in the cache.
            state.free.push(buffer);
        }
        state.is_sending = false;
        shared.is_waiting.store(false, Ordering::Release);
        if state.has_to_grow() {
            (state.made, state.is_missing) = (state.made + 1, false);
            drop(state);
            let buffer = Buffer::new();
            shared.state().free.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};

    const HOW: Segmentation = Segmentation { is_v6: true, before: 54, header: 32, payload: 1428 };

    /// A queue whose packet socket is one end of a pair, and the other end.
    fn offload() -> (Offload, OwnedFd) {
        let flags = SocketFlags::NONBLOCK;
        let (near, far) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        (Offload::new(near), far)
    }

    /// The same, with a buffer.
    fn with_buffer() -> (Offload, OwnedFd) {
        let (mut offload, far) = offload();
        assert_eq!(offload.room(), 0);
        assert!(offload.publish(), "a buffer is missing");
        offload.handle().kick();
        assert_eq!(offload.room(), LARGEST);
        (offload, far)
    }

    fn next(far: &OwnedFd) -> Option<Vec<u8>> {
        let mut bytes = vec![0; BUFFER];
        let (_, length) = recv(far, &mut bytes[..], RecvFlags::empty()).ok()?;
        bytes.truncate(length);
        Some(bytes)
    }

    #[test]
    fn the_header_says_how_to_cut() {
        let words = |header: [u8; VIRTIO]| {
            let word = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
            ((header[0], header[1]), [word(2), word(4), word(6), word(8)])
        };
        assert_eq!(words(HOW.virtio()), ((1, 4), [86, 1428, 54, 16]));
        let how = Segmentation { is_v6: false, before: 34, header: 20, payload: 1460 };
        assert_eq!(words(how.virtio()), ((1, 1), [54, 1460, 34, 16]));
    }

    #[test]
    fn frames_are_sent_in_order_behind_their_headers() {
        let (mut offload, far) = with_buffer();
        assert_eq!(offload.batch(), None);
        assert!(offload.push(40_000, Some(HOW), |frame| frame.fill(1)));
        assert_eq!(offload.batch(), Some(1));
        assert!(offload.push(60, None, |frame| frame.fill(2)));
        assert!(next(&far).is_none() && offload.publish());
        assert_eq!(offload.batch(), Some(1), "it is not sent yet");
        offload.handle().kick();
        assert_eq!(offload.batch(), None);
        let large = next(&far).unwrap();
        assert_eq!(large, [&HOW.virtio()[..], &[1; 40_000]].concat());
        assert_eq!(next(&far).unwrap(), [&[0; VIRTIO][..], &[2; 60]].concat());
        assert!(next(&far).is_none() && !offload.publish());
        assert!(offload.push(60, None, |frame| frame.fill(3)));
        assert_eq!((offload.batch(), offload.losses()), (Some(2), (0, 0)));
    }

    #[test]
    fn buffers_are_bounded() {
        let (mut offload, far) = offload();
        let mut most = 0;
        for round in 0..BUFFERS + 4 {
            let mut count = 0;
            while offload.room() == LARGEST {
                assert!(offload.push(LARGEST, Some(HOW), |_| ()));
                count += 1;
            }
            assert!(!offload.push(LARGEST, Some(HOW), |_| ()) && offload.losses().0 > round as u64);
            assert_eq!(count, round.min(BUFFERS), "one more after each lack");
            offload.publish();
            offload.handle().kick();
            while next(&far).is_some() {}
            most = most.max(count);
        }
        assert_eq!(most, BUFFERS);
        assert!(!offload.push(LARGEST + 1, None, |_| ()), "no such frame");
        assert!(offload.room() == LARGEST);
        for _ in 0..BUFFERS * FRAMES {
            assert!(offload.push(1, None, |_| ()));
        }
        assert!(!offload.push(1, None, |_| ()), "nor are there more small ones");
        assert_eq!(offload.room(), 0);
    }

    #[test]
    fn a_buffer_that_waits_is_filled_up() {
        let (mut offload, far) = with_buffer();
        for number in 0..FRAMES as u8 {
            assert!(offload.push(100, None, |frame| frame.fill(number)), "there is one buffer");
            assert!(offload.publish());
        }
        assert_eq!((offload.room(), offload.batch()), (0, Some(1)));
        offload.handle().kick();
        for number in 0..FRAMES as u8 {
            assert_eq!(next(&far).unwrap()[VIRTIO..], [number; 100]);
        }
    }

    #[test]
    fn what_the_kernel_refuses_is_counted() {
        let (mut offload, far) = with_buffer();
        drop(far);
        assert!(offload.push(100, Some(HOW), |_| ()) && offload.publish());
        offload.handle().kick();
        assert_eq!((offload.losses(), offload.batch()), ((0, 1), None));
        assert_eq!(offload.room(), LARGEST, "the buffer is free again");
    }

    /// I6: threads that kick at the same time send each frame once.
    #[test]
    fn any_thread_sends() {
        const ROUNDS: u32 = 300;
        let (mut offload, far) = with_buffer();
        let handles = [offload.handle(), offload.handle()];
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for handle in &handles {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        handle.kick();
                        std::thread::yield_now();
                    }
                });
            }
            for round in 0..ROUNDS {
                let write = |frame: &mut [u8]| frame.copy_from_slice(&round.to_ne_bytes());
                while !offload.push(4, None, write) {
                    offload.publish();
                    std::thread::yield_now();
                }
                offload.publish();
                let frame = loop {
                    match next(&far) {
                        Some(frame) => break frame,
                        None => std::thread::yield_now(),
                    }
                };
                assert_eq!(frame[VIRTIO..], round.to_ne_bytes());
            }
            is_over.store(true, Ordering::Relaxed);
        });
        assert_eq!(offload.losses().1, 0);
    }
}
