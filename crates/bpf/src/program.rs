//! Programs: instructions verified by the kernel.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use libbpf_rs::libbpf_sys as sys;

use super::functions::{FunctionInfo, Functions, ProgramFunction};
use super::{c_name, check, open_pinned, own, pin};

/// Where a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProgramKind {
    /// Chooses a socket of a reuseport group.
    SkReuseport,
    /// Runs on a packet as it arrives at an interface.
    Xdp,
    /// Runs on the card of the interface with this index.
    XdpOffloaded(u32),
    /// Finds where a message of a stream ends.
    StreamParser,
    /// Decides where a message of a stream goes.
    StreamVerdict,
    /// Iterates over kernel objects; the number is the BTF id of the iterator's function.
    Iterator(u32),
    /// Runs on request from user space ([`Program::run`]).
    SystemCall,
    /// Runs at each call of a function of another program: that program's descriptor, and the function's BTF id.
    Fentry(i32, u32),
}

impl ProgramKind {
    /// Returns the type, the expected attach type and the BTF id.
    fn numbers(self) -> (u32, u32, u32) {
        match self {
            Self::SkReuseport => (sys::BPF_PROG_TYPE_SK_REUSEPORT, sys::BPF_SK_REUSEPORT_SELECT, 0),
            Self::Xdp | Self::XdpOffloaded(_) => (sys::BPF_PROG_TYPE_XDP, sys::BPF_XDP, 0),
            Self::StreamParser => (sys::BPF_PROG_TYPE_SK_SKB, sys::BPF_SK_SKB_STREAM_PARSER, 0),
            Self::StreamVerdict => (sys::BPF_PROG_TYPE_SK_SKB, sys::BPF_SK_SKB_STREAM_VERDICT, 0),
            Self::SystemCall => (sys::BPF_PROG_TYPE_SYSCALL, 0, 0),
            Self::Iterator(id) => (sys::BPF_PROG_TYPE_TRACING, sys::BPF_TRACE_ITER, id),
            Self::Fentry(_, id) => (sys::BPF_PROG_TYPE_TRACING, sys::BPF_TRACE_FENTRY, id),
        }
    }
}

/// What a program is loaded from.
#[derive(Clone, Copy, Debug)]
pub struct ProgramSpec<'a> {
    /// Its name; the kernel keeps at most 15 bytes.
    pub name: &'a str,
    /// Where it runs.
    pub kind: ProgramKind,
    /// Its instructions in the kernel's form: 8 bytes each, maps as descriptors.
    pub instructions: &'a [u64],
    /// Its functions, in order, if the verifier examines some by themselves; otherwise may be empty.
    pub functions: &'a [ProgramFunction<'a>],
}

/// Why the kernel refused a program, with the verifier's log.
#[derive(Debug)]
pub struct LoadError {
    /// `EACCES` and `EINVAL` come from the verifier; `EPERM` is a lack of privilege, `E2BIG` too many instructions.
    pub error: io::Error,
    /// The verifier's log; empty if verification did not start.
    pub log: String,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.error.raw_os_error() == Some(libc::E2BIG) {
            return f.write_str(
                "the kernel refused the program: it is too complex to verify (a loop with too many iterations or \
                 branches; the limit is a million instructions over all paths)",
            );
        }
        write!(f, "the kernel refused the program: {}", self.error)?;
        let reason =
            self.log.lines().rev().find(|line| !line.is_empty() && !line.starts_with("processed "));
        reason.map_or(Ok(()), |line| write!(f, " ({line})"))
    }
}

impl std::error::Error for LoadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// What the kernel reports about a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramInfo {
    /// The kernel's id of the program.
    pub id: u32,
    /// Its name, truncated to 15 bytes.
    pub name: String,
    /// Instructions after verification.
    pub instructions: u32,
    /// Number of instructions that the verifier processed, repetitions included; 0 before kernel 5.16.
    pub verified: u32,
    /// Bytes of machine code.
    pub machine_bytes: u32,
    /// Number of runs while run time was counted ([`count_run_time`]).
    pub runs: u64,
    /// Total time of these runs in nanoseconds.
    pub run_time: u64,
}

/// A loaded program.
#[derive(Debug)]
pub struct Program {
    fd: OwnedFd,
}

/// The size of a refused program's log, whose end states the reason. Kernels since 6.4 keep the end of a longer log;
/// older ones keep the beginning, so the program is loaded again with a larger buffer, up to the maximum.
const LOG_BYTES: usize = 1 << 20;
const MAX_LOG_BYTES: usize = 64 << 20;

/// Levels of the verifier's log: each step; or only the error and statistics.
const STEPS: u32 = 1;
const STATS: u32 = 4;

