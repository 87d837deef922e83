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

/// Memory shared with other processes, at an address that stays valid for the rest of the process, whatever is mapped
/// there. Children of a fork do not get it: they must not touch it.
#[derive(Clone, Copy, Debug)]
pub struct SharedMemory {
    base: *mut u8,
    len: usize,
}

// SAFETY: an address and a length; what lies there is read and written by atomics only, which is the user's promise.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Reserves `len` bytes, which read as zero until [`SharedMemory::map`].
    ///
    /// # Errors
    /// The system's: out of address space.
    pub fn reserve(len: usize) -> io::Result<SharedMemory> {
        let len = len.next_multiple_of(PAGE);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh anonymous mapping touches nothing that exists.
        let base = unsafe { libc::mmap(core::ptr::null_mut(), len, libc::PROT_READ, flags, -1, 0) };
        match base {
            libc::MAP_FAILED => Err(io::Error::last_os_error()),
            base => Ok(SharedMemory { base: base.cast(), len }),
        }
    }

    /// Maps `file` there, in place of what was there before, at once. The file is sealed against shrinking, or no
    /// process would shrink it: a thread that reads beyond its end is killed.
    ///
    /// # Errors
    /// The system's; `PermissionDenied` if it is to be `writable` and is open for reading only.
    pub fn map(&self, file: impl std::os::fd::AsFd, writable: bool) -> io::Result<()> {
        let prot = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
        let (fd, flags) = (file.as_fd().as_raw_fd(), libc::MAP_SHARED | libc::MAP_FIXED);
        // SAFETY: the range is ours, from `reserve`, and holds nothing but what its users promise to survive.
        let base = unsafe { libc::mmap(self.base.cast(), self.len, prot, flags, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the range was just mapped.
        unsafe { libc::madvise(base, self.len, libc::MADV_DONTFORK) };
        Ok(())
    }

    /// Returns the memory to the system.
    ///
    /// # Safety
    /// Nothing refers to it, in any copy of this value.
    pub unsafe fn unmap(self) {
        // SAFETY: the range is ours, from `reserve`, and no longer used.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }

    /// Returns the address, of a page.
    #[must_use]
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// Returns the number of bytes, whole pages.
    #[must_use]
    pub fn size(&self) -> usize {
        self.len
    }
}

/// Maps zeroed memory of the process alone at a range where nothing is mapped; does nothing elsewhere.
pub(crate) fn fill_hole(base: usize, len: usize) {
    let (prot, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let flags = flags | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    let hint = core::ptr::without_provenance_mut(base);
    // SAFETY: nothing that exists is replaced.
    let at = unsafe { libc::mmap(hint, len, prot, flags, -1, 0) };
    if at != libc::MAP_FAILED && at != hint {
        // SAFETY: it was just mapped: kernels before 4.17 take the address as a hint.
        unsafe { libc::munmap(at, len) };
    }
}

/// Maps `file`, of a page at least, for the rest of the process: numbers that it shares with others that map it. As for
/// [`SharedMemory::map`], the file is not shrunk.
///
/// # Errors
/// The system's; the file is shorter, or not open for writing.
pub fn shared_words(
    file: &std::fs::File,
) -> io::Result<&'static [core::sync::atomic::AtomicU32; PAGE / 4]> {
    if file.metadata()?.len() < PAGE as u64 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let memory = SharedMemory::reserve(PAGE)?;
    memory.map(file, true)?;
    // SAFETY: aligned to a page, mapped for the rest of the process; any bits are a number.
    Ok(unsafe { &*memory.base().cast() })
}

/// Returns the new file of `len` zeroed bytes that lives in memory only. Its size is sealed; only its owner may open it
/// again.
///
/// # Errors
/// The system's.
pub fn sealed_file(name: &core::ffi::CStr, len: usize) -> io::Result<std::os::fd::OwnedFd> {
    use std::os::fd::{FromRawFd as _, OwnedFd};
    let check = |result: i32| if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) };
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: calls on numbers, a string, and a descriptor that was just made.
    unsafe {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        let file = OwnedFd::from_raw_fd(check(libc::memfd_create(name.as_ptr(), flags))?);
        check(libc::ftruncate(file.as_raw_fd(), len as i64))?;
        check(libc::fchmod(file.as_raw_fd(), 0o600))?;
        check(libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals))?;
        Ok(file)
    }
}

/// Opens the same file again, for reading only.
///
/// # Errors
/// The system's: /proc is not mounted, or the file is another user's.
pub fn reopen_for_reading(file: impl std::os::fd::AsFd) -> io::Result<std::os::fd::OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    std::fs::File::open(path).map(Into::into)
}

/// Makes the descriptor `number` stand for what `fd` stands for, at once: it is never closed in between.
///
/// # Errors
/// The system's.
pub fn replace_descriptor(
    number: std::os::fd::RawFd,
    fd: impl std::os::fd::AsFd,
) -> io::Result<()> {
    // SAFETY: a system call on numbers.
    match unsafe { libc::dup3(fd.as_fd().as_raw_fd(), number, libc::O_CLOEXEC) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
