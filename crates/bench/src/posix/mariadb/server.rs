//! A private MariaDB: a data directory of its own, a Unix socket and no network.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;

use tempfile::TempDir;

use super::super::daemon::Daemon;
use super::super::installed::{Installed, MARIADB};
use super::super::launch;
use super::super::system::System;
use super::connection::Connection;
use crate::kv::workdir::make_in;

/// What creates a data directory.
const INSTALL: Installed = Installed { program: "mariadb-install-db", ..MARIADB };
/// Memory, so that no disk disturbs.
const MEMORY: &str = "/dev/shm";

/// A data directory, and how to start a server on it.
#[derive(Debug)]
pub(super) struct Store {
    folder: TempDir,
    server: PathBuf,
}

impl Store {
    /// Creates a data directory in memory, or where temporary files are.
    ///
    /// # Errors
    /// MariaDB is not installed, or cannot create it.
    pub(super) fn create() -> io::Result<Store> {
        let server = MARIADB.find().map_err(io::Error::other)?;
        let folder = folder()?;
        let mut install = Command::new(INSTALL.find().map_err(io::Error::other)?);
        install.args(["--no-defaults", "--auth-root-authentication-method=normal"]);
        install.args(["--skip-test-db", "--skip-name-resolve"]).args(as_root());
        install.arg(option("datadir", &folder.path().join("data")));
        let output = install.stdin(Stdio::null()).output()?;
        if output.status.success() {
            return Ok(Store { folder, server });
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let line = said.lines().last().unwrap_or("no message");
        Err(io::Error::other(format!("mariadb-install-db failed ({}): {line}", output.status)))
    }

    /// The server's socket.
    pub(super) fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// Starts a server under `system`; `heddle` is this program.
    ///
    /// # Errors
    /// It does not start, or `stop` is set.
    pub(super) fn start(
        &self,
        heddle: &Path,
        system: &System,
        cpus: &[u32],
        stop: &AtomicBool,
    ) -> io::Result<Daemon> {
        let command = launch::command(heddle, system, &self.server, &self.options());
        let (socket, log) = (self.socket(), self.folder.path().join("log"));
        let ready = || Connection::open(&socket, "").ok().map(drop);
        Daemon::start(&command, cpus, &log, stop, ready).map(|(daemon, ())| daemon)
    }

    /// The defaults of MariaDB, whatever the machine's configuration is, but no network and no work of its own at
    /// start.
    fn options(&self) -> Vec<String> {
        let folder = self.folder.path();
        let paths =
            [("datadir", "data"), ("socket", "socket"), ("pid-file", "pid"), ("tmpdir", "")];
        let paths = paths.map(|(name, file)| option(name, &folder.join(file)));
        let fixed = [
            "--no-defaults",
            "--skip-networking",
            "--skip-name-resolve",
            "--innodb-buffer-pool-load-at-startup=OFF",
            "--innodb-buffer-pool-dump-at-shutdown=OFF",
        ];
        let fixed = fixed.map(str::to_owned);
        fixed.into_iter().chain(paths).chain(as_root().map(str::to_owned)).collect()
    }
}

/// A folder for the data. A socket's path must be short.
fn folder() -> io::Result<TempDir> {
    let make = |parent: &Path| make_in(parent, "heddle-mariadb-");
    make(Path::new(MEMORY)).or_else(|_| make(&std::env::temp_dir()))
}

fn option(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
}

/// MariaDB refuses to run as root unless it is told to.
fn as_root() -> Option<&'static str> {
    rustix::process::geteuid().is_root().then_some("--user=root")
}
