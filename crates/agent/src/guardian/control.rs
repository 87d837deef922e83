//! The guardian's socket: a request and its answer, a line of JSON each. Only the enclave's owner and root are
//! answered. An upgrade request carries the program that is to be the agent as an open file: a path, or the
//! requester's process number, may name something else by the time it is used.

use super::GuardianError;
use super::cpus::Cpus;
use super::event::Event;
use super::folder::Folder;
use super::protocol::line;
use super::target::{JoinReport, Target};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc::Sender;
use std::time::Duration;

/// The longest request: some hundred thread numbers.
const LONGEST: u64 = 64 * 1024;
/// How long a client may take to send its request.
const ASKING: Duration = Duration::from_secs(5);
/// How long an answer may take: an upgrade loads programs, slowly on an emulated machine.
const ANSWERING: Duration = Duration::from_secs(120);

/// A request to a guardian.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "do")]
pub enum Request {
    /// Put processes that run already into the enclave.
    Join {
        /// Which processes.
        #[serde(flatten)]
        target: Target,
    },
    /// Replace the agent by the program that comes with the request.
    Upgrade {
        /// The new policy; none: the present one.
        policy: Option<String>,
    },
    /// Give the enclave other CPUs.
    Resize {
        /// The CPUs that it is to have.
        cpus: Cpus,
    },
    /// Give all threads back and end; the program goes on.
    Stop,
}

/// The guardian's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "answer")]
pub enum Answer {
    /// The threads joined.
    Joined {
        /// How many threads joined.
        threads: usize,
        /// Which processes they belong to.
        #[serde(flatten)]
        taken: JoinReport,
    },
    /// A new agent schedules.
    Upgraded {
        /// How long there was no agent, in microseconds.
        gap_us: u64,
        /// The new agent's process.
        agent: u32,
        /// Its policy.
        policy: String,
        /// Transactions that failed in the meantime.
        failed: u64,
    },
    /// The enclave has the requested CPUs.
    Resized {
        /// Its CPUs.
        cpus: Cpus,
        /// How long there was no agent, in microseconds; none if it has had these CPUs and that agent already.
        gap_us: Option<u64>,
        /// The agent's process.
        agent: u32,
        /// Transactions that failed in the meantime.
        failed: u64,
        /// Threads that were moved from CPUs that the enclave no longer has.
        moved: usize,
        /// Threads that may run on none of its CPUs.
        outside: usize,
    },
    /// The threads belong to the default scheduler again.
    Stopped {
        /// How many threads were given back.
        threads: usize,
    },
    /// The request was refused.
    Refused {
        /// Whether the request made no sense.
        usage: bool,
        /// The reason.
        text: String,
    },
}

impl Answer {
    /// Returns the answer for an error.
    #[must_use]
    pub fn refused(error: &GuardianError) -> Answer {
        Answer::Refused { usage: matches!(error, GuardianError::Usage(_)), text: error.to_string() }
    }
}

/// Listens in `folder` forever, and passes requests on.
///
/// # Errors
/// If the socket cannot be made.
pub fn listen(folder: &Folder, owner: u32, events: Sender<Event>) -> Result<(), GuardianError> {
    let path = folder.socket();
    // The socket of a guardian that died.
    let _ = std::fs::remove_file(&path);
    let failed = format!("cannot listen at {}", path.display());
    let socket = UnixListener::bind(&path).map_err(GuardianError::system(failed.clone()))?;
    // Its folder is closed to other users already.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600))
        .map_err(GuardianError::system(failed))?;
    std::thread::spawn(move || {
        for stream in socket.incoming().flatten() {
            let events = events.clone();
            // A slow client must not keep others waiting.
            std::thread::spawn(move || drop(serve(stream, owner, &events)));
        }
    });
    Ok(())
}

