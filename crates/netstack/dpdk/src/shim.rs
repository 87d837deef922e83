//! The C functions of `shim.c`, made safe: the only place of `unsafe` in this crate.

use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt;
use std::marker::{PhantomData, PhantomPinned};
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// DPDK's `struct rte_mempool`.
#[repr(C)]
struct RawPool {
    _bytes: [u8; 0],
    _marker: PhantomData<(*mut (), PhantomPinned)>,
}

/// DPDK's `struct rte_mbuf`.
#[repr(C)]
struct RawFrame {
    _bytes: [u8; 0],
    _marker: PhantomData<(*mut (), PhantomPinned)>,
}

/// What a port has counted: `struct hd_stats`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Frames received.
    pub received: u64,
    /// Frames sent.
    pub sent: u64,
    /// Dropped by the device because too many waited to be received.
    pub missed: u64,
    /// How often there was no buffer for a frame.
    pub no_buffer: u64,
    /// Received with an error.
    pub receive_errors: u64,
    /// Not sent by an error.
    pub send_errors: u64,
}

unsafe extern "C" {
    fn hd_init(argc: c_int, argv: *mut *mut c_char) -> c_int;
    safe fn hd_register_thread() -> c_int;
    safe fn hd_unregister_thread();
    fn hd_attach(device: *const c_char, port: *mut u16) -> c_int;
    fn hd_open(port: u16, queues: u16, descriptors: u16, pools: *mut *mut RawPool) -> c_int;
    fn hd_close(port: u16);
    fn hd_free_pool(pool: *mut RawPool);
    fn hd_rx_burst(port: u16, queue: u16, frames: *mut *mut RawFrame, max: u16) -> u16;
    fn hd_tx_burst(port: u16, queue: u16, frames: *mut *mut RawFrame, count: u16) -> u16;
    fn hd_rx_count(port: u16, queue: u16) -> c_int;
    fn hd_alloc(pool: *mut RawPool, length: u16) -> *mut RawFrame;
    fn hd_data(frame: *mut RawFrame, length: *mut u16) -> *mut u8;
    fn hd_free(frame: *mut RawFrame);
    fn hd_stats(port: u16, to: *mut Stats) -> c_int;
    fn hd_link(port: u16, up: *mut c_int, speed: *mut u32) -> c_int;
    fn hd_mac(port: u16, to: *mut u8) -> c_int;
    safe fn hd_error(error: c_int) -> *const c_char;
}

/// Returns DPDK's text for an error number.
fn error_text(error: i32) -> String {
    // SAFETY: `rte_strerror` returns a terminated string, constant or of this thread until its next call.
    unsafe { CStr::from_ptr(hd_error(error)) }.to_string_lossy().into_owned()
}

/// A negated error number of DPDK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub i32);

impl Code {
    /// Returns an error if `result` is one.
    fn check(result: i32) -> Result<(), Code> {
        if result < 0 { Err(Code(result)) } else { Ok(()) }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", error_text(self.0.saturating_neg()), self.0)
    }
}

/// Initialises DPDK with these arguments, the program's name first. Once in a process: the caller sees to it.
pub fn init(arguments: Vec<CString>) -> Result<(), Code> {
    // DPDK keeps some of these pointers: they are never freed.
    let mut pointers: Vec<*mut c_char> = arguments.into_iter().map(CString::into_raw).collect();
    let count = pointers.len() as c_int;
    pointers.push(ptr::null_mut());
    // SAFETY: `argv` has `argc` terminated strings that are never freed, and a null pointer after them.
    Code::check(unsafe { hd_init(count, pointers.leak().as_mut_ptr()) })
}

/// Gives this thread DPDK's per-thread state.
pub fn register_thread() -> Result<(), Code> {
    Code::check(hd_register_thread())
}

/// Undoes [`register_thread`].
pub fn unregister_thread() {
    hd_unregister_thread();
}

/// Held while devices are attached, started and removed: DPDK does not lock its lists of them.
static DEVICES: Mutex<()> = Mutex::new(());

fn lock(mutex: &Mutex<()>) -> MutexGuard<'_, ()> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A port that was attached, with the buffers of its queues once it is open. Dropping it closes it.
#[derive(Debug)]
pub struct Port {
    number: u16,
    pools: Box<[*mut RawPool]>,
    /// Held while it is asked for something: DPDK's functions for that are not for several threads.
    query: Mutex<()>,
}

