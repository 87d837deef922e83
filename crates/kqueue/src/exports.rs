//! The calls under the names that a C library exports.

/// Defines the functions of [`calls`](crate::calls) as `extern "C"` functions under the twelve names given,
/// for the crate of a C library to export.
#[macro_export]
macro_rules! export_calls {
    (
        $kqueue:ident, $kqueue1:ident, $kevent:ident, $close:ident, $leave:ident, $policy:ident, $multi:ident,
        $tune:ident, $stats:ident, $share:ident, $frequency:ident, $idle:ident
    ) => {
        $crate::export_calls! { safe $kqueue = kqueue() }
        $crate::export_calls! { safe $kqueue1 = kqueue1(flags: ::std::ffi::c_int) }
        $crate::export_calls! { safe $close = close(kq: ::std::ffi::c_int) }
        $crate::export_calls! { safe $leave = leave(kq: ::std::ffi::c_int) }
        $crate::export_calls! { safe $multi = multi(kq: ::std::ffi::c_int, word: u32) }
        $crate::export_calls! { safe $tune = tune(kq: ::std::ffi::c_int, word: u32) }
        $crate::export_calls! { safe $share = share(kq: ::std::ffi::c_int, percent: u32) }
        $crate::export_calls! { safe $frequency = frequency(kq: ::std::ffi::c_int, hertz: u32) }
        $crate::export_calls! {
            safe $idle = idle(kq: ::std::ffi::c_int, ident: usize, filter: i16, milliseconds: u32)
        }

        /// See the header.
        ///
        /// # Safety
        /// `changes` has `nchanges` entries, `events` has room for `nevents`, `timeout` is null or points to
        /// a time.
        // SAFETY: the header declares the symbol, and programs that link the library expect it under this
        // name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $kevent(
            kq: ::std::ffi::c_int,
            changes: *const $crate::raw::Kevent,
            nchanges: ::std::ffi::c_int,
            events: *mut $crate::raw::Kevent,
            nevents: ::std::ffi::c_int,
            timeout: *const $crate::raw::timespec,
        ) -> ::std::ffi::c_int {
            // SAFETY: as the caller promises.
            unsafe { $crate::calls::kevent(kq, changes, nchanges, events, nevents, timeout) }
        }

        /// See the header.
        ///
        /// # Safety
        /// `policy` is a string.
        // SAFETY: as above.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $policy(
            kq: ::std::ffi::c_int,
            policy: *const ::std::ffi::c_char,
        ) -> ::std::ffi::c_int {
            // SAFETY: as the caller promises.
            unsafe { $crate::calls::policy(kq, policy) }
        }

        /// See the header.
        ///
        /// # Safety
        /// `text` has room for `size` bytes.
        // SAFETY: as above.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $stats(
            kq: ::std::ffi::c_int,
            text: *mut ::std::ffi::c_char,
            size: usize,
        ) -> ::std::ffi::c_int {
            // SAFETY: as the caller promises.
            unsafe { $crate::calls::stats(kq, text, size) }
        }
    };
    (safe $name:ident = $call:ident($($argument:ident: $type:ty),*)) => {
        /// See the header.
        // SAFETY: the header declares the symbol, and programs that link the library expect it under this
        // name.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($argument: $type),*) -> ::std::ffi::c_int {
            $crate::calls::$call($($argument),*)
        }
    };
}
