//! How errors reach C.

use std::ffi::{c_char, c_int};

use heddle_steer::request::{Error, ErrorKind};

/// Returns the text of the calling thread's last call that failed; empty if none did. Valid until the
/// thread's next call.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub extern "C" fn hd_error() -> *const c_char {
    heddle_kqueue::error::last()
}

/// Returns the number of errno.h, which is the same on all Linux machines that Heddle runs on.
fn number(kind: ErrorKind) -> c_int {
    match kind {
        ErrorKind::Invalid => 22,
        ErrorKind::NotFound => 2,
        ErrorKind::Busy => 16,
        ErrorKind::Denied => 1,
        ErrorKind::Unsupported => 95,
        ErrorKind::System => 5,
    }
}

/// Stores the text of an error and returns its negative number.
pub fn failed(error: &Error) -> c_int {
    heddle_kqueue::error::set_last(&error.text);
    -number(error.kind)
}

/// Returns what C gets for a result that is a number.
pub fn number_of(result: Result<c_int, Error>) -> c_int {
    result.unwrap_or_else(|error| failed(&error))
}

/// Makes an error about an argument of the program.
pub fn invalid(text: &str) -> Error {
    Error::new(ErrorKind::Invalid, text)
}
