//! User interrupts, as the module in `kmod/` provides them; its header `heddle_uintr.h` describes the calls.

use heddle_core::Ns;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

/// The device.
pub const DEVICE: &CStr = c"/dev/heddle-uintr";

/// The version of the module's interface.
const VERSION: u32 = 1;

/// No receiver, in the module's calls.
const NO_RECEIVER: u32 = u32::MAX;

/// What the module says of itself and of this process.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Info {
    version: u32,
    features: u32,
    /// Threads that can be registered at a time, in all processes.
    pub max_threads: u32,
    /// Targets that a process can have.
    pub max_targets: u32,
    /// Threads that are registered, in all processes.
    pub threads: u32,
    /// Processes that use the module.
    pub processes: u32,
    /// The shortest period of a timer, in nanoseconds.
    pub min_period_ns: u64,
    /// How often a receiver came back to a CPU and found that something had been posted meanwhile.
    pub resumed: u64,
    /// How often one came back to another CPU.
    pub migrated: u64,
    /// Ticks of the kernel's timers for receivers.
    pub ticks: u64,
    /// Of these, found the one before still waiting.
    pub ticks_merged: u64,
    reserved: [u64; 4],
}

#[repr(C)]
struct Registration {
    flags: u32,
    receiver: u32,
    handler: u64,
    stack_adjust: u64,
    reserved: [u64; 2],
}

#[repr(C)]
struct Target {
    receiver: u32,
    vector: u32,
    index: u32,
    reserved: u32,
}

#[repr(C)]
struct Timer {
    kind: u32,
    flags: u32,
    vector: u32,
    receiver: u32,
    period_ns: u64,
}

const RECEIVE: u32 = 1;
const ONCE: u32 = 1;
const TIMER_OFF: u32 = 0;
const TIMER_HR: u32 = 1;
const TIMER_APIC: u32 = 2;

/// Returns the number of a call with an argument of `size` bytes that the kernel `reads` or `writes`.
const fn call(number: u64, size: usize, reads: bool, writes: bool) -> u64 {
    (reads as u64) << 30 | (writes as u64) << 31 | (size as u64) << 16 | 0xb8 << 8 | number
}

const INFO: u64 = call(0, size_of::<Info>(), false, true);
const REGISTER: u64 = call(1, size_of::<Registration>(), true, true);
const UNREGISTER: u64 = call(2, 0, false, false);
const CONNECT: u64 = call(3, size_of::<Target>(), true, true);
const DISCONNECT: u64 = call(4, size_of::<u32>(), true, false);
const TIMER: u64 = call(5, size_of::<Timer>(), true, false);

/// Why a process cannot have user interrupts.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unavailable {
    /// The module is not loaded.
    #[error("/dev/heddle-uintr does not exist: load the module heddle_uintr (kmod/README.md)")]
    NoModule,
    /// The device cannot be opened.
    #[error("/dev/heddle-uintr cannot be opened: {0}")]
    Open(io::Error),
    /// Module and program are of different versions.
    #[error(
        "the module heddle_uintr has version {0} of the interface, this program needs {VERSION}: build both anew"
    )]
    Version(u32),
}

/// The process's device; negative before it is opened.
static OPENED: AtomicI32 = AtomicI32::new(-1);

/// Counts the processes: a child of fork has nothing of its parent's.
static EPOCH: AtomicU32 = AtomicU32::new(1);

/// Opens the device for this process, which keeps it.
///
/// # Errors
/// See [`Unavailable`].
pub fn open() -> Result<(), Unavailable> {
    if OPENED.load(Ordering::Acquire) >= 0 {
        return Ok(());
    }
    let device = open_anew()?;
    let mine = device.into_raw_fd();
    if OPENED.compare_exchange(-1, mine, Ordering::AcqRel, Ordering::Acquire).is_err() {
        // SAFETY: another thread was faster, and this one has opened a device of its own, which nothing else uses.
        drop(unsafe { OwnedFd::from_raw_fd(mine) });
    }
    Ok(())
}

/// Returns what the module says, of a device that is opened for the question.
///
/// # Errors
/// See [`Unavailable`].
pub fn info() -> Result<Info, Unavailable> {
    let device = open_anew()?;
    read_info(device.as_raw_fd()).map_err(Unavailable::Open)
}