// SAFETY: the pointers are to pools in DPDK's memory, which any thread may allocate from and free to; what DPDK forbids
// to several threads at a time is done under a lock.
unsafe impl Send for Port {}
// SAFETY: as above.
unsafe impl Sync for Port {}

/// Attaches a device and claims its port.
pub fn attach(device: &CStr) -> Result<Port, Code> {
    let (mut number, _devices) = (0, lock(&DEVICES));
    // SAFETY: a terminated string, and a place for the result; the lists are locked.
    Code::check(unsafe { hd_attach(device.as_ptr(), &mut number) })?;
    Ok(Port { number, pools: Box::default(), query: Mutex::default() })
}

impl Port {
    /// Configures and starts it.
    pub fn open(&mut self, queues: u16, descriptors: u16) -> Result<(), Code> {
        assert!(self.pools.is_empty(), "a port is opened once");
        self.pools = vec![ptr::null_mut(); usize::from(queues)].into();
        let _devices = lock(&DEVICES);
        // SAFETY: the port is ours since `attach`, and `pools` has a place for each queue.
        Code::check(unsafe { hd_open(self.number, queues, descriptors, self.pools.as_mut_ptr()) })
    }

    /// Returns how many frames wait in a queue; `None` if the driver cannot tell.
    #[inline]
    pub fn waiting(&self, queue: u16) -> Option<u32> {
        assert!(usize::from(queue) < self.pools.len());
        // SAFETY: the queue exists, as just asserted, and the port is open until it is dropped. Drivers only read here:
        // while another thread receives the number may be wrong, which costs a poll.
        u32::try_from(unsafe { hd_rx_count(self.number, queue) }).ok()
    }

    /// Returns what it has counted.
    pub fn stats(&self) -> Result<Stats, Code> {
        let (mut stats, _query) = (Stats::default(), lock(&self.query));
        // SAFETY: one thread asks at a time; a place for the result, of the C structure's layout.
        Code::check(unsafe { hd_stats(self.number, &mut stats) })?;
        Ok(stats)
    }

    /// Returns whether its link is up, and its speed in Mbit/s.
    pub fn link(&self) -> Result<(bool, u32), Code> {
        let (mut up, mut speed, _query) = (0, 0, lock(&self.query));
        // SAFETY: one thread asks at a time; places for the results.
        Code::check(unsafe { hd_link(self.number, &mut up, &mut speed) })?;
        Ok((up != 0, speed))
    }

    /// Returns its Ethernet address.
    pub fn mac(&self) -> Result<[u8; 6], Code> {
        let (mut mac, _query) = ([0; 6], lock(&self.query));
        // SAFETY: one thread asks at a time; a place for six bytes.
        Code::check(unsafe { hd_mac(self.number, mac.as_mut_ptr()) })?;
        Ok(mac)
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        let _devices = lock(&DEVICES);
        // SAFETY: it is ours since `attach`. Queues, with their frames, share it: none is left.
        unsafe { hd_close(self.number) };
        for &pool in self.pools.iter().filter(|pool| !pool.is_null()) {
            // SAFETY: `hd_open` made the pool, and the closed port has given its frames back.
            unsafe { hd_free_pool(pool) };
        }
    }
}

impl Port {
    /// Returns its queues, which it outlives. Each exists once.
    pub fn into_queues(self) -> Vec<(Receiver, Sender)> {
        let port = Arc::new(self);
        let queue = |queue| {
            let receiver = Receiver { queue, port: Arc::clone(&port) };
            (receiver, Sender { unsent: Frames::new(), queue, port: Arc::clone(&port) })
        };
        (0..port.pools.len() as u16).map(queue).collect()
    }
}

/// Most frames in a burst.
pub const BURST: usize = 32;

/// The receiving side of a queue.
#[derive(Debug)]
pub struct Receiver {
    queue: u16,
    port: Arc<Port>,
}

impl Receiver {
    /// Passes up to `max` frames, and no more than [`BURST`], to `each`; those in several parts as empty ones. Returns
    /// their number.
    #[inline]
    pub fn receive(&mut self, max: usize, mut each: impl FnMut(&[u8])) -> usize {
        let mut frames = Frames::new();
        let (max, room) = (max.min(BURST) as u16, frames.frames.as_mut_ptr());
        // SAFETY: the port is open while `self.port` lives, only this object receives from the queue, and there is room
        // for `max` frames.
        let count = unsafe { hd_rx_burst(self.port.number, self.queue, room, max) };
        frames.end = usize::from(count);
        while let Some(mut frame) = frames.take() {
            each(frame.bytes());
        }
        usize::from(count)
    }

