//! Address ranges of code in which no task is preempted.
//!
//! A task that loses the CPU inside an allocator keeps the allocator's lock, and every thread that needs it waits, each
//! blocking a worker. So the preemption handler checks where it interrupts, and does not switch away:
//!
//! - in the C library, the loader and the unwinder, and in allocators that are shared objects, by file name, but for
//!   functions on memory and strings that the program itself has called ([`lockless`]);
//! - in any other shared object that defines `malloc`;
//! - in an allocator linked into the program, by the program's symbols ([`symbols`]);
//! - in code named by the user (`RuntimeBuilder::no_preempt_code`).
//!
//! A stripped program has no symbols: for it, [`crate::alloc::NoPreempt`] does the same without them.

mod allocators;
mod lockless;
mod pattern;
mod symbols;

use heddle_sys::thread::Blocked;
use pattern::Pattern;
use std::ops::Range;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Objects that hold locks which every task needs: memory, streams, the list of modules.
const SYSTEM: [&str; 4] = ["libc.so*", "ld-linux*", "libgcc_s*", "libpthread*"];

/// Code that allocators call with their locks held and the C library does not: the clock that the kernel maps into each
/// process, and C++'s containers (tcmalloc's free pages are a `std::set`).
const CALLED: [&str; 2] = ["linux-vdso*", "libstdc++.so*"];

/// Address ranges of code, each list sorted and disjoint.
struct Map {
    /// Where no task is preempted.
    held: Vec<Range<usize>>,
    /// The part of it that takes no lock.
    lockless: Vec<Range<usize>>,
    /// Everything that was loaded.
    code: Vec<Range<usize>>,
}

/// Replaced as a whole and never freed: a handler may be reading the old one.
static MAP: AtomicPtr<Map> = AtomicPtr::new(ptr::null_mut());

/// The names given by users so far, once the code has been learned.
static NAMED: Mutex<Option<Vec<String>>> = Mutex::new(None);

/// Returns the system call that a signal interrupted, if it was one and slept: the kernel does not end others for a
/// signal, except `poll` without a timeout. It is about to be restarted, or has failed with EINTR. `context` is the
/// signal's.
pub(crate) fn interrupted_call(context: &libc::ucontext_t) -> Option<Blocked> {
    const SYSCALL: [u8; 2] = [0x0f, 0x05];
    let registers = &context.uc_mcontext.gregs;
    let at = registers[libc::REG_RIP as usize] as usize;
    let result = registers[libc::REG_RAX as usize];
    // SAFETY: the caller executes this code; code that it need not be able to read is on another page.
    let code_is = |from: usize| unsafe { (from as *const [u8; 2]).read_unaligned() == SYSCALL };
    let page = at % 4096;
    if result == -i64::from(libc::EINTR) && page >= 2 && code_is(at - 2) {
        return Some(Blocked { number: Blocked::UNKNOWN, argument: 0, at });
    }
    let polls = result == libc::SYS_poll && registers[libc::REG_RDX as usize] == 0;
    if result >= 0 && !polls && page < 4095 && code_is(at) {
        let argument = registers[libc::REG_RDI as usize] as usize;
        let number = match result {
            libc::SYS_restart_syscall => Blocked::UNKNOWN,
            number => number,
        };
        return Some(Blocked { number, argument, at: at + 2 });
    }
    None
}

/// Finds the code once per process, and again if `named` is new: objects or functions of the program, with `*` as a
/// wildcard.
pub(crate) fn learn(named: &[String]) {
    let mut known = NAMED.lock().unwrap_or_else(|e| e.into_inner());
    let is_new = |name: &&String| !known.as_ref().is_some_and(|known| known.contains(name));
    let new: Vec<String> = named.iter().filter(is_new).cloned().collect();
    if known.is_some() && new.is_empty() {
        return;
    }
    let all = known.get_or_insert_default();
    all.extend(new);
    let code = objects().into_iter().flat_map(|object| object.code).collect();
    let map =
        Map { held: merge(find(all)), lockless: merge(lockless::functions()), code: merge(code) };
    MAP.store(Box::into_raw(Box::new(map)), Ordering::Release);
}

/// Returns whether the instruction at `at` is in code that is not preempted.
pub(crate) fn is_held(at: usize) -> bool {
    map().is_some_and(|map| contains(&map.held, at))
}

/// Returns whether a task that was interrupted at `at`, with the stack pointer `sp`, is in code that is not preempted.
/// For signal handlers.
///
/// A function that holds no lock may have been called by one that does, such as `realloc`. These functions have no
/// frame, so the word at the stack pointer is the address to which they return. If one did push something first, that
/// is the address of code by chance only.
///
/// # Safety
/// `sp` is the task's stack pointer.
pub(crate) unsafe fn is_held_in(at: usize, sp: usize) -> bool {
    let Some(map) = map() else { return false };
    if !contains(&map.lockless, at) {
        return contains(&map.held, at);
    }
    // SAFETY: by the caller's promise.
    let back = unsafe { (sp as *const usize).read() };
    contains(&map.held, back) || !contains(&map.code, back)
}

fn map() -> Option<&'static Map> {
    // SAFETY: null or a map that is never freed.
    unsafe { MAP.load(Ordering::Acquire).as_ref() }
}

