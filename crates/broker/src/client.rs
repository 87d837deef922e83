//! Asking a broker how things are.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use heddle_share::wire::{self, Message};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::report::Report;

/// How long an answer may take, if the caller does not say.
const PATIENCE: Duration = Duration::from_secs(5);

/// More than any answer has.
const MOST: u64 = 64 << 20;

/// Why a broker was not heard.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// None listens there.
    #[error("no broker answers at {}: {source}", .at.display())]
    NoBroker {
        /// The socket.
        at: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It refuses.
    #[error("the broker at {} refuses: {why}", .at.display())]
    Refused {
        /// The socket.
        at: PathBuf,
        /// Its reason.
        why: String,
    },
    /// Its answer makes no sense.
    #[error("the broker at {} gives no sensible answer: {why}", .at.display())]
    Answer {
        /// The socket.
        at: PathBuf,
        /// What was wrong.
        why: String,
    },
}

/// Asks the broker at `path` how things are.
///
/// # Errors
/// [`QueryError`].
pub fn query(path: &Path) -> Result<Report, QueryError> {
    query_within(path, PATIENCE)
}

/// As [`query`], for a caller that waits at most `patience` for each step.
///
/// # Errors
/// [`QueryError`].
pub fn query_within(path: &Path, patience: Duration) -> Result<Report, QueryError> {
    let no_broker = |source| QueryError::NoBroker { at: path.into(), source };
    let wrong = |why: String| QueryError::Answer { at: path.into(), why };
    let socket = connect_within(path, patience).map_err(no_broker)?;
    wire::send(&socket, &Message::Status, &[]).map_err(no_broker)?;
    let text = match wire::receive(&socket).map_err(|error| wrong(error.to_string()))? {
        Some((Message::Answer(text), fds)) => {
            whole(text, fds).map_err(|error| wrong(error.to_string()))?
        }
        Some((Message::Refused(why), _)) => {
            return Err(QueryError::Refused { at: path.into(), why });
        }
        Some(_) => return Err(wrong("it is another message".into())),
        None => return Err(wrong("it hung up".into())),
    };
    serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))
}

/// Connects; neither this nor the answer takes forever.
fn connect_within(path: &Path, patience: Duration) -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    for direction in [Timeout::Send, Timeout::Recv] {
        set_socket_timeout(&socket, direction, Some(patience))?;
    }
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Returns an answer that may be in a file.
fn whole(text: String, fds: Vec<OwnedFd>) -> io::Result<String> {
    let Some(file) = fds.into_iter().next().filter(|_| text.is_empty()) else { return Ok(text) };
    let mut text = String::new();
    File::from(file).take(MOST).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_answer_is_read_from_its_file() {
        let long = "x".repeat(wire::MAX_ANSWER + 1);
        let file = crate::status::in_file(&long).unwrap();
        assert_eq!(whole(String::new(), vec![file]).unwrap(), long);
        assert_eq!(whole("short".into(), Vec::new()).unwrap(), "short");
    }
}