fn serve(stream: UnixStream, owner: u32, events: &Sender<Event>) -> io::Result<()> {
    let uid = socket_peercred(&stream)?.uid.as_raw();
    stream.set_read_timeout(Some(ASKING))?;
    let requester = Requester(stream);
    if ![0, owner].contains(&uid) {
        let text = "only its owner and root may control an enclave".into();
        requester.answer(&Answer::Refused { usage: false, text });
        return Ok(());
    }
    let (text, program) = receive(&requester.0)?;
    match serde_json::from_str(&text) {
        Ok(request) => {
            // A guardian that ends answers no more requests.
            let _ = events.send(Event::Request(request, Peer { uid, program }, requester));
        }
        Err(error) => {
            let text = format!("cannot parse the request: {error}");
            requester.answer(&Answer::Refused { usage: true, text });
        }
    }
    Ok(())
}

/// The process that sent a request.
#[derive(Debug)]
pub struct Peer {
    /// Its user, as attested by the kernel.
    pub uid: u32,
    /// The file that came with the request.
    pub program: Option<OwnedFd>,
}

/// Receives a line, and the file that came with its beginning.
fn receive(stream: &UnixStream) -> io::Result<(String, Option<OwnedFd>)> {
    let mut first = [0; 1024];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [io::IoSliceMut::new(&mut first)];
    let read = recvmsg(stream, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?.bytes;
    let mut files = ancillary.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => files.collect::<Vec<_>>(),
        _ => Vec::new(),
    });
    let program = files.next();
    let mut text = String::new();
    let first = first.get(..read).unwrap_or_default();
    BufReader::new(first.chain(stream).take(LONGEST)).read_line(&mut text)?;
    Ok((text, program))
}

/// Sends a line, and the file that goes with it.
fn send(stream: &UnixStream, text: &str, program: Option<&File>) -> io::Result<()> {
    let files: Vec<BorrowedFd<'_>> = program.iter().map(|file| file.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(&files));
    }
    let text = text.as_bytes();
    let sent = sendmsg(stream, &[io::IoSlice::new(text)], &mut ancillary, SendFlags::NOSIGNAL)?;
    let mut rest = stream;
    rest.write_all(text.get(sent..).unwrap_or_default())
}

/// The client that waits for an answer.
#[derive(Debug)]
pub struct Requester(UnixStream);

impl Requester {
    /// Answers. When this returns the answer is on its way even if the process ends at once; a thread of its own
    /// might come too late.
    pub fn answer(mut self, answer: &Answer) {
        // The client may have gone away. An answer fits into the socket's buffer, so the write does not block.
        let _ = self.0.write_all(line(answer).as_bytes());
    }
}

/// Asks the guardian of the enclave in `folder`.
///
/// # Errors
/// There is no such guardian, it refuses, or it ends before it answers.
pub fn ask(folder: &Folder, request: &Request) -> Result<Answer, GuardianError> {
    let name = folder.name();
    let stream = UnixStream::connect(folder.socket()).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => GuardianError::Failed(
            format!("there is no enclave `{name}` (heddle agent status lists them)"),
        ),
        _ => GuardianError::System {
            what: format!("cannot ask the guardian of `{name}`"),
            source: error,
        },
    })?;
    let failed = || format!("the guardian of `{name}` did not answer");
    let program = match request {
        Request::Upgrade { .. } => {
            let mine = File::open("/proc/self/exe");
            Some(mine.map_err(GuardianError::system("cannot open /proc/self/exe"))?)
        }
        _ => None,
    };
    send(&stream, &line(request), program.as_ref()).map_err(GuardianError::system(failed()))?;
    stream.set_read_timeout(Some(ANSWERING)).map_err(GuardianError::system(failed()))?;
    let mut text = String::new();
    BufReader::new(&stream).read_line(&mut text).map_err(GuardianError::system(failed()))?;
    match serde_json::from_str(&text).map_err(GuardianError::system(failed()))? {
        Answer::Refused { usage: true, text } => Err(GuardianError::Usage(text)),
        Answer::Refused { usage: false, text } => Err(GuardianError::Failed(text)),
        answer => Ok(answer),
    }
}
