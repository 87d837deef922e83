//! Steering policies as native code of this process: shared objects that `include/heddle/policy_native.h` shapes.
//!
//! A policy's variables and maps lie in its object, so each instance is an object of its own: the bytes go into a
//! file in memory of its own, and the dynamic linker, which knows objects by their files, loads it anew.
//!
//! - **I1** A [`NativeObject`] decides one thing at a time (`&mut`), for the object keeps its host in a variable.
//! - **I2** Whatever refers to the object's memory keeps the object loaded.
//! - **I3** What others may look at while the policy decides, values of maps and lines, is words, and is touched here
//!   by atomics alone; the policy's own accesses are single aligned words too.
//!
//! # Trust
//! Native code can do what this process can. Load objects only of sources that are trusted like the program itself;
//! policies of strangers belong into the kernel, behind its verifier.

use std::ffi::{CStr, c_char, c_void};
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use libloading::os::unix::{Library as UnixLibrary, RTLD_LOCAL, RTLD_NOW};
use rustix::fs::{MemfdFlags, memfd_create};

/// The most executors of one policy: `HD_MAX_EXECUTORS`.
pub const MAX_EXECUTORS: usize = 1024;
/// Bytes of payload that a policy sees: `HD_WINDOW`.
pub const WINDOW: usize = 128;
/// `HD_NATIVE_VERSION`.
const VERSION: u64 = 2;
/// The most maps and the most parameters that an object may have.
const MOST: usize = 64;
/// `HD_KIND_ARRAY`.
const ARRAY: u32 = 1;

/// An input: `struct hd_in`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(8))]
pub struct Input {
    /// Bytes of the payload, which may be longer than what is seen.
    pub length: u32,
    /// Of the flow: equal for all packets of one connection or peer.
    pub hash: u32,
    /// The sender's port.
    pub source_port: u16,
    /// The receiver's port.
    pub destination_port: u16,
    /// 6: TCP, 17: UDP.
    pub protocol: u8,
    /// 4 or 6.
    pub family: u8,
    /// How many bytes of the payload are in `window`.
    pub seen: u16,
    /// The payload's first bytes, then zeroes.
    pub window: [u8; WINDOW],
}

impl Input {
    /// The same as bytes in memory.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(size_of::<Self>());
        bytes.extend(self.length.to_ne_bytes());
        bytes.extend(self.hash.to_ne_bytes());
        bytes.extend(self.source_port.to_ne_bytes());
        bytes.extend(self.destination_port.to_ne_bytes());
        bytes.extend([self.protocol, self.family]);
        bytes.extend(self.seen.to_ne_bytes());
        bytes.extend(self.window);
        bytes
    }
}

/// The line of an executor: `struct hd_line`.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Line {
    /// The class of the work that it does now; 0: none.
    pub class: AtomicU32,
    /// One more than the number of the CPU that it runs on; 0: not known.
    pub cpu: AtomicU32,
    /// Whatever policy and program agree on.
    pub word: [AtomicU64; 6],
    /// The thread that serves the executor; 0: not known.
    pub thread: AtomicU32,
    /// 0.
    pub spare: AtomicU32,
}

/// The lines of all executors.
pub type Lines = [Line; MAX_EXECUTORS];

/// What a policy asks about the moment. A call that panics ends the process.
pub trait View {
    /// How many executors there are, from 1 to [`MAX_EXECUTORS`].
    fn executors(&self) -> u32;
    /// Whether executor `k` has nothing waiting and sleeps.
    fn idle(&mut self, k: u32) -> bool;
    /// How many inputs wait for executor `k`.
    fn queue_length(&mut self, k: u32) -> u32;
    /// The time, nanoseconds from any start.
    fn now(&mut self) -> u64;
    /// A random number.
    fn random(&mut self) -> u32;
    /// The CPU that the input came in on.
    fn cpu(&mut self) -> u32;
}

/// `struct hd_host`.
#[repr(C)]
struct Host {
    context: *mut c_void,
    idle: extern "C" fn(*mut c_void, u32) -> u32,
    qlen: extern "C" fn(*mut c_void, u32) -> u32,
    now: extern "C" fn(*mut c_void) -> u64,
    random: extern "C" fn(*mut c_void) -> u32,
    cpu: extern "C" fn(*mut c_void) -> u32,
    lines: *const Line,
    executors: u32,
}