fn open_anew() -> Result<OwnedFd, Unavailable> {
    // SAFETY: a path that ends in zero.
    let fd = unsafe { libc::open(DEVICE.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    if fd < 0 {
        let error = io::Error::last_os_error();
        return Err(match error.kind() {
            io::ErrorKind::NotFound => Unavailable::NoModule,
            _ => Unavailable::Open(error),
        });
    }
    // SAFETY: just opened.
    let device = unsafe { OwnedFd::from_raw_fd(fd) };
    match read_info(fd).map_err(Unavailable::Open)?.version {
        VERSION => Ok(device),
        other => Err(Unavailable::Version(other)),
    }
}

fn read_info(device: RawFd) -> io::Result<Info> {
    let mut info = Info::default();
    // SAFETY: the call writes this structure.
    check(unsafe { libc::ioctl(device, INFO, &raw mut info) })?;
    Ok(info)
}

fn check(result: i32) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns a number that is another one in each child of fork.
#[inline]
pub fn epoch() -> u32 {
    EPOCH.load(Ordering::Relaxed)
}

/// Forgets, in a child of fork, what its parent has. The parent's device stays open there: the instructions of user
/// interrupts may be used as long as it is.
pub fn forget_in_child() {
    EPOCH.fetch_add(1, Ordering::Relaxed);
    OPENED.store(-1, Ordering::Release);
}

/// Registers the calling thread as a receiver, with the number and the targets of an earlier one of this
/// process if `place` names it.
/// Returns its number.
///
/// # Errors
/// The module's: `EBUSY` if the thread is registered, `EAGAIN` beyond a limit.
///
/// # Safety
/// `handler` can be entered at any instruction of the calling thread: it preserves all registers and leaves by UIRET.
pub unsafe fn register(handler: unsafe extern "C" fn(), place: Option<u32>) -> io::Result<u32> {
    /// What the ABI lets functions use below the stack pointer.
    const RED_ZONE: u64 = 128;
    let mut registration = Registration {
        flags: RECEIVE,
        receiver: place.unwrap_or(NO_RECEIVER),
        handler: handler as usize as u64,
        stack_adjust: RED_ZONE,
        reserved: [0; 2],
    };
    // SAFETY: the call reads and writes this structure; by the caller's promise the handler may be entered.
    check(unsafe { libc::ioctl(device(), REGISTER, &raw mut registration) })?;
    Ok(registration.receiver)
}

/// Registers the calling thread, so that it can send to the process's targets.
///
/// # Errors
/// As for [`register`].
pub fn register_sender() -> io::Result<()> {
    let mut registration = Registration {
        flags: 0,
        receiver: NO_RECEIVER,
        handler: 0,
        stack_adjust: 0,
        reserved: [0; 2],
    };
    // SAFETY: the call reads and writes this structure.
    check(unsafe { libc::ioctl(device(), REGISTER, &raw mut registration) })
}

/// Ends the registration of the calling thread. What is pending is dropped.
pub fn unregister() {
    // SAFETY: the call takes no argument.
    unsafe { libc::ioctl(device(), UNREGISTER) };
}

/// Returns the index by which the process's registered threads send `vector` to `receiver`.
///
/// # Errors
/// The module's: `ENOENT` if there is no such receiver, `ENOSPC` if the table is full.
pub fn connect(receiver: u32, vector: u8) -> io::Result<u32> {
    let mut target = Target { receiver, vector: vector.into(), index: 0, reserved: 0 };
    // SAFETY: the call reads and writes this structure.
    check(unsafe { libc::ioctl(device(), CONNECT, &raw mut target) })?;
    Ok(target.index)
}

/// Removes a target, to which nothing is sent any more.
pub fn disconnect(index: u32) {
    // SAFETY: the call reads this number.
    unsafe { libc::ioctl(device(), DISCONNECT, &raw const index) };
}

/// Makes the kernel's timer interrupt `receiver` after `time`, and `repeats` that each `time`; at no time if that is
/// zero. If the receiver is gone, nothing happens.
pub fn set_timer(receiver: u32, vector: u32, time: Ns, repeats: bool) {
    let (kind, flags) = match (time, repeats) {
        (Ns::ZERO, _) => (TIMER_OFF, 0),
        (_, true) => (TIMER_HR, 0),
        (_, false) => (TIMER_HR, ONCE),
    };
    // A day instead of the more that the module takes for a mistake.
    let period_ns = time.0.min(86_400_000_000_000);
    let timer = Timer { kind, flags, vector, receiver, period_ns };
    // SAFETY: the call reads this structure.
    unsafe { libc::ioctl(device(), TIMER, &raw const timer) };
}

/// Makes the timer of the CPU itself interrupt the calling thread, a receiver, each `period`, without the kernel. The
/// handler posts `vector` to its own thread each time.
///
/// # Errors
/// The module's: `EPERM` without `CAP_SYS_ADMIN`, `ERANGE` if the period is too short or too long.
pub fn set_apic_timer(vector: u8, period: Ns) -> io::Result<()> {
    let timer = Timer {
        kind: TIMER_APIC,
        flags: 0,
        vector: vector.into(),
        receiver: NO_RECEIVER,
        period_ns: period.0,
    };
    // SAFETY: the call reads this structure.
    check(unsafe { libc::ioctl(device(), TIMER, &raw const timer) })
}

fn device() -> RawFd {
    OPENED.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers that the header's macros give, as a compiler of C computes them.
    #[test]
    fn calls_have_the_numbers_of_the_header() {
        let given = [INFO, REGISTER, UNREGISTER, CONNECT, DISCONNECT, TIMER];
        let of_header = [0x8060_b800, 0xc028_b801, 0xb802, 0xc010_b803, 0x4004_b804, 0x4018_b805];
        assert_eq!(given, of_header);
    }

    #[test]
    fn a_machine_without_the_module_says_so() {
        if std::path::Path::new(DEVICE.to_str().unwrap()).exists() {
            return assert!(info().is_ok());
        }
        let error = info().unwrap_err().to_string();
        assert!(error.contains("heddle_uintr") && error.contains("kmod/README.md"), "{error}");
    }
}
