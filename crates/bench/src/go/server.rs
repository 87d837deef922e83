//! BadgerDB's server as a child process.

use super::system::System;
use super::toolchain::Toolchain;
use crate::kv::ServerProcess;
use rustix::process::{Pid, Signal, kill_process};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// The program.
const PROGRAM: &str = "badger-server";
/// The database's folder within the bench's; the first server loads it.
const DATA: &str = "badger";

/// A running server.
#[derive(Debug)]
pub(super) struct Server {
    process: ServerProcess,
    /// Its addresses.
    pub(super) addresses: Addresses,
}

/// The addresses of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Addresses {
    /// Datagrams.
    pub(super) udp: SocketAddr,
    /// HTTP.
    pub(super) http: SocketAddr,
}

impl Server {
    /// Starts it on a dataset of `keys` keys, loaded if missing, and waits until it is ready.
    ///
    /// # Errors
    /// The server's error output; interruption.
    pub(super) fn start(
        toolchain: &Toolchain,
        system: &System,
        keys: u32,
        stop: &AtomicBool,
    ) -> io::Result<Server> {
        let mut command = toolchain.run(PROGRAM, system)?;
        command.args(["-udp", "127.0.0.1:0", "-http", "127.0.0.1:0", "-keys", &keys.to_string()]);
        command.arg("-dir").arg(data(toolchain.folder()?));
        let started = ServerProcess::start(&format!("{PROGRAM} ({system})"), command, stop, ready);
        let (process, addresses) = started.map_err(|error| match error {
            crate::kv::StartError::Interrupted => io::ErrorKind::Interrupted.into(),
            other => io::Error::other(other),
        })?;
        Ok(Server { process, addresses })
    }

    /// The process ID.
    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Its last error output.
    pub(super) fn said(&self) -> String {
        self.process.said()
    }
}

fn data(folder: &Path) -> std::path::PathBuf {
    folder.join(DATA)
}

/// A Go server stops on a signal; [`ServerProcess`] then waits for it.
impl Drop for Server {
    fn drop(&mut self) {
        let pid = i32::try_from(self.process.pid()).ok().and_then(Pid::from_raw);
        // Until it is reaped, the PID stays valid, even if it has ended.
        let _ = pid.map(|pid| kill_process(pid, Signal::TERM));
    }
}

/// `ready udp=127.0.0.1:7390 http=127.0.0.1:7391 keys=200000`
fn ready(line: &str) -> Option<Addresses> {
    let mut words = line.split_whitespace();
    if words.next() != Some("ready") {
        return None;
    }
    let words: Vec<&str> = words.collect();
    let of = |name: &str| words.iter().find_map(|word| word.strip_prefix(name)?.parse().ok());
    Some(Addresses { udp: of("udp=")?, http: of("http=")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ready_line_gives_both_addresses() {
        let found = ready("ready udp=127.0.0.1:7390 http=127.0.0.1:7391 keys=200").unwrap();
        assert_eq!((found.udp.port(), found.http.port()), (7390, 7391));
        assert_eq!(ready("ready udp=127.0.0.1:7390 keys=200"), None);
        assert_eq!(ready("loading udp=127.0.0.1:7390 http=127.0.0.1:7391"), None);
    }
}
