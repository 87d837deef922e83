//! The texts of errors, which libheddle has a call for.

use std::cell::RefCell;
use std::ffi::{CString, c_char};

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Keeps the text of an error.
pub fn keep(text: &str) {
    LAST.set(CString::new(text.replace('\0', "?")).unwrap_or_default());
}

/// See the header.
// SAFETY: the header declares it; who links this library wants this name from it.
#[unsafe(no_mangle)]
pub extern "C" fn kqueue_error() -> *const c_char {
    LAST.with_borrow(|text| text.as_ptr())
}
