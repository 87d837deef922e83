//! A memcached as a child process: the distribution's, or one whose threads share a queue.

use super::etc;
use crate::events::System;
use crate::posix::daemon::Daemon;
use crate::posix::installed::MEMCACHED;
use crate::posix::memcached::testbed::address;
use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tempfile::TempDir;

/// The variable that names the program whose threads share a queue.
pub(super) const SHARED: &str = "HEDDLE_MEMCACHED";
/// An answer while preparing that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running server with all items.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    daemon: Daemon,
    _folder: TempDir,
}

/// Whether memcached can be had as this system: one epoll per thread, or a policy of the queue.
pub(super) fn has(system: &System, shared: Option<&OsString>) -> bool {
    match system {
        System::PerThread => true,
        System::Queue(_) => shared.is_some(),
        System::Shared | System::Exclusive => false,
    }
}

impl Server {
    /// Starts `system` with so many threads on all CPUs of this thread.
    ///
    /// # Errors
    /// It is not installed or does not start; `stop` was set.
    pub(super) fn start(
        system: &System,
        threads: usize,
        shared: Option<&OsString>,
        stop: &AtomicBool,
    ) -> io::Result<Server> {
        let folder = tempfile::Builder::new().prefix("heddle-memcached-").tempdir()?;
        let (port, log) = (folder.path().join("port"), folder.path().join("log"));
        let mut command = match (system, shared) {
            (System::Queue(policy), Some(program)) => {
                let mut command = Command::new(program);
                command.args(["-q", policy]);
                command
            }
            _ => Command::new(MEMCACHED.find().map_err(io::Error::other)?),
        };
        command.args(["-l", "127.0.0.1", "-p", "-1", "-U", "0", "-m", "256", "-t"]);
        command.arg(threads.to_string()).env("MEMCACHED_PORT_FILENAME", &port);
        if rustix::process::geteuid().is_root() {
            command.args(["-u", "root"]);
        }
        let cpus = heddle_sys::thread::affinity()?;
        let ready = || address(&fs::read_to_string(&port).ok()?);
        let (daemon, address) = Daemon::start(&command, &cpus, &log, stop, ready)?;
        let server = Server { address, daemon, _folder: folder };
        fill(address).map_err(|error| server.explain(&error))?;
        Ok(server)
    }

    /// Returns `error` with the end of what the server said.
    pub(super) fn explain(&self, error: &io::Error) -> io::Error {
        self.daemon.explain(error)
    }
}

/// Stores all items, and reads that each was stored.
fn fill(address: SocketAddr) -> io::Result<()> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut writer = stream.try_clone()?;
    // A server that waits for its answers to be read reads no further.
    let sender = std::thread::spawn(move || writer.write_all(&etc::all_sets()));
    let mut lines = BufReader::new(stream).lines();
    for _ in 0..etc::KEYS {
        match lines.next().transpose()?.as_deref() {
            Some("STORED") => {}
            said => return Err(io::Error::other(format!("memcached stores no item: {said:?}"))),
        }
    }
    sender.join().unwrap_or_else(|_| Err(io::Error::other("the sender panicked")))
}
