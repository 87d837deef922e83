//! The usual allocators, by file and function names.

/// Allocators that come as shared objects.
pub(super) const OBJECTS: [&str; 5] = [
    "libjemalloc*.so*",
    "libmimalloc*.so*",
    "libsnmalloc*.so*",
    "libtcmalloc*.so*",
    "librpmalloc*.so*",
];

/// An allocator that may be linked into the program.
pub(super) struct Allocator {
    /// One of these functions proves that it is there; its other names alone could belong to anything.
    pub(super) shown_by: &'static [&'static str],
    /// Its functions. Functions whose names carry no prefix are found by their location ([`super::symbols`]).
    pub(super) functions: &'static [&'static str],
}

/// The C library's interface, defined by the program.
const C_INTERFACE: &[&str] = &[
    "malloc",
    "free",
    "calloc",
    "realloc",
    "memalign",
    "posix_memalign",
    "aligned_alloc",
    "valloc",
    "pvalloc",
    "malloc_usable_size",
    "mallocx",
    "rallocx",
    "xallocx",
    "sallocx",
    "dallocx",
    "sdallocx",
    "nallocx",
];

/// The shims between a Rust program's code and its allocator.
const RUST_SHIMS: &[&str] =
    &["*GlobalAlloc*", "*__rust_alloc*", "*__rust_dealloc*", "*__rust_realloc*"];

/// All known allocators.
pub(super) const ALLOCATORS: [Allocator; 7] = [
    Allocator {
        shown_by: &["_rjem_malloc", "_rjem_mallocx", "je_malloc", "mallocx"],
        functions: &["_rjem_*", "je_*"],
    },
    Allocator { shown_by: &["mi_malloc"], functions: &["mi_*", "_mi_*"] },
    Allocator { shown_by: &["sn_rust_alloc", "sn_malloc"], functions: &["sn_*", "_Z*snmalloc*"] },
    Allocator {
        shown_by: &["tc_malloc"],
        functions: &["tc_*", "_Z*tcmalloc*", "_Z*SpinLock*", "_Z*SysAllocator*"],
    },
    Allocator {
        shown_by: &["rpmalloc"],
        functions: &[
            "rpmalloc*",
            "rpfree*",
            "rprealloc*",
            "rpcalloc*",
            "rpaligned_*",
            "_rpmalloc_*",
        ],
    },
    Allocator { shown_by: C_INTERFACE, functions: C_INTERFACE },
    Allocator { shown_by: &["rust_eh_personality"], functions: RUST_SHIMS },
];