/// `struct hd_native`.
#[repr(C)]
struct Table {
    version: u64,
    decide: unsafe extern "C" fn(*mut Input, *const Host) -> u32,
    maps: *const MapTable,
    maps_end: *const MapTable,
    params: *mut Param,
    params_end: *mut Param,
}

/// `struct hd_map` of the native header.
#[repr(C, align(64))]
struct MapTable {
    name: *const c_char,
    values: *mut u8,
    kind: u32,
    key_size: u32,
    value_size: u32,
    entries: u32,
    stride: u32,
}

/// `struct hd_param`: a value, its bounds, and texts.
#[repr(C)]
struct Param {
    value: u64,
    rest: [u8; 120],
}

extern "C" fn idle(context: *mut c_void, k: u32) -> u32 {
    // SAFETY: `context` is what `decide` lends the policy for the time of one call.
    u32::from(unsafe { view(context) }.idle(k))
}

extern "C" fn qlen(context: *mut c_void, k: u32) -> u32 {
    // SAFETY: as in `idle`.
    unsafe { view(context) }.queue_length(k)
}

extern "C" fn now(context: *mut c_void) -> u64 {
    // SAFETY: as in `idle`.
    unsafe { view(context) }.now()
}

extern "C" fn random(context: *mut c_void) -> u32 {
    // SAFETY: as in `idle`.
    unsafe { view(context) }.random()
}

extern "C" fn cpu(context: *mut c_void) -> u32 {
    // SAFETY: as in `idle`.
    unsafe { view(context) }.cpu()
}

/// # Safety
/// `context` points to a `&mut dyn View` that nothing else uses until the policy has decided.
unsafe fn view<'a>(context: *mut c_void) -> &'a mut dyn View {
    // SAFETY: the caller's promise.
    unsafe { &mut **context.cast::<&mut dyn View>() }
}

/// A loaded shared object.
#[derive(Debug)]
struct Library {
    table: NonNull<Table>,
    /// Unloads the object when dropped: by I2 nothing refers to it any more.
    _object: UnixLibrary,
    /// The dynamic linker identifies the object by this descriptor's number, which must not be reused while it is
    /// loaded.
    _file: OwnedFd,
}

// SAFETY: the table is constant, and `UnixLibrary` may be sent and shared.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    fn open(bytes: &[u8]) -> io::Result<Self> {
        let file = memory_file(bytes)?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        // SAFETY: code that runs when the object is loaded and unloaded is its maker's responsibility: see Trust.
        let object = unsafe { UnixLibrary::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
        let object = object.map_err(|error| io::Error::other(error.to_string()))?;
        // SAFETY: a data symbol's address is a pointer; `table` says what it points to.
        let table = unsafe { object.get::<*mut Table>("hd_native") };
        let table = table.ok().and_then(|table| NonNull::new(*table));
        let lacking = || io::Error::other("not a policy for user space: it lacks `hd_native`");
        Ok(Self { table: table.ok_or_else(lacking)?, _object: object, _file: file })
    }

    fn table(&self) -> &Table {
        // SAFETY: the object's constant of that name, which the header alone defines; it lives as long as `self`.
        unsafe { self.table.as_ref() }
    }

    fn maps(&self) -> &[MapTable] {
        let (from, to) = (self.table().maps, self.table().maps_end);
        let count = (to as usize).saturating_sub(from as usize) / size_of::<MapTable>();
        if from.is_null() || count == 0 {
            return &[];
        }
        // SAFETY: the ends of one section of such structures, which are not changed once the object is loaded.
        unsafe { std::slice::from_raw_parts(from, count) }
    }

    fn params(&self) -> usize {
        let (from, to) = (self.table().params as usize, self.table().params_end as usize);
        to.saturating_sub(from) / size_of::<Param>()
    }
}

fn memory_file(bytes: &[u8]) -> io::Result<OwnedFd> {
    let create = |flags| memfd_create("heddle-policy", MemfdFlags::CLOEXEC | flags);
    // EXEC is needed if the system makes memory files not executable by default. Kernels before 6.3 refuse it.
    let fd = create(MemfdFlags::EXEC).or_else(|_| create(MemfdFlags::empty()))?;
    let mut file = std::fs::File::from(fd);
    file.write_all(bytes)?;
    Ok(file.into())
}

/// One instance of a policy.
#[derive(Debug)]
pub struct NativeObject {
    library: Arc<Library>,
    lines: Arc<Lines>,
}

