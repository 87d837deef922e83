//! The process that parses a user's object: it reads bytes from standard input, writes their content to
//! standard output, and can do nothing else. An attacker who takes it over controls a process of an
//! unassigned user ([`crate::reader`]) that may read, write, allocate memory and exit.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};

use anyhow::Context as _;
use heddle_steer::engine::read_here;
use heddle_steer::policy::MAX_FILE;
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter};

/// The maximum of each resource limit.
const LIMITS: &[(Resource, u64)] = &[
    (Resource::As, 256 << 20),
    (Resource::Cpu, 2),
    (Resource::Nofile, 0),
    (Resource::Nproc, 0),
    (Resource::Fsize, 0),
    (Resource::Core, 0),
];

/// System calls for reading, writing, memory and exiting, and those that the standard library makes for them.
/// None that opens, connects, starts or signals.
const ALLOWED: &[i64] = &[
    numbers::READ,
    numbers::WRITE,
    numbers::MMAP,
    numbers::MUNMAP,
    numbers::MREMAP,
    numbers::MPROTECT,
    numbers::MADVISE,
    numbers::BRK,
    numbers::FUTEX,
    numbers::GETRANDOM,
    numbers::SIGALTSTACK,
    numbers::RT_SIGRETURN,
    numbers::EXIT,
    numbers::EXIT_GROUP,
];

#[cfg(target_arch = "x86_64")]
mod numbers {
    pub const READ: i64 = 0;
    pub const WRITE: i64 = 1;
    pub const MMAP: i64 = 9;
    pub const MPROTECT: i64 = 10;
    pub const MUNMAP: i64 = 11;
    pub const BRK: i64 = 12;
    pub const RT_SIGRETURN: i64 = 15;
    pub const MREMAP: i64 = 25;
    pub const MADVISE: i64 = 28;
    pub const EXIT: i64 = 60;
    pub const SIGALTSTACK: i64 = 131;
    pub const FUTEX: i64 = 202;
    pub const EXIT_GROUP: i64 = 231;
    pub const GETRANDOM: i64 = 318;
}

#[cfg(target_arch = "aarch64")]
mod numbers {
    pub const READ: i64 = 63;
    pub const WRITE: i64 = 64;
    pub const EXIT: i64 = 93;
    pub const EXIT_GROUP: i64 = 94;
    pub const FUTEX: i64 = 98;
    pub const SIGALTSTACK: i64 = 132;
    pub const RT_SIGRETURN: i64 = 139;
    pub const BRK: i64 = 214;
    pub const MUNMAP: i64 = 215;
    pub const MREMAP: i64 = 216;
    pub const MMAP: i64 = 222;
    pub const MPROTECT: i64 = 226;
    pub const MADVISE: i64 = 233;
    pub const GETRANDOM: i64 = 278;
}

/// Drops all privileges, then reads.
pub fn run() -> anyhow::Result<()> {
    confine().context("cannot give up rights")?;
    let mut bytes = Vec::new();
    io::stdin().take(MAX_FILE as u64 + 1).read_to_end(&mut bytes)?;
    let answer = serde_json::to_vec(&read_here(&bytes))?;
    io::stdout().write_all(&answer)?;
    Ok(())
}

fn confine() -> anyhow::Result<()> {
    // Other processes of the same user (if heddled is not root) may not inspect it or change its answer.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    rustix::thread::set_no_new_privs(true)?;
    for (resource, most) in LIMITS {
        setrlimit(*resource, Rlimit { current: Some(*most), maximum: Some(*most) })?;
    }
    apply_filter(&filter()?)?;
    Ok(())
}

fn filter() -> anyhow::Result<BpfProgram> {
    let rules: BTreeMap<i64, Vec<_>> = ALLOWED.iter().map(|call| (*call, Vec::new())).collect();
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::KillProcess,
        SeccompAction::Allow,
        TargetArch::try_from(std::env::consts::ARCH)?,
    )?;
    Ok(filter.try_into()?)
}
