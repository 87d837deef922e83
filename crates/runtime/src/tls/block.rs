//! Control blocks without kernel threads.
//!
//! The loader's `_dl_allocate_tls` (what `pthread_create` itself calls; sanitizers rely on its neighbours) sets up
//! thread-local variables and the table of modules. What it leaves out is the rest of the C library's descriptor:
//! pointers to itself, guards, the thread's number, the resolver's state. A [`Template`] knows
//! those without a structure definition: every word of two fresh threads is compared, and is
//!
//! - equal in both: a constant, copied;
//! - at the same distance from the thread pointer and inside the block: a pointer to itself, relocated;
//! - anything else: the thread's own (list links, stack of its entry), left zero.
//!
//! Set by us: the link into the C library's list of threads, which becomes a list of one (`fork` unlinks the caller
//! in the child); the number (each block gets one that no kernel thread can have, or one task could release another's
//! recursive mutex) and the CPU number that restartable sequences would keep there (the kernel does not know our
//! block, so "not registered" is the truth and `sched_getcpu` asks the kernel).

use super::Area;
use super::image::Images;
use super::probe::{self, Probe};
use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{io, ptr};

/// The loader's function that sets up thread-local storage in given memory.
type Allocate = unsafe extern "C" fn(*mut c_void) -> *mut c_void;

/// The layout of a block of this process.
pub(crate) struct Template {
    /// Words to write, by offset from the thread pointer.
    constants: Vec<(isize, u64)>,
    /// Pointers into the block: offset, and what they point to as an offset.
    relative: Vec<(isize, isize)>,
    tid: isize,
    rseq_cpu: Option<isize>,
    /// The link into the list of threads: two words.
    link: Option<isize>,
    /// Bytes of static storage below the thread pointer and of the descriptor above it.
    below: usize,
    above: usize,
    align: usize,
    allocate: Allocate,
}

/// How many numbers have been given away. Linux stops at 2^22; futexes have 30 bits for a number.
static NUMBERS: AtomicU32 = AtomicU32::new(0);

/// Returns a thread number that no kernel thread has, and no block got within a thousand million calls.
fn next_number() -> u32 {
    const FIRST: u32 = 1 << 22;
    FIRST + NUMBERS.fetch_add(1, Ordering::Relaxed) % ((1 << 30) - FIRST)
}

fn symbol(name: &std::ffi::CStr) -> Result<*mut c_void, String> {
    // SAFETY: a lookup by name.
    let at = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr().cast::<c_char>()) };
    if at.is_null() { Err(format!("the C library has no {name:?}")) } else { Ok(at) }
}

/// Total bytes of static thread-local storage with descriptor, and alignment.
fn static_info() -> Result<(usize, usize), String> {
    let at = symbol(c"_dl_get_tls_static_info")?;
    let (mut size, mut align) = (0usize, 0usize);
    // SAFETY: the loader's function has had this signature since 2004; the result is checked for plausibility.
    unsafe {
        let info: unsafe extern "C" fn(*mut usize, *mut usize) = std::mem::transmute(at);
        info(&mut size, &mut align);
    }
    if !(1024..=1 << 20).contains(&size) || !align.is_power_of_two() || align > 4096 {
        return Err(format!("implausible thread-local storage: {size} bytes, alignment {align}"));
    }
    Ok((size, align.max(64)))
}

impl Template {
    /// Learns the layout from two fresh threads.
    pub(super) fn discover() -> Result<Template, String> {
        let (total, align) = static_info()?;
        let allocate = symbol(c"_dl_allocate_tls")?;
        // SAFETY: the loader's function has had this signature since 2002, and its result is checked at every use.
        let allocate = unsafe { std::mem::transmute::<*mut c_void, Allocate>(allocate) };
        let [a, b] = probe::pair(total).map_err(|e| format!("cannot start a thread: {e}"))?;
        Images::learn(&a, &b);
        let above = (a.stack.0 + a.stack.1) - a.tp;
        let below = total.checked_sub(above).ok_or("the descriptor is larger than it says")?;
        let mut template = Template {
            constants: vec![],
            relative: vec![],
            tid: tid_offset(&a, &b)?,
            rseq_cpu: rseq_cpu(),
            link: link_offset(&a, &b),
            below: below.next_multiple_of(align),
            above,
            align,
            allocate,
        };
        template.compare(&a, &b);
        Ok(template)
    }

    /// Gives the descriptor at `fs`, the caller's own, a new thread number, and returns it.
    pub(super) fn renumber(&self, fs: usize) -> u32 {
        let number = next_number();
        // SAFETY: a descriptor of this layout, which no other thread uses.
        unsafe { ((fs as isize + self.tid) as *mut u32).write(number) };
        number
    }

    /// Returns the thread number in the descriptor at `fs`.
    pub(super) fn number(&self, fs: usize) -> u32 {
        // SAFETY: a descriptor of this layout, the caller's own.
        unsafe { ((fs as isize + self.tid) as *const u32).read() }
    }

