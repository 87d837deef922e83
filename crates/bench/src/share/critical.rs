//! The latency-critical server: the program of `heddle bench posix`, Debian's memcached, or `heddle kv serve`.

use super::batch::Placement;
use super::command;
use super::options::ShareOptions;
use super::rocksdb::{self, RocksDb};
use super::setup::Share;
use super::system::System;
use crate::kv::{ServerProcess, StartError, launch};
use crate::posix::daemon::Daemon;
use crate::posix::installed::MEMCACHED;
use crate::posix::memcached::testbed as memcached;
use crate::posix::memcached::text::Text;
use crate::posix::programs::Program;
use crate::posix::testbed;
use heddle_core::Ns;
use heddle_load::{Http, Mix, Op, Shape, Streams, Transport};
use heddle_sys::scheduling::{Class, Scheduling};
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use tempfile::TempDir;

/// Computation of a request; parsing it and answering comes on top.
pub(super) const GET: Ns = Ns::from_us(10);
/// Connections of the load, one request at a time on each.
pub(super) const CONNECTIONS: usize = 64;
/// The requests name one of so many keys.
const KEYS: usize = 1000;
/// Threads of memcached.
const THREADS: &str = "1";

/// A server that can be started.
#[derive(Debug)]
pub(super) enum Server {
    /// A thread for each connection, which computes.
    Plain { program: PathBuf, loops: u64 },
    /// Memcached, with one thread. It writes its port into a file in this folder.
    Memcached { program: PathBuf, folder: TempDir },
    /// This program, on RocksDB.
    RocksDb(Box<RocksDb>),
}

/// A running server.
#[derive(Debug)]
pub(super) struct Running {
    process: Process,
    pub(super) address: SocketAddr,
}

#[derive(Debug)]
enum Process {
    Child(ServerProcess),
    Daemon(Daemon),
}

impl Running {
    /// The process id.
    pub(super) fn pid(&self) -> u32 {
        match &self.process {
            Process::Child(server) => server.pid(),
            Process::Daemon(server) => server.pid(),
        }
    }

    /// Returns `error` with what the server said.
    pub(super) fn explain(&self, error: &io::Error) -> io::Error {
        match &self.process {
            Process::Child(server) => {
                io::Error::new(error.kind(), format!("{error}{}", server.said()))
            }
            Process::Daemon(server) => server.explain(error),
        }
    }
}

impl Server {
    /// Compiles the program, and calibrates its work.
    ///
    /// # Errors
    /// It does not compile or run; interruption.
    pub(super) fn plain(options: &ShareOptions, stop: &AtomicBool) -> io::Result<Server> {
        let program = options.programs.path(Program::Server)?;
        let ns_per_loop = testbed::ns_per_loop(&program, &options.cpus, stop)?;
        let loops = (GET.0 as f64 / ns_per_loop).max(1.0) as u64;
        Ok(Server::Plain { program, loops })
    }

    /// Finds memcached.
    ///
    /// # Errors
    /// It is not installed.
    pub(super) fn memcached() -> io::Result<Server> {
        let program = MEMCACHED.find().map_err(io::Error::other)?;
        let folder = tempfile::Builder::new().prefix("heddle-memcached-").tempdir()?;
        Ok(Server::Memcached { program, folder })
    }

    /// Makes the dataset on RocksDB.
    ///
    /// # Errors
    /// The store's.
    pub(super) fn rocksdb(options: &ShareOptions) -> io::Result<Server> {
        Ok(Server::RocksDb(Box::new(RocksDb::prepare(options)?)))
    }

    /// Finds out what its long requests are, on the server at `address` without other load.
    ///
    /// # Errors
    /// Network errors; they cannot be as long as they should.
    pub(super) fn calibrate(&mut self, address: SocketAddr) -> io::Result<()> {
        match self {
            Server::RocksDb(store) => store.calibrate(address),
            Server::Plain { .. } | Server::Memcached { .. } => Ok(()),
        }
    }

