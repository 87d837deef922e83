//! What stands behind FS: a thread control block and thread-local storage for every task.
//!
//! The C library and the compiler find errno, `thread_local!`, `__thread` and the owner of a recursive mutex through
//! the FS base. Each task has its own, so all of these are per task and may be used across switches. Two providers:
//!
//! - [`block`]: a block that this crate lays out itself. What is private in it is *discovered* by comparing the blocks
//!   of two fresh threads and *verified* by running the C library on the result. About 5 KB and no kernel thread.
//! - [`donor`]: the block of a real thread that sleeps for as long as tasks use it. Public interfaces only; costs a
//!   kernel thread for every live task, so it ends near 30,000 tasks. The fallback where verification fails.
//!
//! What asks the kernel about a thread by its number cannot work on a block whose number the kernel does not know:
//! `pthread_getaffinity_np`, `pthread_setschedparam` and `pthread_getcpuclockid` of a task fail with ESRCH. They make
//! no sense for a task. `pthread_getattr_np`, which collectors use to find the stack, is answered by [`attr`].
//!
//! Blocks are recycled with the stack that they lie on: [`image`] restores thread-local variables to their initial
//! values and [`dtors`] has run their destructors before.

mod attr;
pub(crate) mod block;
pub(crate) mod donor;
pub(crate) mod dtors;
pub(crate) mod image;
mod probe;
mod verify;

use std::sync::OnceLock;

/// How tasks get their thread-local storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsMode {
    /// Blocks laid out from a verified template.
    Block,
    /// The blocks of sleeping kernel threads.
    Donor,
}

impl std::str::FromStr for TlsMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "block" => Ok(TlsMode::Block),
            "donor" => Ok(TlsMode::Donor),
            _ => Err("there are: block, donor".to_owned()),
        }
    }
}

/// Where a task's control block is, and the highest address that the task itself may use.
pub(crate) struct Area {
    pub(crate) fs: usize,
    pub(crate) usable_top: usize,
}

/// The choice of this process and, for [`TlsMode::Donor`] by default, why not blocks.
pub(crate) struct Choice {
    pub(crate) mode: TlsMode,
    pub(crate) reason: String,
    template: Option<block::Template>,
}

static CHOICE: OnceLock<Choice> = OnceLock::new();

/// The choice, made at first use: `HEDDLE_TLS=block|donor`, else blocks if they verify.
pub(crate) fn choice() -> &'static Choice {
    CHOICE.get_or_init(|| {
        let donor = |reason: String| Choice { mode: TlsMode::Donor, reason, template: None };
        if std::env::var("HEDDLE_TLS").is_ok_and(|v| v.parse() == Ok(TlsMode::Donor)) {
            return donor("asked for by HEDDLE_TLS=donor".into());
        }
        match block::Template::discover().and_then(|t| verify::verify(&t).map(|()| t)) {
            Ok(template) => Choice {
                mode: TlsMode::Block,
                reason: "discovered and verified".into(),
                template: Some(template),
            },
            Err(why) => donor(why),
        }
    })
}

/// Gives the memory `base..base + size` a control block at its upper end.
///
/// # Errors
/// What could not be had: a thread, or memory.
///
/// # Safety
/// The memory is zeroed, writable, page-aligned and belongs to tasks from here on.
pub(crate) unsafe fn furnish(base: *mut u8, size: usize) -> std::io::Result<Area> {
    let choice = choice();
    match &choice.template {
        // SAFETY: the caller's memory.
        Some(template) => unsafe { template.furnish(base, size) },
        // SAFETY: the caller's memory.
        None => unsafe { donor::furnish(base, size) },
    }
}