impl NativeObject {
    /// Loads an instance from the bytes of a shared object; see Trust in the module's head.
    ///
    /// # Errors
    /// The dynamic linker's, or if it is no policy made for this version of Heddle.
    pub fn load(bytes: &[u8]) -> io::Result<Self> {
        let library = Library::open(bytes)?;
        let version = library.table().version;
        if version != VERSION {
            let text = format!("a policy for user space of version {version}, not {VERSION}");
            return Err(io::Error::other(text));
        }
        if library.maps().len() > MOST || library.params() > MOST {
            return Err(io::Error::other(format!("more than {MOST} maps or parameters")));
        }
        let lines = Arc::new(std::array::from_fn(|_| Line::default()));
        Ok(Self { library: Arc::new(library), lines })
    }

    /// What the policy says to `input`: an executor's index, or one of the numbers above them.
    #[inline]
    pub fn decide(&mut self, input: &mut Input, mut view: &mut dyn View) -> u32 {
        let host = Host {
            context: (&raw mut view).cast(),
            idle,
            qlen,
            now,
            random,
            cpu,
            lines: self.lines.as_ptr(),
            executors: view.executors(),
        };
        // SAFETY: `input`, `host` and what it refers to outlive the call and have the layout that the object was
        // compiled with (its version was compared); `&mut self` makes the call the only one (I1).
        unsafe { (self.library.table().decide)(input, &raw const host) }
    }

    /// The lines of the executors, which those may write at any time.
    #[must_use]
    pub fn lines(&self) -> &Arc<Lines> {
        &self.lines
    }

    /// The parameters as they lie there, 128 bytes each.
    #[must_use]
    pub fn params(&self) -> Vec<u8> {
        let length = self.library.params() * size_of::<Param>();
        if length == 0 {
            return Vec::new();
        }
        // SAFETY: the whole of the section, which only `set_param` changes, not at the same time.
        unsafe { std::slice::from_raw_parts(self.library.table().params.cast::<u8>(), length) }
            .to_vec()
    }

    /// Sets parameter `index`.
    ///
    /// # Panics
    /// If there is none.
    pub fn set_param(&mut self, index: usize, value: u64) {
        assert!(index < self.library.params(), "no parameter {index}");
        // SAFETY: inside of the section; the policy, which alone reads it, does not run (`&mut self`).
        unsafe { (*self.library.table().params.add(index)).value = value };
    }

    /// The array `name`; `None` if the policy has none of that name.
    #[must_use]
    pub fn map(&self, name: &str) -> Option<NativeMap> {
        let named = |map: &&MapTable| {
            // SAFETY: a constant string of the object that ends in zero.
            map.kind == ARRAY && unsafe { CStr::from_ptr(map.name) }.to_bytes() == name.as_bytes()
        };
        let map = self.library.maps().iter().find(named)?;
        let values = NonNull::new(map.values)?;
        let (stride, entries) = (map.stride as usize, map.entries as usize);
        Some(NativeMap { _library: self.library.clone(), values, stride, entries })
    }
}

/// An array of a policy, in the policy's own memory.
#[derive(Debug)]
pub struct NativeMap {
    _library: Arc<Library>,
    values: NonNull<u8>,
    stride: usize,
    entries: usize,
}

// SAFETY: the values are touched by atomics alone (I3), and stay while `_library` does (I2).
unsafe impl Send for NativeMap {}
// SAFETY: as above.
unsafe impl Sync for NativeMap {}

impl NativeMap {
    /// How many values there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// The `word`th 8 bytes of value `index`.
    ///
    /// # Panics
    /// If there is no such value, or no such word in it.
    #[must_use]
    #[inline]
    pub fn word(&self, index: usize, word: usize) -> &AtomicU64 {
        assert!(index < self.entries && word * 8 + 8 <= self.stride, "outside of the map");
        // SAFETY: inside of the map's values, which are aligned to eight bytes and more, at a multiple of eight bytes;
        // see I2 and I3.
        unsafe { self.values.add(index * self.stride + word * 8).cast().as_ref() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structures_have_the_sizes_of_the_header() {
        assert_eq!(
            (size_of::<Input>(), size_of::<Line>(), size_of::<Param>(), size_of::<MapTable>()),
            (144, 64, 128, 64)
        );
    }

    #[test]
    fn what_is_no_shared_object_is_refused() {
        assert!(NativeObject::load(b"neither ELF nor a policy").is_err());
        assert!(NativeObject::load(&[]).is_err());
    }
}
