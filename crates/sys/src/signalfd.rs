//! Signals that are read instead of handled.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The number of signals read at once.
const BATCH: usize = 16;

/// A descriptor from which blocked signals are read.
#[derive(Debug)]
pub struct SignalFd(OwnedFd);

fn set_of(signals: &[i32]) -> io::Result<libc::sigset_t> {
    // SAFETY: all-zero is a set, which is then emptied properly; the set is local.
    unsafe {
        let mut set: libc::sigset_t = core::mem::zeroed();
        libc::sigemptyset(&mut set);
        for &signal in signals {
            if libc::sigaddset(&mut set, signal) != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(set)
    }
}

/// Blocks `signals` for the calling thread and the threads that it starts from now on. `SIGKILL` and `SIGSTOP` cannot
/// be blocked.
///
/// # Errors
/// `EINVAL` if a number is not a signal, or is reserved by the C library.
pub fn block(signals: &[i32]) -> io::Result<()> {
    let set = set_of(signals)?;
    // SAFETY: the set is local and valid.
    match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, core::ptr::null_mut()) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// Sends `signal` to the calling thread. If it is neither blocked nor handled, its default action applies.
///
/// # Errors
/// `EINVAL` if it is not a signal.
pub fn raise(signal: i32) -> io::Result<()> {
    // SAFETY: the signal's action is chosen elsewhere, and may run at any time.
    match unsafe { libc::raise(signal) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns whether `signal` can be read: it exists, is not reserved by the C library, and is neither `SIGKILL` nor
/// `SIGSTOP`.
pub fn can_be_read(signal: i32) -> bool {
    signal != libc::SIGKILL && signal != libc::SIGSTOP && set_of(&[signal]).is_ok()
}

impl SignalFd {
    /// Returns a non-blocking descriptor that reads no signals yet.
    ///
    /// # Errors
    /// The system's, if it is out of file descriptors.
    pub fn new() -> io::Result<SignalFd> {
        let set = set_of(&[])?;
        // SAFETY: a valid set; the result is checked and then owned.
        let fd = unsafe { libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: fresh, and ours alone.
        Ok(SignalFd(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Makes the descriptor read these signals, and no others.
    ///
    /// # Errors
    /// `EINVAL` as in [`block`].
    pub fn set(&self, signals: &[i32]) -> io::Result<()> {
        let set = set_of(signals)?;
        // SAFETY: an open signalfd and a valid set.
        match unsafe { libc::signalfd(self.0.as_raw_fd(), &set, 0) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    /// Moves all signals pending for the process or the calling thread into `signals`. A standard signal sent several
    /// times before it is read appears once.
    pub fn read(&self, signals: &mut Vec<i32>) {
        loop {
            // SAFETY: all-zero is a valid value of this plain structure.
            let mut buffer: [libc::signalfd_siginfo; BATCH] = unsafe { core::mem::zeroed() };
            let (at, size) = (buffer.as_mut_ptr().cast(), size_of_val(&buffer));
            // SAFETY: the buffer has the stated size, and any bytes are valid in it.
            let bytes = unsafe { libc::read(self.0.as_raw_fd(), at, size) };
            let n = usize::try_from(bytes).unwrap_or(0) / size_of::<libc::signalfd_siginfo>();
            signals.extend(buffer[..n].iter().map(|info| info.ssi_signo as i32));
            if n < BATCH {
                return;
            }
        }
    }
}

impl From<SignalFd> for OwnedFd {
    fn from(this: SignalFd) -> OwnedFd {
        this.0
    }
}

impl AsRawFd for SignalFd {
    fn as_raw_fd(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_signals_are_read_once_and_queued_ones_each_time() {
        let queued = libc::SIGRTMIN() + 3;
        block(&[libc::SIGUSR1, queued]).unwrap();
        let (descriptor, mut read) = (SignalFd::new().unwrap(), Vec::new());
        descriptor.set(&[libc::SIGUSR1, queued]).unwrap();
        for _ in 0..3 {
            // To this thread only: in the test's other threads they are not blocked.
            raise(libc::SIGUSR1).unwrap();
            raise(queued).unwrap();
        }
        descriptor.read(&mut read);
        assert_eq!(read, [libc::SIGUSR1, queued, queued, queued]);
        read.clear();
        descriptor.read(&mut read);
        assert_eq!(read, []);
    }

    #[test]
    fn what_cannot_be_read_is_known() {
        for signal in [0, -1, 65, 1000, 32, 33, libc::SIGKILL, libc::SIGSTOP] {
            assert!(!can_be_read(signal), "{signal}");
        }
        assert!(can_be_read(libc::SIGTERM) && can_be_read(libc::SIGRTMAX()));
        assert!(block(&[1000]).is_err());
    }
}
