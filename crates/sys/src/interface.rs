//! What the driver of a network interface says about itself (`SIOCETHTOOL`, as `ethtool` asks).

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

/// Commands of linux/ethtool.h.
const DRIVER: u32 = 0x03;
const FLAGS: u32 = 0x25;
const GRO: u32 = 0x2b;
const CHANNELS: u32 = 0x3c;
/// `ETH_FLAG_LRO`.
const LRO: u32 = 1 << 15;

/// Returns how many receive queues the interface `name` of this thread's network namespace uses now.
///
/// # Errors
/// `EOPNOTSUPP` if the driver does not say; `ENODEV` if there is no such interface.
pub fn receive_queues(name: &str) -> io::Result<u32> {
    // struct ethtool_channels: the maxima of receive, transmit, other and combined ones, then the present numbers.
    let mut words = [0; 9];
    ask(name, CHANNELS, &mut words)?;
    let (receive, combined) = (words[5], words[8]);
    Ok(receive.saturating_add(combined).max(1))
}

/// Returns the name of the interface's driver: `veth`, `virtio_net`, `ixgbe`.
///
/// # Errors
/// As [`receive_queues`].
pub fn driver(name: &str) -> io::Result<String> {
    // struct ethtool_drvinfo, whose first member after the command is the name, of 32 bytes.
    let mut words = [0; 49];
    ask(name, DRIVER, &mut words)?;
    let bytes: Vec<u8> = words[1..9].iter().flat_map(|word| word.to_ne_bytes()).collect();
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
}

/// Returns whether received segments are merged by the kernel (GRO) and by the card (LRO).
///
/// # Errors
/// As [`receive_queues`].
pub fn merges(name: &str) -> io::Result<(bool, bool)> {
    let value = |command| {
        let mut words = [0; 2];
        ask(name, command, &mut words).map(|()| words[1])
    };
    Ok((value(GRO)? != 0, value(FLAGS)? & LRO != 0))
}

/// Returns whether the interface carries Ethernet frames; those of tunnels and the loopback's do not.
///
/// # Errors
/// `ENODEV` if there is no such interface.
pub fn is_ethernet(name: &str) -> io::Result<bool> {
    let mut request = named(name)?;
    call(libc::SIOCGIFHWADDR as _, &mut request)?;
    // SAFETY: the kernel has filled in this member.
    Ok(unsafe { request.ifr_ifru.ifru_hwaddr }.sa_family == libc::ARPHRD_ETHER)
}

/// Puts `command` into the first of `words`, and has the driver fill in the others. They must be as many as the
/// command's structure has.
fn ask(name: &str, command: u32, words: &mut [u32]) -> io::Result<()> {
    let mut request = named(name)?;
    words[0] = command;
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    call(libc::SIOCETHTOOL as _, &mut request)
}

fn named(name: &str) -> io::Result<libc::ifreq> {
    if name.len() >= libc::IFNAMSIZ || name.contains('\0') {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    // SAFETY: all-zero is a valid request: a name and a union of numbers and pointers.
    let mut request: libc::ifreq = unsafe { core::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

/// What the request points to, if anything, must be valid memory of the size that the call takes.
fn call(number: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
    let socket = any_socket()?;
    // SAFETY: the request names an interface, and the caller vouches for the memory that it points to.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), number as _, &raw mut *request) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn any_socket() -> io::Result<OwnedFd> {
    // SAFETY: takes numbers, and returns a descriptor that is ours or an error.
    unsafe {
        match libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_interface_is_an_error() {
        for name in ["no-such-one", "a-name-that-is-too-long", "lo\0x"] {
            assert_eq!(driver(name).unwrap_err().raw_os_error(), Some(libc::ENODEV), "{name:?}");
        }
        // The loopback merges nothing that it has split, and has no channels.
        assert!(receive_queues("lo").is_err());
        assert!(!merges("lo").unwrap().1 && !is_ethernet("lo").unwrap());
    }
}
