//! Privileges, the kernel's BPF, and the tools that steering uses.

use std::env;
use std::fs;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;

use heddle_bpf::{KernelTypes, Program, ProgramKind, ProgramSpec};
use rustix::fs::{StatVfsMountFlags, statfs, statvfs};
use rustix::thread::{CapabilitySet, capabilities};

use super::{Probe, State};
use crate::client::{self, SOCKET_VARIABLE};
use crate::hook::xdp::PASS;
use crate::policy::{compile, shipped_source};

/// The capabilities that steering uses. `CAP_SYS_ADMIN` includes them.
const CAPABILITIES: [(CapabilitySet, &str); 3] = [
    (CapabilitySet::BPF, "CAP_BPF"),
    (CapabilitySet::NET_ADMIN, "CAP_NET_ADMIN"),
    (CapabilitySet::PERFMON, "CAP_PERFMON"),
];

pub fn probes() -> Vec<Probe> {
    vec![privileges(), programs(), types(), file_system()]
}

fn privileges() -> Probe {
    let held = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    let has = |one| held.intersects(one | CapabilitySet::SYS_ADMIN);
    let missing: Vec<&str> =
        CAPABILITIES.iter().filter(|(one, _)| !has(*one)).map(|(_, name)| *name).collect();
    if missing.is_empty() {
        let found = "this process has CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON";
        return Probe::new(
            "steer-privileges",
            State::Yes,
            found,
            "it can steer by itself (--direct)",
        );
    }
    Probe::new(
        "steer-privileges",
        State::Partly,
        format!("this process lacks {}", missing.join(", ")),
        "heddled steers for it, or run as root",
    )
}

fn programs() -> Probe {
    let spec = ProgramSpec {
        name: "hd_probe",
        kind: ProgramKind::Xdp,
        instructions: &PASS,
        functions: &[],
    };
    let loaded = Program::load(&spec).map_err(|refused| refused.error);
    let jit = loaded.and_then(|program| program.info()).map(|info| info.machine_bytes > 0);
    match jit {
        Ok(true) => Probe::new(
            "steer-bpf",
            State::Yes,
            "a program was loaded and compiled to machine code",
            "policies can be deployed",
        ),
        Ok(false) => Probe::new(
            "steer-bpf",
            State::Partly,
            "programs are interpreted (net.core.bpf_jit_enable is 0)",
            "sysctl net.core.bpf_jit_enable=1 makes decisions several times cheaper",
        ),
        Err(error) => {
            let follows = match error.kind() {
                io::ErrorKind::PermissionDenied => "run as root, or through heddled",
                _ => "policies work in user space only (late binding, dispatchers)",
            };
            Probe::new(
                "steer-bpf",
                State::No,
                format!("no program can be loaded: {error}"),
                follows,
            )
        }
    }
}

fn types() -> Probe {
    let read = KernelTypes::read().and_then(|types| types.offset("sock", "sk_receive_queue.qlen"));
    Probe::tried(
        "steer-types",
        read.map(|_| "the kernel says how its structures are laid out (BTF)".to_owned()),
        "policies that watch queues (jiq, jsq) work on unmodified servers",
        "jiq and jsq do not work (CONFIG_DEBUG_INFO_BTF); the other policies do",
    )
}

fn file_system() -> Probe {
    /// `BPF_FS_MAGIC` of linux/magic.h.
    const MAGIC: i64 = 0xcafe_4a11;
    let at = Path::new("/sys/fs/bpf");
    let mounted = statfs(at).is_ok_and(|fs| fs.f_type == MAGIC);
    let read_only = statvfs(at).is_ok_and(|fs| fs.f_flag.contains(StatVfsMountFlags::RDONLY));
    match (mounted, read_only) {
        (true, false) => Probe::new(
            "steer-bpffs",
            State::Yes,
            "/sys/fs/bpf is mounted",
            "what is attached outlives the command that attached it",
        ),
        (true, true) => Probe::new(
            "steer-bpffs",
            State::No,
            "/sys/fs/bpf is mounted read-only",
            "mount -o remount,rw /sys/fs/bpf (in a container: from outside)",
        ),
        (false, _) => Probe::new(
            "steer-bpffs",
            State::Partly,
            "no BPF file system at /sys/fs/bpf",
            "Heddle mounts one when it first attaches as root (mount -t bpf bpf /sys/fs/bpf)",
        ),
    }
}

/// Probes the tools outside the kernel.
pub fn tools() -> Vec<Probe> {
    vec![compiler(), daemon()]
}

fn compiler() -> Probe {
    let try_it = || -> Result<String, Box<dyn std::error::Error>> {
        let name = format!("heddle-probe-{}.c", std::process::id());
        let file = env::temp_dir().join(name);
        fs::write(&file, shipped_source("round-robin").unwrap_or_default())?;
        let compiled = compile(&file);
        fs::remove_file(&file)?;
        compiled?;
        Ok("clang compiled a policy".into())
    };
    Probe::tried(
        "clang",
        try_it(),
        "policies of your own can be compiled here",
        "the shipped policies work without; for your own, apt-get install clang, or compile elsewhere",
    )
}

fn daemon() -> Probe {
    let at = client::socket();
    let connected =
        UnixStream::connect(&at).map(|_| format!("heddled answers at {}", at.display()));
    let found =
        connected.map_err(|error| format!("no daemon answers at {} ({error})", at.display()));
    let instead = if env::var_os(SOCKET_VARIABLE).is_some() {
        "HEDDLE_SOCKET names this socket: start a heddled there (--socket), or unset the variable"
    } else {
        "root steers with --direct; `systemctl start heddled` (or run heddled as root) lets others steer too"
    };
    Probe::tried("heddled", found, "users without privileges can deploy policies", instead)
}