fn contains(ranges: &[Range<usize>], at: usize) -> bool {
    let behind = ranges.partition_point(|range| range.start <= at);
    behind > 0 && at < ranges[behind - 1].end
}

fn find(named: &[String]) -> Vec<Range<usize>> {
    let named: Vec<Pattern<'_>> = named.iter().map(|name| Pattern(name)).collect();
    let objects = objects();
    let of = |patterns: &[Pattern<'_>]| -> Vec<Range<usize>> {
        let chosen =
            objects.iter().filter(|o| patterns.iter().any(|p| p.matches(o.name.as_bytes())));
        chosen.flat_map(|o| o.code.iter().cloned()).collect()
    };
    let mut found = of(&allocators::OBJECTS.map(Pattern));
    found.extend(of(&named));
    found.extend(replaced_malloc(&objects));
    let base = objects.first().map_or(0, |program| program.base);
    found.extend(symbols::functions(&named, base).unwrap_or_default());
    if !found.is_empty() {
        found.extend(of(&CALLED.map(Pattern)));
    }
    found.extend(of(&SYSTEM.map(Pattern)));
    found
}

/// Returns the code of the shared object that defines `malloc`, unless that is the C library: an allocator under an
/// unknown name. If the program itself defines it, its symbols show that.
fn replaced_malloc(objects: &[Loaded]) -> Vec<Range<usize>> {
    // SAFETY: a lookup by name.
    let malloc = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"malloc".as_ptr()) } as usize;
    let is_system = |o: &Loaded| SYSTEM.iter().any(|p| Pattern(p).matches(o.name.as_bytes()));
    let libraries = objects.iter().skip(1).filter(|o| !is_system(o));
    let defines = |o: &&Loaded| o.code.iter().any(|code| code.contains(&malloc));
    libraries.filter(defines).flat_map(|o| o.code.iter().cloned()).collect()
}

/// Sorts the ranges, and joins those that overlap or have only padding in between.
fn merge(mut ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    const PADDING: usize = 64;
    ranges.sort_by_key(|range| range.start);
    let mut merged: Vec<Range<usize>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end + PADDING => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

/// A loaded object: its file name without the folder (empty for the program itself), and its code.
struct Loaded {
    name: String,
    base: usize,
    code: Vec<Range<usize>>,
}

/// Returns everything that is loaded, the program first.
fn objects() -> Vec<Loaded> {
    unsafe extern "C" fn each(
        info: *mut libc::dl_phdr_info,
        _: usize,
        out: *mut libc::c_void,
    ) -> i32 {
        // SAFETY: the loader passes a valid entry with a name and that many headers; `out` is the vector below.
        let (info, name, headers, out) = unsafe {
            let info = &*info;
            let headers = std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
            let name = std::ffi::CStr::from_ptr(info.dlpi_name).to_string_lossy();
            (info, name, headers, &mut *out.cast::<Vec<Loaded>>())
        };
        let is_code =
            |h: &&libc::Elf64_Phdr| h.p_type == libc::PT_LOAD && h.p_flags & libc::PF_X != 0;
        let code = headers.iter().filter(is_code).map(|h| {
            let start = (info.dlpi_addr + h.p_vaddr) as usize;
            start..start + h.p_memsz as usize
        });
        out.push(Loaded {
            name: name.rsplit('/').next().unwrap_or_default().to_owned(),
            base: info.dlpi_addr as usize,
            code: code.collect(),
        });
        0
    }
    let mut out: Vec<Loaded> = Vec::new();
    // SAFETY: the callback matches, and runs before the call returns.
    unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut out).cast()) };
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    #[unsafe(no_mangle)]
    extern "C" fn heddle_test_named_by_the_user() -> u32 {
        std::hint::black_box(7)
    }

    #[test]
    fn ranges_that_touch_are_joined() {
        assert_eq!(merge(vec![500..600, 100..200, 150..180, 230..300]), [100..300, 500..600]);
    }

    #[test]
    fn the_c_library_and_what_the_user_names_are_held_and_nothing_else() {
        let own = heddle_test_named_by_the_user as *const () as usize;
        learn(&[]);
        assert!(is_held(libc::malloc as *const () as usize));
        assert!(
            !is_held(own)
                && !is_held(learn as *const () as usize)
                && !is_held(0)
                && !is_held(usize::MAX)
        );
        learn(&["heddle_test_named_*".to_owned()]);
        assert!(is_held(own) && !is_held(learn as *const () as usize));
        assert!(is_held(libc::malloc as *const () as usize));
    }

    #[test]
    fn a_function_without_a_lock_is_held_on_behalf_of_its_caller() {
        learn(&[]);
        // SAFETY: a lookup by name; and stack pointers to a word of this frame.
        unsafe {
            let memcpy = libc::dlsym(libc::RTLD_DEFAULT, c"memcpy".as_ptr()) as usize;
            let from = |caller: usize| is_held_in(memcpy, &raw const caller as usize);
            assert!(!from(learn as *const () as usize + 1));
            assert!(from(libc::realloc as *const () as usize + 1) && from(17));
            let malloc = libc::malloc as *const () as usize;
            let own = learn as *const () as usize;
            assert!(is_held_in(malloc, &raw const own as usize));
        }
    }
}
