//! The guardian's socket: a request and its answer, a line of JSON each. Only the enclave's owner and root are answered. With an upgrade
//! comes the program that is to be the agent, as an open file: a path, or the asker's number, may be something else's by the time it is used.

use super::GuardianError;
use super::event::Event;
use super::folder::Folder;
use super::talk::line;
use super::target::{Taken, Target};
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
/// How long somebody may take to ask.
const ASKING: Duration = Duration::from_secs(5);
/// How long an answer may take: an upgrade loads programs, slowly on an emulated machine.
const ANSWERING: Duration = Duration::from_secs(120);

/// What can be asked of a guardian.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "do")]
pub enum Request {
    /// Put what runs into the enclave.
    Join {
        /// What.
        #[serde(flatten)]
        target: Target,
    },
    /// Have the program that comes along follow the agent that runs.
    Upgrade {
        /// Another policy.
        policy: Option<String>,
    },
    /// Give all threads back and end; the program goes on.
    Stop,
}

/// What the guardian says to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "answer")]
pub enum Answer {
    /// Done.
    Joined {
        /// The threads that came in.
        threads: usize,
        /// Whose they are.
        #[serde(flatten)]
        taken: Taken,
    },
    /// A new agent schedules.
    Upgraded {
        /// How long there was none, in microseconds.
        gap_us: u64,
        /// The new agent's process.
        agent: u32,
        /// Its policy.
        policy: String,
        /// Transactions that failed in the meantime.
        failed: u64,
    },
    /// The threads are the default scheduler's.
    Stopped {
        /// How many.
        threads: usize,
    },
    /// It was not done.
    Refused {
        /// Whether what was asked for makes no sense.
        usage: bool,
        /// Why.
        text: String,
    },
}

impl Answer {
    /// Of an error.
    #[must_use]
    pub fn refused(error: &GuardianError) -> Answer {
        Answer::Refused { usage: matches!(error, GuardianError::Usage(_)), text: error.to_string() }
    }
}

/// Listens in `folder` for ever, and passes on what is asked.
///
/// # Errors
/// The socket cannot be made.
pub fn listen(folder: &Folder, owner: u32, events: Sender<Event>) -> Result<(), GuardianError> {
    let path = folder.socket();
    // Of a guardian that died.
    let _ = std::fs::remove_file(&path);
    let failed = format!("cannot listen at {}", path.display());
    let socket = UnixListener::bind(&path).map_err(GuardianError::system(failed.clone()))?;
    // Its folder is closed to others already.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600))
        .map_err(GuardianError::system(failed))?;
    std::thread::spawn(move || {
        for stream in socket.incoming().flatten() {
            let events = events.clone();
            // Who asks slowly keeps nobody else waiting.
            std::thread::spawn(move || drop(serve(stream, owner, &events)));
        }
    });
    Ok(())
}

fn serve(stream: UnixStream, owner: u32, events: &Sender<Event>) -> io::Result<()> {
    let uid = socket_peercred(&stream)?.uid.as_raw();
    stream.set_read_timeout(Some(ASKING))?;
    let asker = Asker(stream);
    if ![0, owner].contains(&uid) {
        let text = "only its owner and root may ask this of an enclave".into();
        asker.answer(&Answer::Refused { usage: false, text });
        return Ok(());
    }
    let (text, program) = hear(&asker.0)?;
    match serde_json::from_str(&text) {
        Ok(request) => {
            // A guardian that ends answers nobody any more.
            let _ = events.send(Event::Request(request, Peer { uid, program }, asker));
        }
        Err(error) => {
            let text = format!("what is asked is not understood: {error}");
            asker.answer(&Answer::Refused { usage: true, text });
        }
    }
    Ok(())
}

/// Who asks.
#[derive(Debug)]
pub struct Peer {
    /// Its user, as the kernel attests it.
    pub uid: u32,
    /// The file that came with the request.
    pub program: Option<OwnedFd>,
}

/// A line, and the file that came with its beginning.
fn hear(stream: &UnixStream) -> io::Result<(String, Option<OwnedFd>)> {
    let mut first = [0; 1024];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut came = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [io::IoSliceMut::new(&mut first)];
    let read = recvmsg(stream, &mut parts, &mut came, RecvFlags::CMSG_CLOEXEC)?.bytes;
    let mut files = came.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => files.collect::<Vec<_>>(),
        _ => Vec::new(),
    });
    let program = files.next();
    let mut text = String::new();
    let first = first.get(..read).unwrap_or_default();
    BufReader::new(first.chain(stream).take(LONGEST)).read_line(&mut text)?;
    Ok((text, program))
}

/// A line, and the file that goes with it.
fn tell(stream: &UnixStream, text: &str, program: Option<&File>) -> io::Result<()> {
    let files: Vec<BorrowedFd<'_>> = program.iter().map(|file| file.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut goes = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        goes.push(SendAncillaryMessage::ScmRights(&files));
    }
    let text = text.as_bytes();
    let sent = sendmsg(stream, &[io::IoSlice::new(text)], &mut goes, SendFlags::NOSIGNAL)?;
    let mut rest = stream;
    rest.write_all(text.get(sent..).unwrap_or_default())
}

/// Who waits for an answer.
#[derive(Debug)]
pub struct Asker(UnixStream);

impl Asker {
    /// Answers. When this returns the answer is on its way, also if the process ends at once: a thread of its own might come too late.
    pub fn answer(mut self, answer: &Answer) {
        // Who asked may have gone away. An answer fits into the socket's buffer, so nobody is waited for.
        let _ = self.0.write_all(line(answer).as_bytes());
    }
}

/// Asks the guardian of the enclave in `folder`.
///
/// # Errors
/// There is none, it refuses, or it ends before it answers.
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
    tell(&stream, &line(request), program.as_ref()).map_err(GuardianError::system(failed()))?;
    stream.set_read_timeout(Some(ANSWERING)).map_err(GuardianError::system(failed()))?;
    let mut text = String::new();
    BufReader::new(&stream).read_line(&mut text).map_err(GuardianError::system(failed()))?;
    match serde_json::from_str(&text).map_err(GuardianError::system(failed()))? {
        Answer::Refused { usage: true, text } => Err(GuardianError::Usage(text)),
        Answer::Refused { usage: false, text } => Err(GuardianError::Failed(text)),
        answer => Ok(answer),
    }
}
