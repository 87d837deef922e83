//! A network namespace.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use rustix::thread::{CapabilitySet, LinkNameSpaceType, capabilities, move_into_link_name_space};

/// The folder in which `ip` keeps namespaces.
const FOLDER: &str = "/run/netns";
const PREFIX: &str = "heddle-";

/// A network namespace that contains only its loopback interface, which is up.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

/// Returns the privilege that this process lacks to create networks; `None` if it lacks none.
#[must_use]
pub fn missing_privilege() -> Option<String> {
    let needed = CapabilitySet::NET_ADMIN | CapabilitySet::SYS_ADMIN;
    let held = capabilities(None).is_ok_and(|sets| sets.effective.contains(needed));
    (!held).then(|| "needs root (CAP_NET_ADMIN and CAP_SYS_ADMIN)".to_owned())
}

impl Namespace {
    /// Creates a namespace.
    ///
    /// # Errors
    /// The message of `ip`; usually a lack of privilege.
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

    /// Returns its name, as `ip netns` lists it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the path of the file that represents it.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        Path::new(FOLDER).join(&self.name)
    }

    /// Opens the file that represents it.
    ///
    /// # Errors
    /// The namespace was removed.
    pub fn file(&self) -> io::Result<OwnedFd> {
        File::open(self.path()).map(OwnedFd::from)
    }

    /// Moves the calling thread into it, permanently.
    ///
    /// # Errors
    /// A lack of privilege.
    pub fn enter(&self) -> io::Result<()> {
        let file = self.file()?;
        Ok(move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?)
    }

    /// Runs `f` in it, on a new thread. Sockets that `f` creates belong to it wherever they are used.
    ///
    /// # Panics
    /// If `f` panics or the namespace was removed.
    pub fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> T {
        let inside = || {
            self.enter().unwrap_or_else(|error| panic!("cannot enter {}: {error}", self.name));
            f()
        };
        let result = thread::scope(|scope| scope.spawn(inside).join());
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Returns a command that runs in it.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// Runs `ip` in it with these arguments, separated by spaces.
    ///
    /// # Errors
    /// The message of `ip`.
    pub fn ip(&self, words: &str) -> io::Result<()> {
        run(Command::new("ip").args(["-n", &self.name]).args(words.split_whitespace()))
    }

    /// Runs `tc` in it with these arguments, separated by spaces.
    ///
    /// # Errors
    /// The message of `tc`.
    pub fn tc(&self, words: &str) -> io::Result<()> {
        run(Command::new("tc").args(["-n", &self.name]).args(words.split_whitespace()))
    }

    /// Writes a setting of its network, such as `ipv4/ip_forward`.
    ///
    /// # Errors
    /// There is no such setting, or a lack of privilege.
    pub fn set(&self, setting: &str, value: &str) -> io::Result<()> {
        let path = Path::new("/proc/sys/net").join(setting);
        // The folder shows the settings of the thread's own namespace.
        self.run(|| fs::write(&path, value)).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot write {}: {error}", path.display()))
        })
    }

    /// Returns the index of one of its interfaces.
    ///
    /// # Errors
    /// There is no interface of this name.
    pub fn index_of(&self, interface: &str) -> io::Result<u32> {
        let lookup = || -> io::Result<u32> {
            let kind = rustix::net::SocketType::DGRAM;
            let socket = rustix::net::socket(rustix::net::AddressFamily::INET, kind, None)?;
            Ok(rustix::net::netdevice::name_to_index(&socket, interface)?)
        };
        self.run(lookup).map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {interface}: {error}", self.name))
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = run(Command::new("ip").args(["netns", "del", &self.name]));
    }
}

/// Removes the namespaces of processes that no longer exist (I1).
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

/// Runs a command. If it fails, its standard error is the error.
pub(crate) fn run(command: &mut Command) -> io::Result<()> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    let kind = match message.contains("ermitted") || message.contains("denied") {
        true => io::ErrorKind::PermissionDenied,
        false => io::ErrorKind::Other,
    };
    Err(io::Error::new(kind, format!("{command:?}: {}", message.trim())))
}
