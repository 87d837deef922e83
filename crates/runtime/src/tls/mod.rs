//! The memory behind FS: a thread control block and thread-local storage for every task.
//!
//! The C library and the compiler find errno, `thread_local!`, `__thread` and the owner of a recursive mutex through
//! the FS base. Each task has its own, so all of these are per task and may be used across switches. There are two
//! providers:
//!
//! - [`block`]: a block laid out by this crate. Its private parts are *discovered* by comparing the blocks of two fresh
//!   threads and *verified* by running the C library on the result. About 5 KB and no kernel thread.
//! - [`donor`]: the block of a real thread that sleeps for as long as tasks use it. Uses only public interfaces, but
//!   costs a kernel thread per live task, so the limit is near 30,000 tasks. The fallback if verification fails.
//!
//! Calls that ask the kernel about a thread by its id cannot work on a block whose id the kernel does not know:
//! `pthread_getaffinity_np`, `pthread_setschedparam` and `pthread_getcpuclockid` of a task fail with ESRCH. They make
//! no sense for a task. [`attr`] answers `pthread_getattr_np`, which collectors use to find the stack.
//!
//! Blocks are recycled together with the stack that they lie on: [`dtors`] runs the destructors, then [`image`] resets
//! thread-local variables to their initial values.

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

/// The address of a task's control block, and the highest address that the task itself may use.
pub(crate) struct Area {
    pub(crate) fs: usize,
    pub(crate) usable_top: usize,
}

/// This process's provider and, if [`TlsMode::Donor`] is the default, why blocks do not work.
pub(crate) struct Choice {
    pub(crate) mode: TlsMode,
    pub(crate) reason: String,
    template: Option<block::Template>,
}

static CHOICE: OnceLock<Choice> = OnceLock::new();

/// Returns the provider, chosen at first use: `HEDDLE_TLS=block|donor`, else blocks if they verify.
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
/// No thread or no memory is available.
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

/// Gives the calling task's descriptor a new thread number, and returns it: no two threads that were alive at some time
/// have the same one. A donor's number is its kernel thread's.
pub(crate) fn renumber() -> u32 {
    match &choice().template {
        Some(template) => template.renumber(heddle_arch::fs_base()),
        None => heddle_sys::thread::id(),
    }
}

/// Returns the thread number that the calling context's descriptor holds.
pub(crate) fn number() -> u32 {
    match &choice().template {
        Some(template) => template.number(heddle_arch::fs_base()),
        None => heddle_sys::thread::id(),
    }
}

/// Tells the kernel that the calling thread no longer has a place for restartable sequences in `descriptor`, which the
/// C library is about to reuse. Before glibc 2.35 there is none.
pub(crate) fn end_restartable_sequences(descriptor: usize) {
    block::end_restartable_sequences(descriptor);
}