impl Program {
    /// Loads a program, which the kernel verifies.
    pub fn load(spec: &ProgramSpec<'_>) -> Result<Self, LoadError> {
        // The log costs time, so only a refused program is verified again with one.
        Self::try_load(spec, 0, &mut []).or_else(|error| {
            Self::load_with_log(spec, &error).map_err(|log| LoadError { error, log })
        })
    }

    /// Reloads a program that was refused for `why`, with a log. Returns the log if the program is refused again. A
    /// truncated log is an error too, and hides the verifier's own.
    fn load_with_log(spec: &ProgramSpec<'_>, why: &io::Error) -> Result<Self, String> {
        // The log of a program that is too long would have a million steps, none of them wrong.
        let level = if why.raw_os_error() == Some(libc::E2BIG) { STATS } else { STEPS };
        let mut log = vec![0; LOG_BYTES];
        loop {
            let error = match Self::try_load(spec, level, &mut log) {
                Ok(program) => return Ok(program),
                Err(error) => error,
            };
            let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
            let text = String::from_utf8_lossy(&log[..end]);
            let truncated = error.raw_os_error() == Some(libc::ENOSPC) && has_first_lines(&text);
            if !truncated || log.len() >= MAX_LOG_BYTES {
                return Err(text.into_owned());
            }
            log = vec![0; log.len() * 8];
        }
    }

    fn try_load(spec: &ProgramSpec<'_>, level: u32, log: &mut [u8]) -> io::Result<Self> {
        let (kind, attach, btf_id) = spec.kind.numbers();
        let mut opts = sys::bpf_prog_load_opts {
            sz: size_of::<sys::bpf_prog_load_opts>() as _,
            expected_attach_type: attach,
            attach_btf_id: btf_id,
            ..Default::default()
        };
        // Packets longer than a page arrive in fragments, and an interface that may receive them accepts only programs
        // that declare support.
        if spec.kind == ProgramKind::Xdp {
            opts.prog_flags = sys::BPF_F_XDP_HAS_FRAGS;
        }
        if let ProgramKind::XdpOffloaded(interface) = spec.kind {
            opts.prog_ifindex = interface;
        }
        if let ProgramKind::Fentry(program, _) = spec.kind {
            opts.attach_prog_fd = program.cast_unsigned();
        }
        if spec.kind == ProgramKind::SystemCall {
            opts.prog_flags = sys::BPF_F_SLEEPABLE;
        }
        if !log.is_empty() {
            opts.log_level = level;
            opts.log_size = u32::try_from(log.len()).unwrap_or(u32::MAX);
            opts.log_buf = log.as_mut_ptr().cast();
        }
        let functions = Functions::load(spec.functions);
        if let Some(Functions { types, infos }) = &functions {
            opts.prog_btf_fd = types.as_raw_fd().cast_unsigned();
            opts.func_info = infos.as_ptr().cast();
            opts.func_info_cnt = u32::try_from(infos.len()).unwrap_or(0);
            opts.func_info_rec_size = size_of::<FunctionInfo>() as _;
        }
        let name = c_name(spec.name);
        let (at, count) = (spec.instructions.as_ptr().cast(), spec.instructions.len());
        // SAFETY: the strings, the instructions (8 bytes each, as `bpf_insn`), `functions` and the log outlive
        // the call and have the lengths given; the kernel verifies what the instructions do.
        own(unsafe {
            sys::bpf_prog_load(kind, name.as_ptr(), c"GPL".as_ptr(), at, count as _, &raw mut opts)
        })
        .map(|fd| Self { fd })
    }

    /// Takes ownership of a program's descriptor.
    #[must_use]
    pub fn from_fd(fd: OwnedFd) -> Self {
        Self { fd }
    }

    /// Opens the loaded program with the kernel's id `id`. Needs `CAP_SYS_ADMIN`.
    pub fn by_id(id: u32) -> io::Result<Self> {
        // SAFETY: takes a number only.
        own(unsafe { sys::bpf_prog_get_fd_by_id(id) }).map(Self::from_fd)
    }

    /// Opens a pinned program.
    pub fn open(path: &Path) -> io::Result<Self> {
        open_pinned(path).map(Self::from_fd)
    }

    /// Pins the program in a BPF file system.
    pub fn pin(&self, path: &Path) -> io::Result<()> {
        pin(&self.fd, path)
    }

    /// Returns what the kernel reports about the program.
    pub fn info(&self) -> io::Result<ProgramInfo> {
        let mut info = sys::bpf_prog_info::default();
        let mut size = u32::try_from(size_of_val(&info)).unwrap_or(u32::MAX);
        // SAFETY: `info` is valid for `size` bytes of writing, and no array is asked for.
        check(unsafe {
            sys::bpf_prog_get_info_by_fd(self.fd.as_raw_fd(), &raw mut info, &raw mut size)
        })?;
        Ok(ProgramInfo {
            id: info.id,
            name: info
                .name
                .iter()
                .take_while(|c| **c != 0)
                .map(|c| char::from(c.cast_unsigned()))
                .collect(),
            instructions: info.xlated_prog_len / 8,
            verified: info.verified_insns,
            machine_bytes: info.jited_prog_len,
            runs: info.run_cnt,
            run_time: info.run_time_ns,
        })
    }

