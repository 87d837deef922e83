//! A network namespace.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Where `ip` keeps namespaces.
const FOLDER: &str = "/run/netns";
const PREFIX: &str = "heddle-";

/// A network namespace with nothing in it but its loopback, which is up.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

/// Why this process can make no networks: a text for people. `None` if it can.
#[must_use]
pub fn missing() -> Option<String> {
    /// `CAP_NET_ADMIN` and `CAP_SYS_ADMIN` of linux/capability.h.
    const WANTED: u64 = 1 << 12 | 1 << 21;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let held = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let held = held.and_then(|held| u64::from_str_radix(held.trim(), 16).ok()).unwrap_or(0);
    (held & WANTED != WANTED).then(|| "needs root (CAP_NET_ADMIN and CAP_SYS_ADMIN)".to_owned())
}

impl Namespace {
    /// Makes one.
    ///
    /// # Errors
    /// What `ip` said; mostly a lack of privilege.
    pub fn new() -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        sweep();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{number}", std::process::id());
        run(Command::new("ip").args(["netns", "add", &name]))?;
        let namespace = Self { name };
        namespace.ip("link set lo up")?;
        Ok(namespace)
    }

    /// Its name, as `ip netns` lists it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file that stands for it.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        Path::new(FOLDER).join(&self.name)
    }

    /// The same, open.
    ///
    /// # Errors
    /// If it was removed.
    pub fn file(&self) -> io::Result<OwnedFd> {
        File::open(self.path()).map(OwnedFd::from)
    }

    /// Moves the calling thread into it, for ever.
    ///
    /// # Errors
    /// A lack of privilege.
    pub fn enter(&self) -> io::Result<()> {
        let file = self.file()?;
        Ok(move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?)
    }

    /// Runs `f` in it, in a thread of its own. Sockets that `f` makes stay in it wherever they are used.
    ///
    /// # Panics
    /// If `f` does, or the namespace was removed.
    pub fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> T {
        let inside = || {
            self.enter().unwrap_or_else(|error| panic!("cannot enter {}: {error}", self.name));
            f()
        };
        let result = thread::scope(|scope| scope.spawn(inside).join());
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// A command that runs in it.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// Runs `ip` with these words on it.
    ///
    /// # Errors
    /// What `ip` said.
    pub fn ip(&self, words: &str) -> io::Result<()> {
        run(Command::new("ip").args(["-n", &self.name]).args(words.split_whitespace()))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = run(Command::new("ip").args(["netns", "del", &self.name]));
    }
}

/// Removes the namespaces of processes that are gone (I1).
fn sweep() {
    for entry in fs::read_dir(FOLDER).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        let Some(pid) = pid.and_then(|pid| pid.parse::<u32>().ok()) else { continue };
        if !Path::new(&format!("/proc/{pid}")).exists() {
            let _ = run(Command::new("ip").args(["netns", "del", &name]));
        }
    }
}

/// Runs a command; what it said is the error if it fails.
pub(crate) fn run(command: &mut Command) -> io::Result<()> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let kind = match said.contains("ermitted") || said.contains("denied") {
        true => io::ErrorKind::PermissionDenied,
        false => io::ErrorKind::Other,
    };
    Err(io::Error::new(kind, format!("{command:?}: {}", said.trim())))
}