    /// Starts it.
    ///
    /// # Errors
    /// It does not start; interruption.
    pub(super) fn start(
        &self,
        options: &ShareOptions,
        system: System,
        share: Option<&Share>,
        stop: &AtomicBool,
    ) -> io::Result<Running> {
        match self {
            Server::Plain { program, loops } => {
                let args = [loops.to_string(), "1".into()];
                let command = command::critical(options, system, share, program, &args);
                start_child(options, system, command, stop, testbed::ready)
            }
            Server::Memcached { program, folder } => {
                let (port, log) = (folder.path().join("port"), folder.path().join("log"));
                // The last server's.
                let _ = fs::remove_file(&port);
                let mut command =
                    command::critical(options, system, share, program, &memcached_args());
                command.env("MEMCACHED_PORT_FILENAME", &port);
                let cpus = command::cpus(options, system);
                let ready = || memcached::address(&fs::read_to_string(&port).ok()?);
                let (server, address) = Daemon::start(&command, &cpus, &log, stop, ready)?;
                memcached::fill(address).map_err(|error| server.explain(&error))?;
                Ok(Running { process: Process::Daemon(server), address })
            }
            Server::RocksDb(store) => {
                let command = store.command(system, share);
                let running = start_child(options, system, command, stop, launch::ready)?;
                let warm = store.warm_up(running.address);
                warm.map_err(|error| running.explain(&error))?;
                Ok(running)
            }
        }
    }

    /// Connects the load.
    ///
    /// # Errors
    /// Network errors.
    pub(super) fn connect(&self, address: SocketAddr) -> io::Result<Box<dyn Transport>> {
        Ok(match self {
            Server::Plain { .. } => {
                let shape = Shape::new(KEYS, 1, 0);
                Box::new(Streams::<Http>::connect(address, CONNECTIONS, shape)?)
            }
            Server::Memcached { .. } => {
                let shape = Shape::new(memcached::KEYS, 1, memcached::VALUE);
                Box::new(Streams::<Text>::connect(address, CONNECTIONS, shape)?)
            }
            Server::RocksDb(store) => store.load(address).connect()?,
        })
    }

    /// Returns how many keys there are.
    pub(super) fn keys(&self) -> usize {
        match self {
            Server::Plain { .. } => KEYS,
            Server::Memcached { .. } => memcached::KEYS,
            Server::RocksDb(_) => rocksdb::KEYS,
        }
    }

    /// Returns the shares of the requests.
    pub(super) fn mix(&self) -> Mix {
        match self {
            Server::Plain { .. } => Mix::only(Op::Get),
            Server::Memcached { .. } => memcached::MIX.parse().expect("a mix"),
            Server::RocksDb(_) => rocksdb::mix(),
        }
    }
}

/// Starts a server that says in a line of its output that it is ready.
fn start_child(
    options: &ShareOptions,
    system: System,
    command: Command,
    stop: &AtomicBool,
    ready: fn(&str) -> Option<SocketAddr>,
) -> io::Result<Running> {
    let start = || ServerProcess::start(system.name(), command, stop, ready);
    let (server, address) =
        placement(options, system).start(start)?.map_err(|error| match error {
            StartError::Interrupted => io::ErrorKind::Interrupted.into(),
            other => io::Error::other(other),
        })?;
    Ok(Running { process: Process::Child(server), address })
}

fn memcached_args() -> Vec<String> {
    let mut args: Vec<String> =
        ["-l", "127.0.0.1", "-p", "-1", "-U", "0", "-t", THREADS].map(str::to_owned).into();
    if rustix::process::geteuid().is_root() {
        args.extend(["-u".to_owned(), "root".to_owned()]);
    }
    args
}

/// How the kernel schedules the server.
fn placement(options: &ShareOptions, system: System) -> Placement {
    let fifo = Scheduling { class: Class::Fifo, priority: 1, reset_on_fork: false };
    let scheduling = if system == System::Fifo { fifo } else { Scheduling::ORDINARY };
    Placement { scheduling, ..Placement::on(&command::cpus(options, system)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fifo_is_real_time() {
        let cpus = crate::kv::Cpus { server: vec![0], load: 1, shared: false };
        let options = ShareOptions::new(&System::ALL, cpus, "/h".into(), true);
        for system in System::ALL {
            let placement = placement(&options, system);
            let is_fifo = placement.scheduling.class == Class::Fifo;
            assert_eq!(is_fifo, system == System::Fifo, "{system}");
            assert_eq!(placement.cpus.len() == 2, system.is_shared(), "{system}");
        }
    }
}