    /// Returns the port.
    pub fn port(&self) -> &Arc<Port> {
        &self.port
    }

    /// Returns its number in the port.
    pub fn number(&self) -> u16 {
        self.queue
    }
}

/// The sending side of a queue. Frames are built in place and wait for [`Sender::flush`].
#[derive(Debug)]
pub struct Sender {
    // Dropped before the port.
    unsent: Frames,
    queue: u16,
    port: Arc<Port>,
}

impl Sender {
    /// Builds a frame. Returns false if it is empty or too long, or too many wait.
    #[inline]
    pub fn push(&mut self, length: usize, write: impl FnOnce(&mut [u8])) -> bool {
        if self.unsent.is_full() {
            self.flush();
        }
        match self.allocate(length) {
            Some(mut frame) if !self.unsent.is_full() => {
                write(frame.bytes());
                self.unsent.push(frame);
                true
            }
            _ => false,
        }
    }

    fn allocate(&self, length: usize) -> Option<Frame> {
        let length = u16::try_from(length).ok().filter(|&length| length > 0)?;
        // SAFETY: the pool is the queue's and lives as long as `self.port`.
        NonNull::new(unsafe { hd_alloc(self.port.pools[usize::from(self.queue)], length) })
            .map(Frame)
    }

    /// Gives the frames to the driver. Returns whether some were refused: they wait for the next call.
    #[inline]
    pub fn flush(&mut self) -> bool {
        let waiting = self.unsent.waiting();
        if waiting.is_empty() {
            return false;
        }
        let (frames, count) = (waiting.as_mut_ptr(), waiting.len() as u16);
        // SAFETY: the port is open while `self.port` lives, only this object sends by the queue, and the frames are
        // ours. Those that the driver takes are forgotten below.
        let sent = unsafe { hd_tx_burst(self.port.number, self.queue, frames, count) };
        self.unsent.forget(usize::from(sent));
        sent < count
    }
}

/// Frames that are ours until they are sent or dropped: those from `start` to `end`.
#[derive(Debug)]
struct Frames {
    frames: [*mut RawFrame; BURST],
    start: usize,
    end: usize,
}

// SAFETY: a frame is in DPDK's memory and belongs to its holder, whatever the thread.
unsafe impl Send for Frames {}

impl Frames {
    fn new() -> Frames {
        Frames { frames: [ptr::null_mut(); BURST], start: 0, end: 0 }
    }

    fn is_full(&self) -> bool {
        self.end == BURST
    }

    fn waiting(&mut self) -> &mut [*mut RawFrame] {
        &mut self.frames[self.start..self.end]
    }

    fn push(&mut self, frame: Frame) {
        self.frames[self.end] = frame.0.as_ptr();
        self.end += 1;
        std::mem::forget(frame);
    }

    /// Takes the first frame out.
    #[inline]
    fn take(&mut self) -> Option<Frame> {
        let first = *self.waiting().first()?;
        self.start += 1;
        NonNull::new(first).map(Frame)
    }

    /// Leaves the first `count` frames to their new owner, and makes room.
    fn forget(&mut self, count: usize) {
        let rest = self.start + count..self.end;
        self.end = rest.len();
        self.frames.copy_within(rest, 0);
        self.start = 0;
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        while self.take().is_some() {}
    }
}

/// One frame.
#[derive(Debug)]
struct Frame(NonNull<RawFrame>);

impl Frame {
    /// Returns its bytes; none if it is in several parts.
    #[inline]
    fn bytes(&mut self) -> &mut [u8] {
        let mut length = 0;
        // SAFETY: the frame is ours, so only we read and write its bytes, through this borrow; its buffer holds
        // `length` bytes from there on.
        unsafe {
            let data = hd_data(self.0.as_ptr(), &mut length);
            std::slice::from_raw_parts_mut(data, usize::from(length))
        }
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        // SAFETY: the frame is ours, and used no more.
        unsafe { hd_free(self.0.as_ptr()) };
    }
}