    /// Makes the program choose among the sockets of `socket`'s reuseport group, and replaces any previous one. Takes
    /// the socket's lock: for sockets of other processes, use [`heddle_sys::isolated`].
    pub fn attach_reuseport(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        set_option(socket, libc::SO_ATTACH_REUSEPORT_EBPF, self.fd.as_raw_fd())
    }

    /// Returns the choice among the sockets of `socket`'s reuseport group to the kernel. `ENOENT` if the group has no
    /// program. Takes the socket's lock, as above.
    pub fn detach_reuseport(socket: BorrowedFd<'_>) -> io::Result<()> {
        /// Missing in the `libc` crate for this target.
        const SO_DETACH_REUSEPORT_BPF: i32 = 68;
        set_option(socket, SO_DETACH_REUSEPORT_BPF, 0)
    }

    /// Attaches a stream's parser or verdict to a map of sockets.
    pub fn attach_stream(&self, kind: ProgramKind, sockets: BorrowedFd<'_>) -> io::Result<()> {
        let (_, attach, _) = kind.numbers();
        // SAFETY: takes descriptors and numbers only.
        check(unsafe { sys::bpf_prog_attach(self.fd.as_raw_fd(), sockets.as_raw_fd(), attach, 0) })
            .map(drop)
    }

    /// Runs a [`ProgramKind::SystemCall`] program and returns its result. It reads and writes `context`, of up to 64
    /// KiB.
    ///
    /// # Errors
    /// The kernel's: `EINVAL` for other kinds of programs, or if the program reads beyond `context`.
    pub fn run(&self, context: &mut [u64]) -> io::Result<u32> {
        let bytes = u32::try_from(size_of_val(context)).map_err(io::Error::other)?;
        // The kernel writes the result into `ctx_in`, and refuses a size for `ctx_out`.
        let mut opts = sys::bpf_test_run_opts {
            sz: size_of::<sys::bpf_test_run_opts>() as _,
            ctx_in: context.as_mut_ptr().cast(),
            ctx_size_in: bytes,
            ..Default::default()
        };
        // SAFETY: `context` is exclusively ours, outlives the call and has the length given, which the kernel reads
        // and writes.
        check(unsafe { sys::bpf_prog_test_run_opts(self.fd.as_raw_fd(), &raw mut opts) })?;
        Ok(opts.retval)
    }

    /// Runs the program `repeat` times on a test packet.
    pub fn test_run(&self, packet: &[u8], repeat: u32) -> io::Result<TestRun> {
        let mut out = vec![0; packet.len() + 256];
        let mut opts = sys::bpf_test_run_opts {
            sz: size_of::<sys::bpf_test_run_opts>() as _,
            data_in: packet.as_ptr().cast(),
            data_size_in: u32::try_from(packet.len()).map_err(io::Error::other)?,
            data_out: out.as_mut_ptr().cast(),
            data_size_out: u32::try_from(out.len()).map_err(io::Error::other)?,
            repeat: i32::try_from(repeat).map_err(io::Error::other)?,
            ..Default::default()
        };
        // SAFETY: both buffers outlive the call and have the lengths given.
        check(unsafe { sys::bpf_prog_test_run_opts(self.fd.as_raw_fd(), &raw mut opts) })?;
        Ok(TestRun { verdict: opts.retval, nanoseconds: opts.duration })
    }
}

/// Returns whether a log includes its first lines.
fn has_first_lines(log: &str) -> bool {
    log.starts_with("func#0") || log.starts_with("0: ")
}

/// The result of a test run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestRun {
    /// The program's return value.
    pub verdict: u32,
    /// The mean time of a run in nanoseconds.
    pub nanoseconds: u32,
}

impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl From<Program> for OwnedFd {
    fn from(program: Program) -> Self {
        program.fd
    }
}

/// Makes the kernel count the runs and run time of all programs while the result lives. Every run of every program on
/// the machine then reads the clock twice.
pub fn count_run_time() -> io::Result<OwnedFd> {
    // SAFETY: takes a number only.
    own(unsafe { sys::bpf_enable_stats(sys::BPF_STATS_RUN_TIME) })
}

pub(super) fn set_option(socket: BorrowedFd<'_>, option: i32, value: i32) -> io::Result<()> {
    let size = libc::socklen_t::try_from(size_of_val(&value)).unwrap_or(4);
    // SAFETY: `value` is valid for `size` bytes of reading.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const value).cast(),
            size,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
