//! Memory for stacks and tables.

use std::io;
use std::os::fd::AsRawFd;

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// Reserves `len` bytes, zeroed and unused until touched.
///
/// # Errors
/// The system's, with the size requested: out of address space, or an rlimit.
pub fn reserve(len: usize) -> io::Result<*mut u8> {
    let (prot, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
    );
    // SAFETY: a fresh anonymous mapping touches nothing that exists.
    let base = unsafe { libc::mmap(core::ptr::null_mut(), len, prot, flags, -1, 0) };
    if base == libc::MAP_FAILED {
        let error = io::Error::last_os_error();
        return Err(io::Error::new(error.kind(), format!("cannot reserve {len} bytes: {error}")));
    }
    // A huge page under a stack would make every task cost 2 MB.
    // SAFETY: the range was just mapped.
    unsafe { libc::madvise(base, len, libc::MADV_NOHUGEPAGE) };
    Ok(base.cast())
}

/// Makes `len` bytes at `at` fault on access. Since Linux 6.13 this splits no mapping (guard regions); before, each
/// guard costs its own mapping and `vm.max_map_count` bounds their number.
///
/// # Errors
/// The system's, with the advice to raise `vm.max_map_count` if that is the cause.
///
/// # Safety
/// The range is page-aligned, was reserved by [`reserve`] and holds nothing that is needed.
pub unsafe fn guard(at: *mut u8, len: usize) -> io::Result<()> {
    const MADV_GUARD_INSTALL: i32 = 102;
    // SAFETY: the caller's range.
    if unsafe { libc::madvise(at.cast(), len, MADV_GUARD_INSTALL) } == 0 {
        return Ok(());
    }
    // SAFETY: the caller's range.
    if unsafe { libc::mprotect(at.cast(), len, libc::PROT_NONE) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    let advice = "too many memory mappings for stack guards; raise the sysctl vm.max_map_count (two per live task)";
    match error.raw_os_error() {
        Some(libc::ENOMEM) => Err(io::Error::new(error.kind(), advice)),
        _ => Err(error),
    }
}

/// Returns the memory of `len` bytes at `at` to the system; they read as zero afterwards.
///
/// # Safety
/// The range is page-aligned, was reserved by [`reserve`] and holds nothing that is needed.
pub unsafe fn discard(at: *mut u8, len: usize) {
    // SAFETY: the caller's range. Failure only costs memory.
    unsafe { libc::madvise(at.cast(), len, libc::MADV_DONTNEED) };
}

/// Unmaps what [`reserve`] mapped.
///
/// # Safety
/// The range was reserved as a whole, and it is unused from here on.
pub unsafe fn release(at: *mut u8, len: usize) {
    // SAFETY: the caller's range. Failure only costs address space.
    unsafe { libc::munmap(at.cast(), len) };
}

/// A file mapped into memory for reading.
#[derive(Debug)]
pub struct Mapping {
    base: *mut libc::c_void,
    len: usize,
}

impl Mapping {
    /// Maps the whole of `file`, which must not be changed or shortened meanwhile: a running program, for instance.
    ///
    /// # Errors
    /// The system's; an empty file cannot be mapped.
    pub fn of(file: &std::fs::File) -> io::Result<Mapping> {
        let len = file.metadata()?.len() as usize;
        let (prot, fd) = (libc::PROT_READ, file.as_raw_fd());
        // SAFETY: a fresh mapping touches nothing that exists.
        let base =
            unsafe { libc::mmap(core::ptr::null_mut(), len, prot, libc::MAP_PRIVATE, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Mapping { base, len })
    }

    /// Returns the file's contents.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: mapped until this is dropped, and never written.
        unsafe { core::slice::from_raw_parts(self.base.cast(), self.len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own mapping, to which no reference is left.
        unsafe { libc::munmap(self.base, self.len) };
    }
}

/// Returns the largest signal frame that the kernel may push (AT_MINSIGSTKSZ), vector state included.
pub fn signal_frame_size() -> usize {
    // SAFETY: reads the auxiliary vector.
    let size = unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) } as usize;
    size.max(2048)
}

/// Returns the second word of processor capabilities (AT_HWCAP2).
pub fn hwcap2() -> u64 {
    // SAFETY: reads the auxiliary vector.
    unsafe { libc::getauxval(libc::AT_HWCAP2) }
}
