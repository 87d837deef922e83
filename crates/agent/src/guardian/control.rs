//! The guardian's socket: a request and its answer, a line of JSON each. Only the enclave's owner and root are answered.

use super::GuardianError;
use super::event::Event;
use super::folder::Folder;
use super::talk::line;
use rustix::net::sockopt::socket_peercred;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
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
    /// Put the threads of this process into the enclave.
    Join {
        /// The process.
        pid: u32,
    },
    /// Have the asker's own binary follow the agent that runs.
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
    let socket = UnixListener::bind(&path).map_err(GuardianError::system(failed))?;
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
    let peer = socket_peercred(&stream)?;
    stream.set_read_timeout(Some(ASKING))?;
    let asker = Asker(stream);
    if ![0, owner].contains(&peer.uid.as_raw()) {
        let text = "only its owner and root may ask this of an enclave".into();
        asker.answer(&Answer::Refused { usage: false, text });
        return Ok(());
    }
    let mut text = String::new();
    BufReader::new((&asker.0).take(LONGEST)).read_line(&mut text)?;
    match serde_json::from_str(&text) {
        Ok(request) => {
            let peer = peer.pid.as_raw_nonzero().get().cast_unsigned();
            // A guardian that ends answers nobody any more.
            let _ = events.send(Event::Request(request, peer, asker));
        }
        Err(error) => {
            let text = format!("what is asked is not understood: {error}");
            asker.answer(&Answer::Refused { usage: true, text });
        }
    }
    Ok(())
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
    let mut writer = &stream;
    writer.write_all(line(request).as_bytes()).map_err(GuardianError::system(failed()))?;
    stream.set_read_timeout(Some(ANSWERING)).map_err(GuardianError::system(failed()))?;
    let mut text = String::new();
    BufReader::new(&stream).read_line(&mut text).map_err(GuardianError::system(failed()))?;
    match serde_json::from_str(&text).map_err(GuardianError::system(failed()))? {
        Answer::Refused { usage: true, text } => Err(GuardianError::Usage(text)),
        Answer::Refused { usage: false, text } => Err(GuardianError::Failed(text)),
        answer => Ok(answer),
    }
}
