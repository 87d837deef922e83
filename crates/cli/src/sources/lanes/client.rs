//! Asking processes about their lanes. They may answer anything, slowly or not at all.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use heddle_sys::processes::Process;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, send, socket_with,
};

use super::record::{Network, Record};

/// How long a process may take to list all its sockets.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// The longest answer in bytes: that of half a million connections.
const LONGEST: u64 = 256 << 20;

/// The answers that this command understands.
const SCHEMA: u32 = 1;

/// A process with lanes, and what it has answered.
pub struct Answer {
    pub pid: u32,
    pub uid: u32,
    pub name: String,
    pub net: Network,
    pub records: Vec<Record>,
}

/// Asks all processes that the caller may ask; each may take `patience`. Returns the answers, and sentences about
/// processes that did not answer.
pub fn ask(question: &str, patience: Duration) -> (Vec<Answer>, Vec<String>) {
    let (mut answers, mut silent) = (Vec::new(), Vec::new());
    for path in sockets() {
        match ask_one(&path, question, patience) {
            Ok(Some(answer)) => answers.push(answer),
            Ok(None) => {}
            Err(error) => silent.push(format!("{}: {error}", path.display())),
        }
    }
    answers.sort_by(|one, other| {
        (one.pid, &one.net.interface).cmp(&(other.pid, &other.net.interface))
    });
    (answers, silent)
}

fn sockets() -> impl Iterator<Item = PathBuf> {
    let folders = heddle_netstack::diag::folders().into_iter();
    let entries = folders.filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths.filter(|path| path.extension().is_some_and(|end| end == "sock"))
}

/// Asks one process; `None` if it is gone.
fn ask_one(path: &Path, question: &str, patience: Duration) -> io::Result<Option<Answer>> {
    let until = Instant::now() + patience;
    let Some(stream) = reach(path)? else { return Ok(None) };
    let peer = socket_peercred(&stream)?;
    let (pid, uid) = (peer.pid.as_raw_nonzero().get().cast_unsigned(), peer.uid.as_raw());
    let Some(process) = Process::of(pid) else { return Ok(None) };
    stream.set_read_timeout(Some(patience))?;
    send(stream.as_fd(), format!("{question}\n").as_bytes(), SendFlags::NOSIGNAL)?;
    let (mut net, mut records, mut is_whole) = (None, Vec::new(), false);
    let mut lines = BufReader::new(stream.take(LONGEST));
    let mut line = String::new();
    while !is_whole && lines.read_line(&mut line)? > 0 {
        match serde_json::from_str(&line).map_err(io::Error::other)? {
            Record::Net(found) => net = Some(found),
            Record::End => is_whole = true,
            Record::Unknown => {}
            record => records.push(record),
        }
        line.clear();
        if Instant::now() > until {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    match net {
        Some(net) if net.schema != SCHEMA => Err(other(format!(
            "process {pid} is of another version (it answers by schema {}, this command reads {SCHEMA})",
            net.schema
        ))),
        Some(net) if is_whole => Ok(Some(Answer { pid, uid, name: process.name(), net, records })),
        // It ended meanwhile.
        _ if !process.lives() => Ok(None),
        _ => Err(other(format!("process {pid} did not answer"))),
    }
}

fn other(sentence: String) -> io::Error {
    io::Error::other(sentence)
}

/// Connects; `None` if no process listens any more. A queue of clients that is full is an error instead of a wait.
fn reach(path: &Path) -> io::Result<Option<UnixStream>> {
    let meta = fs::symlink_metadata(path)?;
    if !meta.file_type().is_socket() {
        return Ok(None);
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    if let Err(error) = connect(&socket, &SocketAddrUnix::new(path)?) {
        let error = io::Error::from(error);
        let is_gone = [io::ErrorKind::ConnectionRefused, io::ErrorKind::NotFound];
        return if is_gone.contains(&error.kind()) { Ok(None) } else { Err(error) };
    }
    // Not a name for another user's socket.
    let is_owners = socket_peercred(&socket)?.uid.as_raw() == meta.uid();
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(is_owners.then_some(stream))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::unix::net::UnixListener;

    const NET: &str = "{\"is\":\"net\",\"schema\":1,\"interface\":\"eth0\",\"up\":true,\"mtu\":1500,\"lanes\":1,\
        \"queues\":1,\"mode\":\"native\",\"policy\":\"hash\",\"spin\":\"0 ns\"}\n";
    const UDP: &str = "{\"is\":\"udp\",\"local\":\"0.0.0.0:9\",\"remote\":null,\"waiting\":0,\"received\":1,\
        \"dropped\":0,\"later\":[1]}\n";

    /// Asks a process, this one, that answers `answer`.
    fn asked(answer: &str) -> io::Result<Option<Answer>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1-0.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let answer = answer.to_owned();
        let server = std::thread::spawn(move || {
            let mut client = listener.accept().unwrap().0;
            let mut question = [0; 9];
            client.read_exact(&mut question).unwrap();
            client.write_all(answer.as_bytes()).unwrap();
            question
        });
        let result = ask_one(&path, "counters", PATIENCE);
        assert_eq!(&server.join().unwrap(), b"counters\n");
        result
    }

    #[test]
    fn an_answer_is_read_with_what_is_not_known_left_out() {
        let text = format!("{NET}{UDP}{{\"is\":\"other\",\"x\":{{}}}}\n{{\"is\":\"end\"}}\n");
        let answer = asked(&text).unwrap().expect("this process lives");
        assert_eq!((answer.pid, answer.net.interface.as_str()), (std::process::id(), "eth0"));
        assert!(matches!(&answer.records[..], [Record::Udp(one)] if one.local == "0.0.0.0:9"));
    }

    #[test]
    fn what_is_no_whole_answer_is_refused() {
        let why = |text: &str| asked(text).map(drop).unwrap_err().to_string();
        assert!(why("").contains("did not answer"));
        assert!(why(NET).contains("did not answer"), "no end");
        assert!(why(&NET.replace("\"schema\":1", "\"schema\":2")).contains("another version"));
        assert!(!why("{\"is\":\"net\"}\n").is_empty());
        assert!(!why("nonsense\n").is_empty());
    }

    #[test]
    fn a_socket_without_a_listener_is_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        drop(UnixListener::bind(at("1-0.sock")).unwrap());
        fs::write(at("2-0.sock"), "").unwrap();
        for name in ["1-0.sock", "2-0.sock"] {
            assert!(ask_one(&at(name), "counters", PATIENCE).unwrap().is_none(), "{name}");
        }
    }
}
