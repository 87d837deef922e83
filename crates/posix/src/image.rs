//! Where this library lies in memory, and whether there is a runtime beside its own.

use heddle_sys::notes::notes;
use std::arch::asm;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A range of addresses. Empty until the constructor has run; there is no second thread before.
pub(crate) struct Image {
    start: AtomicUsize,
    size: AtomicUsize,
}

/// The preloaded library: its code, runtime included, and its data. In the archive, which is part of the program, only
/// its code, which `scripts/archive` has put into a section of its own.
pub(crate) static IMAGE: Image = Image { start: AtomicUsize::new(0), size: AtomicUsize::new(0) };

static IS_ARCHIVE: AtomicBool = AtomicBool::new(false);

impl Image {
    #[inline]
    fn contains(&self, address: usize) -> bool {
        address.wrapping_sub(self.start.load(Ordering::Relaxed)) < self.size.load(Ordering::Relaxed)
    }

    /// Returns its start and its size.
    pub(crate) fn bounds(&self) -> (usize, usize) {
        (self.start.load(Ordering::Relaxed), self.size.load(Ordering::Relaxed))
    }

    fn set(&self, start: usize, size: usize) {
        self.start.store(start, Ordering::Relaxed);
        self.size.store(size, Ordering::Relaxed);
    }
}

/// Returns whether the library is part of the program.
#[inline]
pub(crate) fn is_archive() -> bool {
    IS_ARCHIVE.load(Ordering::Relaxed)
}

/// Returns whether the instruction at `address` is this library's.
#[inline]
pub(crate) fn is_own_code(address: usize) -> bool {
    IMAGE.contains(address)
}

/// Returns whether the word at `address` is certainly this library's: never, in the archive.
#[inline]
pub(crate) fn is_own_word(address: usize) -> bool {
    !is_archive() && IMAGE.contains(address)
}

/// Returns whether the library knows its own code: not in the archive as cargo makes it.
pub(crate) fn is_known() -> bool {
    IMAGE.size.load(Ordering::Relaxed) != 0
}

/// Finds the image by the header that the linker puts at its start. Called by the library's constructors.
pub(crate) fn find() {
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
            IS_ARCHIVE.store(true, Ordering::Relaxed);
            let (start, end) = section();
            return IMAGE.set(start, end - start);
        }
        let headers =
            std::slice::from_raw_parts(at as *const libc::Elf64_Phdr, usize::from(header.e_phnum));
        let loaded = headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
        let size = loaded.map(|header| header.p_vaddr + header.p_memsz).max().unwrap_or(0);
        IMAGE.set(start, size as usize);
    }
}

/// Returns the bounds of the section into which `scripts/archive` has put the library's code, 0 and 0 without one: the
/// linker defines both symbols if there is a section of that name.
fn section() -> (usize, usize) {
    let (start, stop);
    // SAFETY: reads two addresses, which the linker or the loader has filled in.
    unsafe {
        asm!(
            ".weak __start_heddle_text",
            ".hidden __start_heddle_text",
            ".weak __stop_heddle_text",
            ".hidden __stop_heddle_text",
            "mov {start}, [rip + __start_heddle_text@GOTPCREL]",
            "mov {stop}, [rip + __stop_heddle_text@GOTPCREL]",
            start = out(reg) start,
            stop = out(reg) stop,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    (start, stop)
}

/// Returns whether the program or a library of it contains a runtime of its own: whether one of their notes is the mark
/// that each runtime leaves (`heddle_runtime_marker`).
pub(crate) fn is_beside_another_runtime() -> bool {
    unsafe extern "C" fn has_runtime(
        object: *mut libc::dl_phdr_info,
        _: usize,
        _: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader passes a valid entry with that many headers, of an object that is loaded.
        unsafe {
            let object = &*object;
            let headers = std::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into());
            let start = |header: &libc::Elf64_Phdr| (object.dlpi_addr + header.p_vaddr) as usize;
            let is_own = headers.iter().any(|header| {
                header.p_type == libc::PT_LOAD
                    && (start(header)..start(header) + header.p_memsz as usize)
                        .contains(&(&raw const IMAGE as usize))
            });
            let mut of_notes = headers.iter().filter(|header| header.p_type == libc::PT_NOTE);
            let has_mark = of_notes.any(|header| {
                let size = header.p_memsz as usize;
                let bytes = std::slice::from_raw_parts(start(header) as *const u8, size);
                notes(bytes).any(|note| note.owner == b"Heddle\0")
            });
            c_int::from(has_mark && !is_own)
        }
    }
    // SAFETY: the callback matches.
    unsafe { libc::dl_iterate_phdr(Some(has_runtime), std::ptr::null_mut()) != 0 }
}
