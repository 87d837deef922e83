//! Loading BPF: maps, programs, links and what the kernel's own types look like.
//!
//! A thin, safe face of libbpf's low-level calls. For policies of strangers the caller has instructions in hand, so
//! that their object files are read by a process that may be trusted with that, and not by libbpf in a privileged
//! one; objects that were compiled with Heddle itself are loaded by [`OpenObject`].
//!
//! - **I1** A value owns its descriptor; the kernel's object lives as long as a descriptor, a pin or a link does.
//! - **I2** Memory handed to the kernel is checked against the sizes that the kernel itself reports for the object.

mod kernel_types;
mod link;
mod map;
mod object;
mod program;
mod ring;
mod stream;
mod view;
mod xdp;
pub mod xsk;

pub use kernel_types::KernelTypes;
pub use link::{Link, iterate_files};
pub use map::{Map, MapKind, MapSpec};
pub use object::{Object, OpenObject};
pub use program::{
    LoadError, Program, ProgramInfo, ProgramKind, ProgramSpec, TestRun, count_run_time,
};
#[doc(hidden)]
pub use ring::Records;
pub use ring::Ring;
pub use stream::notice_data;
pub use view::MapView;
pub use xdp::{XdpPrograms, xdp_programs};

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::Path;

/// What libbpf's low-level calls return: a descriptor or a count, or the negative error number.
fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(result) }
}

/// How many CPUs there can ever be. Read once; before that it takes a descriptor.
pub fn possible_cpus() -> io::Result<u32> {
    let cpus = libbpf_rs::num_possible_cpus().map_err(io::Error::other)?;
    u32::try_from(cpus).map_err(io::Error::other)
}

/// Takes ownership of a descriptor that a call has just returned.
fn own(result: i32) -> io::Result<OwnedFd> {
    let fd = check(result)?;
    // SAFETY: the kernel has just made this descriptor for us, and its number is known to us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn c_path(path: &Path) -> io::Result<CString> {
    use std::os::unix::ffi::OsStrExt;
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| io::Error::other("a path with a zero byte"))
}

/// The kernel keeps at most 15 bytes of a name, of letters, digits, `_` and `.`.
fn c_name(name: &str) -> CString {
    let keep = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    let short: String = name.chars().map(|c| if keep(c) { c } else { '_' }).take(15).collect();
    CString::new(short).unwrap_or_default()
}

fn open_pinned(path: &Path) -> io::Result<OwnedFd> {
    let path = c_path(path)?;
    // SAFETY: `path` is a string that ends in zero and outlives the call.
    own(unsafe { libbpf_rs::libbpf_sys::bpf_obj_get(path.as_ptr()) })
}

fn pin(fd: &OwnedFd, path: &Path) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: `path` is a string that ends in zero and outlives the call.
    check(unsafe { libbpf_rs::libbpf_sys::bpf_obj_pin(fd.as_raw_fd(), path.as_ptr()) }).map(drop)
}
