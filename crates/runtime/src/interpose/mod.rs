//! C library functions that this crate also defines, because in a task they would apply to the kernel thread.
//!
//! A program that links this crate calls ours, which pass on what they do not answer themselves. Similar functions are
//! next to their subject: destructors and stack bounds in [`crate::tls`].

mod affinity;
mod credentials;

pub use affinity::{Around, Create, Entry, create_foreign_thread, hook_create_thread, hook_makers};
pub(crate) use affinity::{create_thread, pin_again, report_shared, unpin, unpin_thread, usable};
pub(crate) use credentials::lead;

use std::sync::Once;

/// Prepares the process before its first worker starts. The machine lets user space set FS and GS.
pub(crate) fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        affinity::remember();
        credentials::install();
    });
}
