//! Two fresh threads, examined before anything has touched their storage.

use std::ffi::c_void;
use std::io;
use std::sync::Barrier;

/// The state of one fresh thread.
#[derive(Default)]
pub(super) struct Probe {
    /// Its thread pointer.
    pub(super) tp: usize,
    /// Its kernel thread id.
    pub(super) tid: u32,
    /// Where its thread-local storage and control block begin, and their words from there on.
    pub(super) start: usize,
    pub(super) words: Vec<u64>,
    /// Its stack.
    pub(super) stack: (usize, usize),
    /// Thread-local storage of the loaded modules: (address in this thread, image, bytes of image, bytes in all).
    pub(super) modules: Vec<Module>,
}

/// The thread-local storage of one module as a thread sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Module {
    pub(super) address: usize,
    pub(super) image: usize,
    pub(super) image_len: usize,
    pub(super) len: usize,
    /// Whether it is the C library or the loader.
    pub(super) is_libc: bool,
}

struct Order<'a> {
    probe: &'a mut Probe,
    /// Both threads are alive while either is examined, so no word is equal only because memory was reused.
    together: &'a Barrier,
    below: usize,
}

/// Bytes of the stack that a probe runs on.
const STACK: usize = 256 * 1024;

extern "C" fn look(order: *mut c_void) -> *mut c_void {
    // SAFETY: `pair` waits for this thread and keeps the order alive.
    let order = unsafe { &mut *order.cast::<Order<'_>>() };
    let probe = &mut *order.probe;
    probe.tp = heddle_arch::fs_base();
    probe.start = probe.tp - order.below;
    let end = probe.stack.0 + probe.stack.1;
    // Raw reads into memory allocated before: no call that could use thread-local storage comes first.
    for i in 0..(end - probe.start) / 8 {
        // SAFETY: from the start of static thread-local storage to the end of the thread's memory.
        let word = unsafe { ((probe.start + i * 8) as *const u64).read_volatile() };
        probe.words[i] = word;
    }
    probe.words.truncate((end - probe.start) / 8);
    probe.tid = heddle_sys::thread::id();
    probe.modules = modules();
    order.together.wait();
    std::ptr::null_mut()
}

/// Returns the thread-local storage of every module, as the calling thread sees it.
fn modules() -> Vec<Module> {
    unsafe extern "C" fn each(info: *mut libc::dl_phdr_info, _: usize, out: *mut c_void) -> i32 {
        // SAFETY: the loader passes a valid entry, and `out` is the vector below.
        let (info, out) = unsafe { (&*info, &mut *out.cast::<Vec<Module>>()) };
        // SAFETY: a valid entry has this many headers and a name.
        let (headers, name) = unsafe {
            let headers = std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
            (headers, std::ffi::CStr::from_ptr(info.dlpi_name).to_string_lossy())
        };
        let file = name.rsplit('/').next().unwrap_or_default();
        let tls = headers.iter().find(|h| h.p_type == libc::PT_TLS);
        if let (Some(tls), false) = (tls, info.dlpi_tls_data.is_null()) {
            out.push(Module {
                address: info.dlpi_tls_data as usize,
                image: info.dlpi_addr as usize + tls.p_vaddr as usize,
                image_len: tls.p_filesz as usize,
                len: tls.p_memsz as usize,
                is_libc: file.starts_with("libc.so") || file.starts_with("ld-linux"),
            });
        }
        0
    }
    let mut out: Vec<Module> = Vec::new();
    // SAFETY: the callback matches, and runs before the call returns.
    unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut out).cast()) };
    out
}

/// Runs two probes at the same time; `below` is the size of the static storage under the thread pointer.
pub(super) fn pair(below: usize) -> io::Result<[Probe; 2]> {
    let together = Barrier::new(2);
    let mut probes = [Probe::default(), Probe::default()];
    let mut threads = Vec::new();
    let mut orders: Vec<Order<'_>> = Vec::new();
    for probe in &mut probes {
        let base = heddle_sys::memory::reserve(STACK)? as usize;
        probe.stack = (base, STACK);
        probe.words = vec![0; (below + 64 * 1024) / 8];
        orders.push(Order { probe, together: &together, below });
    }
    for order in &mut orders {
        let (base, size) = order.probe.stack;
        threads.push(super::donor::thread_on(base, size, look, (&raw mut *order).cast())?);
    }
    for thread in threads {
        // SAFETY: a joinable thread, joined once.
        unsafe { libc::pthread_join(thread, std::ptr::null_mut()) };
    }
    drop(orders);
    Ok(probes)
}
