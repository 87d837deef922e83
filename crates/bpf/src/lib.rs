//! Loading BPF: maps, programs, links, and the kernel's own types.
//!
//! A thin, safe wrapper of libbpf's low-level calls. Untrusted policies are passed in as instructions: a less
//! privileged process reads their object files, never libbpf in a privileged one. Objects compiled with Heddle itself
//! are loaded by [`OpenObject`].
//!
//! - **I1** A value owns its descriptor; the kernel's object lives as long as a descriptor, a pin or a link does.
//! - **I2** Memory passed to the kernel is checked against the sizes that the kernel itself reports for the object.

mod fentry;
mod functions;
mod kernel_types;
mod link;
mod map;
mod object;
mod program;
mod ring;
mod stream;
mod view;
mod xdp;

pub use fentry::Fentry;
pub use functions::ProgramFunction;
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

/// Checks the result of a low-level libbpf call: a descriptor or a count, or a negative error number.
fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(result) }
}

/// Returns the number of possible CPUs. It is read once; the first call needs a free descriptor.
pub fn possible_cpus() -> io::Result<u32> {
    let cpus = libbpf_rs::num_possible_cpus().map_err(io::Error::other)?;
    u32::try_from(cpus).map_err(io::Error::other)
}

/// Takes ownership of a descriptor that a call has just returned.
fn own(result: i32) -> io::Result<OwnedFd> {
    let fd = check(result)?;
    // SAFETY: the kernel has just created this descriptor for us, and nothing else knows its number.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn c_path(path: &Path) -> io::Result<CString> {
    use std::os::unix::ffi::OsStrExt;
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| io::Error::other("the path contains a zero byte"))
}

/// Converts a name to what the kernel accepts: at most 15 bytes of letters, digits, `_` and `.`.
fn c_name(name: &str) -> CString {
    let keep = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    let short: String = name.chars().map(|c| if keep(c) { c } else { '_' }).take(15).collect();
    CString::new(short).unwrap_or_default()
}

fn open_pinned(path: &Path) -> io::Result<OwnedFd> {
    let path = c_path(path)?;
    // SAFETY: `path` is a zero-terminated string that outlives the call.
    own(unsafe { libbpf_rs::libbpf_sys::bpf_obj_get(path.as_ptr()) })
}

fn pin(fd: &OwnedFd, path: &Path) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: `path` is a zero-terminated string that outlives the call.
    check(unsafe { libbpf_rs::libbpf_sys::bpf_obj_pin(fd.as_raw_fd(), path.as_ptr()) }).map(drop)
}
