//! Where this library lies in memory.

use super::KERNEL_WAITS;
use std::arch::asm;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The addresses of the library, code and data. Empty until the constructor has run (there is no second thread before),
/// and in the archive, where the library cannot be told from the program.
#[repr(C)]
pub(super) struct Image {
    start: AtomicUsize,
    size: AtomicUsize,
}

/// Read by the stub of `syscall`, too.
pub(super) static IMAGE: Image = Image { start: AtomicUsize::new(0), size: AtomicUsize::new(0) };

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = find;

impl Image {
    /// Returns the library's, if it is a library.
    #[inline]
    pub(super) fn of_library() -> Option<&'static Image> {
        (IMAGE.size.load(Ordering::Relaxed) != 0).then_some(&IMAGE)
    }

    #[inline]
    pub(super) fn contains(&self, address: usize) -> bool {
        address.wrapping_sub(self.start.load(Ordering::Relaxed)) < self.size.load(Ordering::Relaxed)
    }
}

/// Finds the image by the header that the linker puts at its start.
extern "C" fn find() {
    let start: usize;
    // SAFETY: the linker defines the symbol, in each object for itself. An object's headers are loaded with it.
    unsafe {
        asm!(
            ".hidden __ehdr_start",
            "lea {start}, [rip + __ehdr_start]",
            start = out(reg) start,
            options(nomem, nostack, preserves_flags),
        );
        let header = &*(start as *const libc::Elf64_Ehdr);
        let at = start + header.e_phoff as usize;
        if at == libc::getauxval(libc::AT_PHDR) as usize {
            // The program's own headers: this is the archive.
            KERNEL_WAITS.store(true, Ordering::Relaxed);
            return;
        }
        let headers = at as *const libc::Elf64_Phdr;
        let headers = std::slice::from_raw_parts(headers, usize::from(header.e_phnum));
        let loaded = headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
        let size = loaded.map(|header| header.p_vaddr + header.p_memsz).max().unwrap_or(0);
        IMAGE.start.store(start, Ordering::Relaxed);
        IMAGE.size.store(size as usize, Ordering::Release);
    }
}
