//! Functions of the C library that this crate defines, too, because they mean the kernel's thread where a task calls
//! them.
//!
//! A program that links this crate calls ours; what they do not answer themselves they pass on. Others of the kind
//! are with what they are about: destructors and the bounds of stacks in [`crate::tls`].

mod affinity;
mod credentials;

pub(crate) use affinity::{Entry, create_thread};

use std::sync::Once;

/// Prepares the process, before its first worker starts. The machine lets user space set FS and GS.
pub(crate) fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        affinity::remember();
        credentials::install();
    });
}
