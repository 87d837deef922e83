//! The calls under the names that a library exports.

/// Defines the calls of [`calls`](super::calls) under eleven names.
macro_rules! exports {
    (
        $kqueue:ident, $kqueue1:ident, $kevent:ident, $close:ident, $leave:ident, $policy:ident, $multi:ident, $tune:ident, $stats:ident,
        $share:ident, $frequency:ident
    ) => {
        use crate::events::calls;
        use crate::events::raw::Kevent;
        use std::ffi::{c_char, c_int};

        exports! { safe $kqueue = kqueue() }
        exports! { safe $kqueue1 = kqueue1(flags: c_int) }
        exports! { safe $close = close(kq: c_int) }
        exports! { safe $leave = leave(kq: c_int) }
        exports! { safe $multi = multi(kq: c_int, word: u32) }
        exports! { safe $tune = tune(kq: c_int, word: u32) }
        exports! { safe $share = share(kq: c_int, percent: u32) }
        exports! { safe $frequency = frequency(kq: c_int, hertz: u32) }

        /// See the header.
        ///
        /// # Safety
        /// `changes` has `nchanges` entries, `events` room for `nevents`, `timeout` is null or points to a time.
        // SAFETY: the header declares it, and who links the library wants the name from it.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $kevent(
            kq: c_int,
            changes: *const Kevent,
            nchanges: c_int,
            events: *mut Kevent,
            nevents: c_int,
            timeout: *const libc::timespec,
        ) -> c_int {
            // SAFETY: as the caller promises.
            unsafe { calls::kevent(kq, changes, nchanges, events, nevents, timeout) }
        }

        /// See the header.
        ///
        /// # Safety
        /// `policy` is a string.
        // SAFETY: as above.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $policy(kq: c_int, policy: *const c_char) -> c_int {
            // SAFETY: as the caller promises.
            unsafe { calls::policy(kq, policy) }
        }

        /// See the header.
        ///
        /// # Safety
        /// `text` has room for `size` bytes.
        // SAFETY: as above.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $stats(kq: c_int, text: *mut c_char, size: usize) -> c_int {
            // SAFETY: as the caller promises.
            unsafe { calls::stats(kq, text, size) }
        }
    };
    (safe $name:ident = $call:ident($($argument:ident: $type:ty),*)) => {
        /// See the header.
        // SAFETY: the header declares it, and who links the library wants the name from it.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($argument: $type),*) -> c_int {
            calls::$call($($argument),*)
        }
    };
}

pub(crate) use exports;
