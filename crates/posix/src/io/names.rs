//! Names of hosts and users, which the C library asks servers for: in the kernel, without holding up other tasks.

use crate::real::real;
use libc::{addrinfo, gid_t, group, hostent, passwd, sockaddr, socklen_t, uid_t};
use std::ffi::{c_char, c_int, c_void};

/// Defines functions that are the C library's, with the CPU given away while they run.
macro_rules! lookups {
    ($($name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty;)*) => {$(
        #[doc = concat!("POSIX's or GNU's `", stringify!($name), "`.")]
        ///
        /// # Safety
        /// POSIX's contract.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result {
            // SAFETY: the caller's contract; the function has this type.
            heddle_rt::blocking(|| unsafe { real!($name($($argument: $type),*) -> $result) })
        }
    )*};
}

lookups! {
    getaddrinfo(
        node: *const c_char,
        service: *const c_char,
        hints: *const addrinfo,
        result: *mut *mut addrinfo,
    ) -> c_int;
    getnameinfo(
        address: *const sockaddr,
        size: socklen_t,
        host: *mut c_char,
        host_size: socklen_t,
        service: *mut c_char,
        service_size: socklen_t,
        flags: c_int,
    ) -> c_int;
    gethostbyname(name: *const c_char) -> *mut hostent;
    gethostbyname2(name: *const c_char, family: c_int) -> *mut hostent;
    gethostbyaddr(address: *const c_void, size: socklen_t, family: c_int) -> *mut hostent;
    gethostbyname_r(
        name: *const c_char,
        entry: *mut hostent,
        buffer: *mut c_char,
        size: usize,
        result: *mut *mut hostent,
        error: *mut c_int,
    ) -> c_int;
    gethostbyname2_r(
        name: *const c_char,
        family: c_int,
        entry: *mut hostent,
        buffer: *mut c_char,
        size: usize,
        result: *mut *mut hostent,
        error: *mut c_int,
    ) -> c_int;
    gethostbyaddr_r(
        address: *const c_void,
        address_size: socklen_t,
        family: c_int,
        entry: *mut hostent,
        buffer: *mut c_char,
        size: usize,
        result: *mut *mut hostent,
        error: *mut c_int,
    ) -> c_int;
    getpwnam_r(
        name: *const c_char,
        entry: *mut passwd,
        buffer: *mut c_char,
        size: usize,
        result: *mut *mut passwd,
    ) -> c_int;
    getpwuid_r(
        user: uid_t,
        entry: *mut passwd,
        buffer: *mut c_char,
        size: usize,
        result: *mut *mut passwd,
    ) -> c_int;
    getgrnam_r(
        name: *const c_char,
        entry: *mut group,
        buffer: *mut c_char,
        size: usize,
        result: *mut *mut group,
    ) -> c_int;
    getgrgid_r(
        id: gid_t,
        entry: *mut group,
        buffer: *mut c_char,
        size: usize,
        result: *mut *mut group,
    ) -> c_int;
}
