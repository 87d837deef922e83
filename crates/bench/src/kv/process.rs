//! A server as a child process, which never outlives its owner.
//!
//! Three ways lead to its end, the first that works counts: its standard input closes, which happens even
//! when this process is killed; after [`GRACE`] it is killed with its children; and it is always waited for, so that no
//! zombie and no bound port is left.

use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a server may take to drain.
const GRACE: Duration = Duration::from_secs(3);
/// Opening a store and writing a dataset takes seconds; longer than this, something hangs.
const PATIENCE: Duration = Duration::from_secs(60);
/// Lines of standard error that an error message quotes.
const QUOTED: usize = 8;

/// A running server.
#[derive(Debug)]
pub struct ServerProcess {
    child: Child,
    complaints: Complaints,
}

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// It could not be started.
    #[error("cannot start {0}: {1}")]
    Spawn(String, #[source] std::io::Error),
    /// It ended, or closed its standard output, before it was ready.
    #[error("{name} ended before it was ready ({status}){said}")]
    Ended {
        /// Which server.
        name: String,
        /// How it ended.
        status: String,
        /// What it wrote to standard error.
        said: String,
    },
    /// It did not get ready.
    #[error("{name} was not ready after {} s{said}", PATIENCE.as_secs())]
    Silent {
        /// Which server.
        name: String,
        /// What it wrote to standard error.
        said: String,
    },
    /// The runner was stopped.
    #[error("interrupted")]
    Interrupted,
}

impl ServerProcess {
    /// Starts `command` and waits until one line of its output makes `ready` return something.
    ///
    /// The server gets a process group of its own: Ctrl-C reaches the runner, which then ends servers in
    /// order, and not all processes at once.
    ///
    /// # Errors
    /// [`StartError`]; the child is gone then.
    pub fn start<T>(
        name: &str,
        mut command: Command,
        stop: &AtomicBool,
        ready: impl Fn(&str) -> Option<T>,
    ) -> Result<(ServerProcess, T), StartError> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0);
        let mut child = command.spawn().map_err(|e| StartError::Spawn(name.to_owned(), e))?;
        let lines = child.stdout.take().map(lines_of);
        let complaints = Complaints::gather(child.stderr.take());
        let mut server = ServerProcess { child, complaints };
        let lines = lines.expect("standard output was piped");
        let found = server.wait_until_ready(name, &lines, stop, ready)?;
        Ok((server, found))
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How the server ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// What it last wrote to standard error, to be put behind a message; empty where nothing.
    pub fn said(&self) -> String {
        self.complaints.quoted()
    }

    fn wait_until_ready<T>(
        &mut self,
        name: &str,
        lines: &Receiver<String>,
        stop: &AtomicBool,
        ready: impl Fn(&str) -> Option<T>,
    ) -> Result<T, StartError> {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            if stop.load(Ordering::Relaxed) {
                return Err(StartError::Interrupted);
            }
            match lines.recv_timeout(Duration::from_millis(50)) {
                Ok(line) => match ready(&line) {
                    Some(found) => return Ok(found),
                    None => continue,
                },
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return Err(self.ended_early(name)),
            }
        }
        Err(StartError::Silent { name: name.to_owned(), said: self.said() })
    }

    fn ended_early(&mut self, name: &str) -> StartError {
        let status = self.finish().map_or("unknown status".into(), |s| s.to_string());
        self.complaints.wait();
        StartError::Ended { name: name.to_owned(), status, said: self.said() }
    }

    fn finish(&mut self) -> Option<ExitStatus> {
        drop(self.child.stdin.take());
        let begin = Instant::now();
        while begin.elapsed() < GRACE {
            match self.child.try_wait() {
                Ok(None) => thread::sleep(Duration::from_millis(5)),
                Ok(status) => return status,
                Err(_) => break,
            }
        }
        // Its children, too: one that lived on would keep the data directory from the next server. An error means that
        // all have ended meanwhile.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        self.child.wait().ok()
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Returns the lines of a stream, read by a thread that ends with the stream. It continues to read after the
/// receiver is dropped: a full pipe would block the server.
fn lines_of(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    receiver
}

/// The last lines of a server's standard error.
#[derive(Debug)]
struct Complaints {
    lines: Arc<Mutex<VecDeque<String>>>,
    reader: Option<thread::JoinHandle<()>>,
}

impl Complaints {
    fn gather(stream: Option<impl Read + Send + 'static>) -> Complaints {
        let lines = Arc::new(Mutex::new(VecDeque::new()));
        let kept = Arc::clone(&lines);
        let read = move |stream| {
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.push_back(line);
                if kept.len() > QUOTED {
                    kept.pop_front();
                }
            }
        };
        let reader = stream.map(|stream| thread::spawn(move || read(stream)));
        Complaints { lines, reader }
    }

    /// Waits for the end of the stream, which has come where the process has ended.
    fn wait(&mut self) {
        self.reader.take().map(thread::JoinHandle::join);
    }

    fn quoted(&self) -> String {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().map(|line| format!("\n    {line}")).collect()
    }
}

#[cfg(test)]
#[path = "process_tests.rs"]
mod tests;
