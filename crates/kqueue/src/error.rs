//! What a failed call leaves behind: an error number, and a text that says more.

use heddle_events::EventError;
use rustix::io::Errno;
use std::cell::RefCell;
use std::ffi::{CString, c_char};

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Stores `text` as the calling thread's last error.
pub fn set_last(text: &str) {
    LAST.set(CString::new(text.replace('\0', "?")).unwrap_or_default());
}

/// Returns the text of the calling thread's last error; empty if no call has failed. Valid until the thread's
/// next call.
pub fn last() -> *const c_char {
    LAST.with_borrow(|text| text.as_ptr())
}

/// Stores the text of `error` for [`last`] and returns its number.
pub(crate) fn errno(error: EventError) -> Errno {
    set_last(&error.to_string());
    Errno::from_raw_os_error(error.errno())
}
