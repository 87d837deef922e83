//! Network interfaces, in any network namespace.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::thread;

use rustix::net::netdevice::{index_to_name, name_to_index};
use rustix::net::{AddressFamily, SocketType, socket};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde::{Deserialize, Serialize};

/// Where a program runs on an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// In the driver, before the kernel has made anything of the frame.
    Native,
    /// Generic mode: in the network stack above any driver, when the frame has been copied.
    Generic,
}

impl Mode {
    /// Returns the other mode: the two exclude each other on an interface.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Native => Self::Generic,
            Self::Generic => Self::Native,
        }
    }
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Native => "native",
            Self::Generic => "generic",
        })
    }
}

/// A network interface.
#[derive(Debug)]
pub struct Interface {
    name: String,
    index: u32,
    namespace: Option<OwnedFd>,
}

impl Interface {
    /// Finds the interface called `name`, in `namespace` or in this thread's.
    ///
    /// # Errors
    /// `ENODEV` if there is none; `EPERM` if the namespace cannot be entered (`CAP_SYS_ADMIN`).
    pub fn by_name(name: &str, namespace: Option<OwnedFd>) -> io::Result<Self> {
        let any = |socket: OwnedFd| Ok(name_to_index(socket.as_fd(), name)?);
        let index = inside(namespace.as_ref(), || any(probe_socket()?))?;
        Ok(Self { name: name.into(), index, namespace })
    }

    /// Finds the interface with the kernel's index `index`.
    ///
    /// # Errors
    /// As [`Self::by_name`].
    pub fn by_index(index: u32, namespace: Option<OwnedFd>) -> io::Result<Self> {
        let name =
            inside(namespace.as_ref(), || Ok(index_to_name(probe_socket()?.as_fd(), index)?))?;
        Ok(Self { name, index, namespace })
    }

    /// Returns the network namespace of a file such as `/run/netns/blue` or `/proc/812/ns/net`.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn namespace(file: &Path) -> io::Result<OwnedFd> {
        File::open(file).map(OwnedFd::from)
    }

    /// Returns the name it had when it was found.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the kernel's index for it, unique in its namespace.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Returns a name for it that is unique on this machine and usable as a file name: `xdp-4026531840-2`.
    ///
    /// # Errors
    /// If the namespace's file cannot be queried.
    pub fn key(&self) -> io::Result<String> {
        let inode = match &self.namespace {
            Some(namespace) => rustix::fs::fstat(namespace)?.st_ino,
            None => rustix::fs::stat("/proc/thread-self/ns/net")?.st_ino,
        };
        Ok(format!("xdp-{inode}-{}", self.index))
    }

    /// Runs `f` in the interface's network namespace: in this thread, or in another that enters it.
    ///
    /// # Errors
    /// Those of `f`, and of entering.
    pub fn run<T: Send>(&self, f: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        inside(self.namespace.as_ref(), f)
    }
}

/// A thread that has entered another namespace does not return to its own, so a temporary one is used.
fn inside<T: Send>(
    namespace: Option<&OwnedFd>,
    f: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    let Some(namespace) = namespace else { return f() };
    let enter = || move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network));
    thread::scope(|scope| {
        let there = scope.spawn(|| {
            enter()?;
            f()
        });
        there.join().unwrap_or_else(|_| Err(io::Error::other("a panic in another namespace")))
    })
}

/// Opens any socket: interfaces are queried through one.
fn probe_socket() -> io::Result<OwnedFd> {
    Ok(socket(AddressFamily::INET, SocketType::DGRAM, None)?)
}
