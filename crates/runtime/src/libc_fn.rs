//! The C library's own definitions of functions that this crate also defines.

use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The C library's own definition of a function.
pub(crate) struct LibcFn {
    name: &'static CStr,
    at: AtomicUsize,
}

impl LibcFn {
    pub(crate) const fn new(name: &'static CStr) -> LibcFn {
        LibcFn { name, at: AtomicUsize::new(0) }
    }

    /// The function of a name that ends with a zero, for macros: `concat!(stringify!($name), "\0")`.
    pub(crate) const fn named(name: &'static str) -> LibcFn {
        match CStr::from_bytes_with_nul(name.as_bytes()) {
            Ok(name) => LibcFn::new(name),
            Err(_) => panic!("a name ends with its only zero"),
        }
    }

    /// Returns its address, looked up once.
    pub(crate) fn address(&self) -> usize {
        let cached = self.at.load(Ordering::Relaxed);
        if cached != 0 {
            return cached;
        }
        // SAFETY: a lookup by name.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) } as usize;
        assert_ne!(found, 0, "the C library has no {:?}", self.name);
        self.at.store(found, Ordering::Relaxed);
        found
    }
}
