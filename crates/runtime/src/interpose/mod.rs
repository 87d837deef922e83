//! Functions of the C library that this crate defines, too, because they mean the kernel's thread where a task calls them.
//!
//! A program that links this crate calls ours; what they do not answer themselves they pass on. Others of the kind are with what
//! they are about: destructors and the bounds of stacks in [`crate::tls`].

mod affinity;
mod credentials;

pub(crate) use affinity::{Entry, create_thread};

use std::ffi::CStr;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The C library's own definition of a function.
pub(crate) struct Real {
    name: &'static CStr,
    at: AtomicUsize,
}

impl Real {
    pub(crate) const fn new(name: &'static CStr) -> Real {
        Real { name, at: AtomicUsize::new(0) }
    }

    /// Its address, looked up once.
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

/// Prepares the process, before its first worker starts. The machine lets user space set FS and GS.
pub(crate) fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        affinity::remember();
        credentials::install();
    });
}
