//! Functions of the C library that hold no lock: those on memory, strings and numbers.
//!
//! A server spends a third of its time in the C library, and much of that here. A task interrupted in one of these may
//! be preempted at once, unless the C library itself or an allocator called it; one interrupted anywhere else in the C
//! library must first come out of it.

use std::ffi::{CStr, c_void};
use std::ops::Range;

/// The names, for all of which the C library chooses an implementation by the processor. None of them calls into code
/// that may take a lock.
const NAMES: [&CStr; 42] = [
    c"memcpy",
    c"memmove",
    c"memset",
    c"memcmp",
    c"bcmp",
    c"memchr",
    c"memrchr",
    c"memmem",
    c"mempcpy",
    c"memccpy",
    c"rawmemchr",
    c"__memcpy_chk",
    c"__memmove_chk",
    c"__memset_chk",
    c"bzero",
    c"strlen",
    c"strnlen",
    c"strcmp",
    c"strncmp",
    c"strcasecmp",
    c"strncasecmp",
    c"strchr",
    c"strrchr",
    c"strchrnul",
    c"strcpy",
    c"strncpy",
    c"stpcpy",
    c"stpncpy",
    c"strcat",
    c"strncat",
    c"strspn",
    c"strcspn",
    c"strpbrk",
    c"strstr",
    c"wcslen",
    c"wcsnlen",
    c"wcscpy",
    c"wcschr",
    c"wcsrchr",
    c"wmemcmp",
    c"wmemset",
    c"wmemchr",
];

/// What `_Unwind_Find_FDE` says of a function.
#[repr(C)]
#[derive(Default)]
struct Bases {
    text: usize,
    data: usize,
    function: usize,
}

/// Returns the code of the functions whose extent the unwinder's tables show.
pub(super) fn functions() -> Vec<Range<usize>> {
    // SAFETY: a lookup by name. The unwinder is there: this crate unwinds.
    let find = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_Unwind_Find_FDE".as_ptr()) };
    if find.is_null() {
        return vec![];
    }
    // SAFETY: GCC's unwinder has had this function with this type since version 3.
    let find: unsafe extern "C" fn(*const c_void, *mut Bases) -> *const u8 =
        unsafe { std::mem::transmute(find) };
    let extent = |name: &&CStr| {
        // SAFETY: a lookup by name; the loader returns the implementation that it chose.
        let at = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        let mut bases = Bases::default();
        // SAFETY: any address may be asked for. An entry is valid for as long as its object.
        let entry = unsafe { find(at, &mut bases) };
        // SAFETY: null or a valid entry.
        unsafe { range(entry, bases.function) }.filter(|range| range.start == at as usize)
    };
    NAMES.iter().filter_map(extent).collect()
}

/// Returns the code that an entry of `.eh_frame` describes, which begins at `function`, if it has the usual encoding:
/// the start relative to its own address, and the length, four bytes each.
///
/// # Safety
/// `entry` is null or a valid entry.
unsafe fn range(entry: *const u8, function: usize) -> Option<Range<usize>> {
    // After the entry's length and the reference to its common part.
    const START: usize = 8;
    if entry.is_null() {
        return None;
    }
    // SAFETY: every entry has these fields.
    let (start, len) = unsafe {
        let start = entry.add(START).cast::<i32>();
        (start as isize + start.read_unaligned() as isize, start.add(1).read_unaligned())
    };
    let len = usize::try_from(len).ok().filter(|&len| len > 0)?;
    (start as usize == function).then(|| function..function + len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_functions_on_memory_are_found_with_their_extent() {
        let found = functions();
        // SAFETY: a lookup by name.
        let memcpy = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"memcpy".as_ptr()) } as usize;
        let range = found.iter().find(|range| range.contains(&memcpy)).expect("memcpy is there");
        assert!(range.start == memcpy && range.len() > 16 && range.len() < 1 << 16, "{range:?}");
    }
}
