//! Threads in C: `include/heddle/thread.h` over [`heddle_rt`].

use heddle_core::{Class, Ns};
use heddle_rt::{Builder, ConfigError, JoinHandle, Runtime, RuntimeBuilder};
use heddle_steer::request::{Error, ErrorKind};
use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::error::{failed, invalid, number_of};
use crate::text::text;

/// `hd_runtime`: opaque to C.
pub struct HdRuntime {
    runtime: Runtime,
    number: u64,
}

/// `hd_task`: opaque to C.
pub struct HdTask {
    handle: JoinHandle<Argument>,
    number: u64,
}

/// `struct hd_task_attr`.
#[repr(C)]
pub struct Attr {
    name: *const c_char,
    stack: usize,
    class: u32,
    reserved: u32,
    deadline: u64,
    expected: u64,
}

/// What C gives to a task, and gets from it.
struct Argument(*mut c_void);

// SAFETY: whose it is and who may use it is the program's business, as with `pthread_create`.
unsafe impl Send for Argument {}

type Entry = extern "C" fn(*mut c_void) -> *mut c_void;

/// The numbers of tasks and runtimes made here.
static NUMBERS: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// The numbers of the calling task and of its runtime; 0 in an ordinary thread, and for the process-wide runtime.
    static OWN: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// Stores the text of the error, and returns null.
fn null<T>(error: &Error) -> *mut T {
    failed(error);
    ptr::null_mut()
}

/// See the header.
///
/// # Safety
/// `policy` is null or a string.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_runtime_start(policy: *const c_char, workers: u32) -> *mut HdRuntime {
    let mut builder = RuntimeBuilder::new();
    if !policy.is_null() {
        // SAFETY: as the caller promises.
        match unsafe { text(policy, "the policy") } {
            Ok(policy) => builder = builder.policy(policy),
            Err(error) => return null(&error),
        }
    }
    if workers > 0 {
        builder = builder.workers(workers as usize);
    }
    match builder.build() {
        Ok(runtime) => {
            let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
            Box::into_raw(Box::new(HdRuntime { runtime, number }))
        }
        Err(error) => null(&Error::new(kind(&error), error.to_string())),
    }
}

fn kind(error: &ConfigError) -> ErrorKind {
    match error {
        ConfigError::NoFsGsBase => ErrorKind::Unsupported,
        ConfigError::System { .. } => ErrorKind::System,
        _ => ErrorKind::Invalid,
    }
}

/// See the header.
///
/// # Safety
/// `runtime` is null, or from `hd_runtime_start` and not used any more.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_runtime_stop(runtime: *mut HdRuntime, within: u64) -> c_int {
    // SAFETY: as the caller promises.
    let Some(number) = unsafe { runtime.as_ref() }.map(|runtime| runtime.number) else { return 0 };
    if OWN.get().1 == number {
        return failed(&invalid(
            "a task cannot stop its own runtime: it would wait for its own end",
        ));
    }
    // SAFETY: it came from a box, and the caller does not use it again.
    let HdRuntime { runtime, .. } = *unsafe { Box::from_raw(runtime) };
    let left = runtime.shutdown(Duration::from_nanos(within));
    c_int::try_from(left).unwrap_or(c_int::MAX)
}

/// See the header.
///
/// # Safety
/// `runtime` is null or a runtime, `attr` is null or valid with a name that is null or a string, and `entry` may be
/// called with `argument` in another thread.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_task_spawn(
    runtime: *const HdRuntime,
    attr: *const Attr,
    entry: Option<Entry>,
    argument: *mut c_void,
) -> *mut HdTask {
    // SAFETY: as the caller promises.
    let (runtime, builder) = unsafe { (runtime.as_ref(), builder(attr.as_ref())) };
    let spawned = builder.and_then(|builder| {
        let entry = entry.ok_or_else(|| invalid("the function is NULL"))?;
        spawn(runtime, builder, entry, Argument(argument))
    });
    match spawned {
        Ok(task) => Box::into_raw(Box::new(task)),
        Err(error) => null(&error),
    }
}

/// # Safety
/// The name in `attr` is null or a string.
unsafe fn builder(attr: Option<&Attr>) -> Result<Builder, Error> {
    let mut builder = Builder::new();
    let Some(attr) = attr else { return Ok(builder) };
    if !attr.name.is_null() {
        // SAFETY: as the caller promises.
        builder = builder.name(unsafe { text(attr.name, "the name") }?);
    }
    if attr.stack > 0 {
        builder = builder.stack_size(attr.stack);
    }
    if attr.deadline > 0 {
        builder = builder.deadline(Ns(attr.deadline));
    }
    if attr.expected > 0 {
        builder = builder.expected(Ns(attr.expected));
    }
    let class = u8::try_from(attr.class).map_err(|_| invalid("the class is above 255"))?;
    Ok(builder.class(Class(class)))
}

fn spawn(
    runtime: Option<&HdRuntime>,
    builder: Builder,
    entry: Entry,
    argument: Argument,
) -> Result<HdTask, Error> {
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
    let own = (number, runtime.map_or(OWN.get().1, |runtime| runtime.number));
    let run = move || {
        OWN.set(own);
        let Argument(argument) = { argument };
        Argument(entry(argument))
    };
    let handle = match runtime {
        Some(it) => builder.spawn_in(&it.runtime, run),
        None => builder.spawn(run),
    };
    let refused = |error: io::Error| match error.kind() {
        io::ErrorKind::InvalidInput => invalid(&error.to_string()),
        _ => Error::system("cannot create a task", &error),
    };
    handle.map(|handle| HdTask { handle, number }).map_err(refused)
}

/// See the header.
///
/// # Safety
/// `task` is from `hd_task_spawn` and not used any more; `result` is null, or has room.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_task_join(task: *mut HdTask, result: *mut *mut c_void) -> c_int {
    // SAFETY: as the caller promises.
    let Some(number) = unsafe { task.as_ref() }.map(|task| task.number) else {
        return failed(&invalid("the task is NULL"));
    };
    if OWN.get().0 == number {
        return failed(&invalid("a task cannot wait for its own end"));
    }
    // SAFETY: it came from a box, and the caller does not use it again.
    let HdTask { handle, .. } = *unsafe { Box::from_raw(task) };
    let joined = handle.join().map(|Argument(value)| {
        if !result.is_null() {
            // SAFETY: as the caller promises.
            unsafe { result.write(value) };
        }
        0
    });
    let lost =
        "the task will not end: its runtime was stopped before; stop it after all tasks are joined";
    number_of(joined.map_err(|_| Error::new(ErrorKind::NotFound, lost)))
}

/// See the header.
///
/// # Safety
/// `task` is null, or from `hd_task_spawn` and not used any more.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_task_detach(task: *mut HdTask) {
    if !task.is_null() {
        // SAFETY: it came from a box, and the caller does not use it again.
        drop(unsafe { Box::from_raw(task) });
    }
}

/// See the header.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub extern "C" fn hd_task_yield() {
    heddle_rt::yield_now();
}

/// See the header.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub extern "C" fn hd_task_sleep_until(at: u64) {
    heddle_rt::sleep_until(Ns(at));
}