    /// Sorts every word of the two blocks into constants, self-pointers and the rest.
    fn compare(&mut self, a: &Probe, b: &Probe) {
        let inside = -(self.below as isize)..self.above as isize;
        for (i, (&x, &y)) in a.words.iter().zip(&b.words).enumerate() {
            let at = (a.start + i * 8) as isize - a.tp as isize;
            // The word after the first is the table of modules, which `allocate` creates.
            if !inside.contains(&at) || at == 8 {
                continue;
            }
            let (dx, dy) =
                (x.wrapping_sub(a.tp as u64) as isize, y.wrapping_sub(b.tp as u64) as isize);
            if dx == dy && inside.contains(&dx) {
                self.relative.push((at, dx));
            } else if x == y && x != 0 {
                self.constants.push((at, x));
            }
        }
    }

    /// Lays out a block at the upper end of the memory.
    ///
    /// # Safety
    /// As [`super::furnish`].
    pub(super) unsafe fn furnish(&self, base: *mut u8, size: usize) -> io::Result<Area> {
        let top = base as usize + size;
        let tp = (top - self.above) & !(self.align - 1);
        let at = |offset: isize| (tp as isize + offset) as *mut u64;
        // SAFETY: all offsets lie in the block, the block in the caller's memory, which is zeroed as the loader wants.
        unsafe {
            if (self.allocate)(tp as *mut c_void).is_null() {
                return Err(io::Error::new(
                    io::ErrorKind::OutOfMemory,
                    "no memory for thread-local storage",
                ));
            }
            for &(offset, value) in &self.constants {
                at(offset).write(value);
            }
            for &(offset, target) in &self.relative {
                at(offset).write(at(target) as u64);
            }
            if let Some(offset) = self.link {
                at(offset).write(at(offset) as u64);
                at(offset + 8).write(at(offset) as u64);
            }
            at(self.tid).cast::<u32>().write(next_number());
            if let Some(offset) = self.rseq_cpu {
                at(offset).cast::<i32>().write(-2);
            }
        }
        Ok(Area { fs: tp, usable_top: (tp - self.below) & !63 })
    }
}

/// Returns the only offset in the descriptor at which both threads store their id.
fn tid_offset(a: &Probe, b: &Probe) -> Result<isize, String> {
    let shows = |p: &Probe, offset: usize| {
        let word = p.words[(p.tp - p.start + offset) / 8] >> (offset % 8 * 8);
        word as u32 == p.tid
    };
    let above = (a.stack.0 + a.stack.1) - a.tp;
    let mut found = (0..above).step_by(4).filter(|&o| shows(a, o) && shows(b, o));
    match (found.next(), found.next()) {
        (Some(offset), None) => Ok(offset as isize),
        (None, _) => Err("the thread number is not in the descriptor".into()),
        _ => Err("the thread number is in more than one place of the descriptor".into()),
    }
}

/// Returns where the list of threads is linked: the second thread was put in front of the first, so its one word that
/// points to the same place in the first is its link. Returns `None` if there is no such word; then a task cannot
/// `fork` and continue in the child.
fn link_offset(a: &Probe, b: &Probe) -> Option<isize> {
    let above = (a.stack.0 + a.stack.1) - a.tp;
    let word = |o: usize| b.words[(b.tp - b.start + o) / 8];
    let mut found = (0..above - 8).step_by(8).filter(|&o| word(o) == (a.tp + o) as u64);
    let offset = found.next()? as isize;
    found.next().is_none().then_some(offset)
}

/// See [`super::end_restartable_sequences`].
pub(super) fn end_restartable_sequences(descriptor: usize) {
    /// What the kernel calls RSEQ_FLAG_UNREGISTER.
    const UNREGISTER: i32 = 1;
    /// What glibc registers on x86-64.
    const SIGNATURE: u32 = 0x5305_3053;
    /// The kernel's minimum; glibc registers as much.
    const SIZE: u32 = 32;
    let Some(offset) = rseq_cpu() else { return };
    let area = (descriptor as isize + offset - 4) as usize;
    // SAFETY: takes an address that the kernel has; anything else is refused.
    unsafe { libc::syscall(libc::SYS_rseq, area, SIZE, UNREGISTER, SIGNATURE) };
}

/// Returns where restartable sequences keep the CPU number, by glibc's public symbol; `None` before 2.35.
fn rseq_cpu() -> Option<isize> {
    let offset = symbol(c"__rseq_offset").ok()?;
    let size = symbol(c"__rseq_size").ok()?;
    // SAFETY: public data symbols: ptrdiff_t and unsigned int.
    let (offset, size) =
        unsafe { (ptr::read(offset.cast::<isize>()), ptr::read(size.cast::<u32>())) };
    // The second word of the area, after cpu_id_start.
    (size > 0).then_some(offset + 4)
}
