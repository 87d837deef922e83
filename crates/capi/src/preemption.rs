//! Sections without preemption: `hd_no_preempt_begin` and `hd_no_preempt_end` of `include/heddle/thread.h`.

use heddle_rt::raw::{self, NoPreempt};
use std::cell::RefCell;
use std::ffi::c_int;

use crate::error::{failed, invalid};

/// The sections that the calling task or thread is in.
struct Sections {
    depth: u32,
    /// Of the outermost.
    guard: Option<NoPreempt>,
}

thread_local! {
    static SECTIONS: RefCell<Sections> = const { RefCell::new(Sections { depth: 0, guard: None }) };
}

/// See the header.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub extern "C" fn hd_no_preempt_begin() {
    SECTIONS.with_borrow_mut(|sections| {
        if sections.depth == 0 {
            sections.guard = Some(NoPreempt::new());
        }
        sections.depth += 1;
    });
}

/// See the header.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub extern "C" fn hd_no_preempt_end() -> c_int {
    let ended = SECTIONS.with_borrow_mut(|sections| {
        sections.depth = sections.depth.checked_sub(1)?;
        Some(if sections.depth == 0 { sections.guard.take() } else { None })
    });
    let Some(guard) = ended else {
        return failed(&invalid("there is no section without preemption to end"));
    };
    if guard.is_some() {
        // Not in the closure: the task may be preempted here.
        drop(guard);
        raw::look();
    }
    0
}
