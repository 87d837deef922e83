//! `EV_SIGNAL`: as in libevent, a handler writes into a pipe, which the queue watches. No thread needs to
//! block the signal.

use libc::c_int;
use signal_hook::SigId;
use signal_hook::consts::FORBIDDEN;
use signal_hook::low_level;
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::net::UnixStream;

/// A signal that an event waits for. When it is dropped, its handler stays installed and does nothing.
#[derive(Debug)]
pub struct Signal {
    pipe: UnixStream,
    handler: SigId,
}

impl Signal {
    pub fn new(number: c_int) -> io::Result<Signal> {
        if !(1..=64).contains(&number) || FORBIDDEN.contains(&number) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let (pipe, end) = UnixStream::pair()?;
        pipe.set_nonblocking(true)?;
        let handler = low_level::pipe::register(number, end)?;
        Ok(Signal { pipe, handler })
    }

    pub fn fd(&self) -> RawFd {
        self.pipe.as_raw_fd()
    }

    /// Returns how often the signal came since the last call, as far as the pipe has room.
    pub fn take(&self) -> usize {
        let (mut times, mut bytes) = (0, [0; 256]);
        while let Ok(n @ 1..) = (&self.pipe).read(&mut bytes) {
            times += n;
        }
        times
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        low_level::unregister(self.handler);
    }
}
