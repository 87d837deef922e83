//! Addresses in C.

use libc::{c_int, sockaddr, sockaddr_in, socklen_t};
use std::net::{Ipv4Addr, SocketAddr};

/// The address at `address`; `None` if it is no IPv4 address.
///
/// # Safety
/// `address` must point to `length` bytes.
pub unsafe fn read_address(address: *const sockaddr, length: socklen_t) -> Option<SocketAddr> {
    if address.is_null() || (length as usize) < size_of::<sockaddr_in>() {
        return None;
    }
    // SAFETY: there are enough bytes for an IPv4 address.
    let v4 = unsafe { address.cast::<sockaddr_in>().read_unaligned() };
    let is_v4 = c_int::from(v4.sin_family) == libc::AF_INET;
    let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
    is_v4.then(|| SocketAddr::new(ip.into(), u16::from_be(v4.sin_port)))
}

/// Writes an IPv4 address.
///
/// # Safety
/// Both pointers must be null or valid for an IPv4 address and its length.
pub unsafe fn write_address(from: SocketAddr, address: *mut sockaddr, length: *mut socklen_t) {
    let SocketAddr::V4(v4) = from else { return };
    if address.is_null() || length.is_null() {
        return;
    }
    // SAFETY: all zeros is a valid value.
    let mut raw: sockaddr_in = unsafe { std::mem::zeroed() };
    raw.sin_family = libc::AF_INET as _;
    raw.sin_port = v4.port().to_be();
    raw.sin_addr.s_addr = u32::from(*v4.ip()).to_be();
    // SAFETY: the caller passes room for an IPv4 address.
    unsafe {
        address.cast::<sockaddr_in>().write_unaligned(raw);
        length.write(size_of::<sockaddr_in>() as socklen_t);
    }
}
