//! Links: they keep programs attached. When the last descriptor and pin of a link are gone, its program is detached.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use libbpf_rs::libbpf_sys as sys;

use super::{Program, check, open_pinned, own, pin};

/// An attached program.
#[derive(Debug)]
pub struct Link {
    fd: OwnedFd,
}

impl Link {
    /// Attaches a program to an interface of the calling thread's network namespace: in the driver (`native`) or
    /// in the stack behind it. `EBUSY` if the interface already has a program, `EOPNOTSUPP` if its driver runs none.
    pub fn xdp(program: &Program, interface: u32, native: bool) -> io::Result<Self> {
        let mode = if native { sys::XDP_FLAGS_DRV_MODE } else { sys::XDP_FLAGS_SKB_MODE };
        Self::xdp_with(program, interface, mode)
    }

    /// Like [`Link::xdp`], on the card itself. `EINVAL` or `EOPNOTSUPP` if the card does not run programs.
    pub fn xdp_offloaded(program: &Program, interface: u32) -> io::Result<Self> {
        Self::xdp_with(program, interface, sys::XDP_FLAGS_HW_MODE)
    }

    fn xdp_with(program: &Program, interface: u32, mode: u32) -> io::Result<Self> {
        let opts = sys::bpf_link_create_opts {
            sz: size_of::<sys::bpf_link_create_opts>() as _,
            flags: mode,
            ..Default::default()
        };
        let (fd, target) = (program.as_fd().as_raw_fd(), interface.cast_signed());
        // SAFETY: `opts` outlives the call and `opts.sz` is its size.
        own(unsafe { sys::bpf_link_create(fd, target, sys::BPF_XDP, &raw const opts) })
            .map(|fd| Self { fd })
    }

    /// Attaches a program of type `tc` to an interface of the calling thread's network namespace, for packets that
    /// leave it (`outgoing`) or that arrive, before all other programs there. `EINVAL` before kernel 6.6.
    pub fn tcx(program: &Program, interface: u32, outgoing: bool) -> io::Result<Self> {
        let attach = if outgoing { sys::BPF_TCX_EGRESS } else { sys::BPF_TCX_INGRESS };
        let opts = sys::bpf_link_create_opts {
            sz: size_of::<sys::bpf_link_create_opts>() as _,
            flags: sys::BPF_F_BEFORE,
            ..Default::default()
        };
        let (fd, target) = (program.as_fd().as_raw_fd(), interface.cast_signed());
        // SAFETY: `opts` outlives the call and `opts.sz` is its size.
        own(unsafe { sys::bpf_link_create(fd, target, attach, &raw const opts) })
            .map(|fd| Self { fd })
    }

    /// Attaches a program of kind [`super::ProgramKind::Fentry`] to the function that it was loaded for.
    pub(super) fn fentry(program: &Program) -> io::Result<Self> {
        let fd = program.as_fd().as_raw_fd();
        // SAFETY: takes descriptors and numbers only; a null pointer asks for the defaults.
        own(unsafe { sys::bpf_link_create(fd, 0, sys::BPF_TRACE_FENTRY, std::ptr::null()) })
            .map(|fd| Self { fd })
    }

    /// Duplicates a link that libbpf made and will close.
    pub(super) fn of(fd: BorrowedFd<'_>) -> io::Result<Self> {
        fd.try_clone_to_owned().map(|fd| Self { fd })
    }

    /// Returns the index of the program's interface; 0 if the interface is gone, or the program was detached.
    pub fn interface(&self) -> io::Result<u32> {
        let mut info = sys::bpf_link_info::default();
        let mut size = u32::try_from(size_of_val(&info)).unwrap_or(u32::MAX);
        let fd = self.fd.as_raw_fd();
        // SAFETY: `info` is valid for `size` bytes of writing.
        check(unsafe { sys::bpf_link_get_info_by_fd(fd, &raw mut info, &raw mut size) })?;
        if info.type_ != sys::BPF_LINK_TYPE_XDP {
            return Err(io::Error::other("the link is not attached to an interface"));
        }
        // SAFETY: the kernel has just reported the type whose member this is.
        Ok(unsafe { info.__bindgen_anon_1.xdp.ifindex })
    }

    /// Detaches the program now, even if others hold the link.
    pub fn detach(&self) -> io::Result<()> {
        // SAFETY: takes a descriptor only.
        check(unsafe { sys::bpf_link_detach(self.fd.as_raw_fd()) }).map(drop)
    }

    /// Opens a pinned link.
    pub fn open(path: &Path) -> io::Result<Self> {
        open_pinned(path).map(|fd| Self { fd })
    }

    /// Pins the link in a BPF file system.
    pub fn pin(&self, path: &Path) -> io::Result<()> {
        pin(&self.fd, path)
    }

    /// Replaces the program atomically.
    pub fn update(&self, program: &Program) -> io::Result<()> {
        // SAFETY: takes descriptors only; a null pointer asks for the defaults.
        let result = unsafe {
            sys::bpf_link_update(self.fd.as_raw_fd(), program.as_fd().as_raw_fd(), std::ptr::null())
        };
        check(result).map(drop)
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Runs an iterator over the open files of the calling thread (`bpf_iter_task_file`) and returns its output. Other
/// threads are left out, because they may have other files, also from other processes: the iterator keeps each file
/// open while it visits it, and could be the last to close it.
pub fn iterate_files(program: &Program) -> io::Result<Vec<u8>> {
    let mut target = sys::bpf_iter_link_info::default();
    target.task.tid = heddle_sys::thread::id();
    let opts = sys::bpf_link_create_opts {
        sz: size_of::<sys::bpf_link_create_opts>() as _,
        iter_info: &raw mut target,
        iter_info_len: u32::try_from(size_of_val(&target)).unwrap_or(u32::MAX),
        ..Default::default()
    };
    // SAFETY: `opts` and what it points to outlive the call, with their sizes.
    let link = own(unsafe {
        sys::bpf_link_create(program.as_fd().as_raw_fd(), 0, sys::BPF_TRACE_ITER, &raw const opts)
    })?;
    // SAFETY: takes a descriptor only.
    let iterator = own(unsafe { sys::bpf_iter_create(link.as_raw_fd()) })?;
    let mut output = Vec::new();
    File::from(iterator).read_to_end(&mut output)?;
    Ok(output)
}
