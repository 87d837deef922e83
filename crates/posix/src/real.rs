//! The C library's own functions behind the names that are ours.

use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A function of the C library, looked up at its first call or by [`crate::start`].
pub(crate) struct Real {
    name: &'static CStr,
    at: AtomicUsize,
}

impl Real {
    pub(crate) const fn new(name: &'static CStr) -> Real {
        Real { name, at: AtomicUsize::new(0) }
    }

    /// Returns its address.
    #[inline]
    pub(crate) fn address(&self) -> usize {
        match self.at.load(Ordering::Relaxed) {
            0 => self.look_up(),
            at => at,
        }
    }

    /// Looks it up without an allocation: allocators call functions of ours while they start. `dlsym` allocates only
    /// for the text of an error, so it is not asked for what may not be there.
    #[cold]
    fn look_up(&self) -> usize {
        let (next, name) = (libc::RTLD_NEXT, self.name.as_ptr());
        // Before release 2.36, `dlsym` returns the oldest version of a name (glibc's bug 14932). Only condition
        // variables have an older one that differs.
        let has_versions = self.name.to_bytes().starts_with(b"pthread_cond_")
            && !self.name.to_bytes().ends_with(b"clockwait");
        // SAFETY: lookups by name.
        let mut found = unsafe {
            match has_versions {
                true => libc::dlvsym(next, name, c"GLIBC_2.3.2".as_ptr()),
                false => libc::dlsym(next, name),
            }
        } as usize;
        if found == 0 {
            // In the archive, the C library comes after the program itself.
            // SAFETY: as above.
            found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, self.name.as_ptr()) } as usize;
        }
        if found == 0 {
            heddle_sys::abort(format_args!("the C library has no {:?}", self.name));
        }
        self.at.store(found, Ordering::Relaxed);
        found
    }
}

/// Calls the C library's function of this name: `real!(sem_wait(sem: *mut libc::sem_t) -> c_int)`. The type is the
/// function's, and the arguments are variables of these names.
macro_rules! real {
    ($name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty) => {{
        static REAL: $crate::real::Real =
            $crate::real::Real::new(match std::ffi::CStr::from_bytes_with_nul(
                concat!(stringify!($name), "\0").as_bytes(),
            ) {
                Ok(name) => name,
                Err(_) => unreachable!(),
            });
        // The C library's function has this type.
        let function: unsafe extern "C-unwind" fn($($type),*) -> $result =
            std::mem::transmute(REAL.address());
        function($($argument),*)
    }};
}
pub(crate) use real;
