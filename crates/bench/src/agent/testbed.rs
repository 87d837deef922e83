//! An enclave for measuring single operations: this process is its guardian and agent.
//!
//! The agent has ordinary priority (I5): medians are quoted, not tails.

use heddle_agent::guardian::{Backends as _, Keeper, KernelBackends, Kind, open};
use heddle_agent::model::{Kind as MessageKind, Message, State};
use heddle_agent::{Backend, EnclaveSpec};
use heddle_core::{Ns, TaskId};
use heddle_metrics::Histogram;
use heddle_sys::stat::Stat;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longer than any message takes, even on an emulated machine.
const PATIENCE: Duration = Duration::from_secs(10);

/// The enclave.
pub(super) struct Testbed {
    backend: Arc<dyn Backend>,
    keeper: Box<dyn Keeper>,
}

impl Testbed {
    /// An enclave of `cpus`, with this process attached as agent.
    ///
    /// # Errors
    /// Kernel errors.
    pub(super) fn open(kind: Kind, cpus: &[u32]) -> io::Result<Testbed> {
        let name = format!("bench-table-{}", std::process::id());
        // Its agent is this ordinary thread: a stalled emulated CPU must not make the enclave an orphan,
        // which sends no messages.
        let spec = EnclaveSpec { patience: None, ..EnclaveSpec::new(name, cpus) };
        let keeper = KernelBackends.create(kind, &spec).map_err(io::Error::other)?;
        let backend = open(kind, &spec.name).map_err(io::Error::other)?;
        backend.attach().map_err(io::Error::other)?;
        Ok(Testbed { backend, keeper })
    }

    /// What the agent sees.
    pub(super) fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    /// Puts all threads of a process in, and returns them once their states are known.
    ///
    /// # Errors
    /// The kernel's; a thread that does not appear.
    pub(super) fn join(&self, pid: u32) -> io::Result<Vec<TaskId>> {
        let mut tids = Vec::new();
        for entry in std::fs::read_dir(format!("/proc/{pid}/task"))? {
            let tid = entry?.file_name().to_string_lossy().parse().map_err(io::Error::other)?;
            self.keeper.join(tid).map_err(io::Error::other)?;
            tids.push(tid);
        }
        let begin = Instant::now();
        loop {
            let backend = self.backend();
            let threads = backend.threads().into_iter();
            let ours: Vec<TaskId> =
                threads.filter(|&thread| tids.contains(&backend.thread(thread).tid)).collect();
            if ours.len() == tids.len() {
                return Ok(ours);
            }
            if begin.elapsed() > PATIENCE {
                return Err(io::Error::other("a thread did not come into the enclave"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The next message of `kind` about `thread`, polled for, and when it was read. Others are read and left.
    ///
    /// # Errors
    /// None came.
    pub(super) fn poll(&self, thread: TaskId, kind: MessageKind) -> io::Result<(Message, Ns)> {
        let is_it = |message: &Message| (message.thread, message.kind) == (thread, kind);
        self.poll_for(is_it).ok_or_else(|| self.missing(thread, kind))
    }

    /// The same, of any kind about one of `threads`.
    ///
    /// # Errors
    /// None came.
    pub(super) fn poll_of(&self, threads: &[TaskId]) -> io::Result<(Message, Ns)> {
        self.poll_for(|message| threads.contains(&message.thread)).ok_or_else(|| {
            let words: Vec<_> = threads.iter().map(|&one| self.backend().thread(one)).collect();
            io::Error::other(format!("no message came of {words:?}"))
        })
    }

    fn poll_for(&self, is_it: impl Fn(&Message) -> bool) -> Option<(Message, Ns)> {
        let begin = Instant::now();
        let backend = self.backend();
        let queue = backend.default_queue();
        let mut looks = 0_u32;
        loop {
            if let Some(message) = backend.next(queue) {
                let now = backend.now();
                if is_it(&message) {
                    return Some((message, now));
                }
            }
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(1024) && begin.elapsed() > PATIENCE {
                return None;
            }
        }
    }

    /// What is known where a message did not come.
    fn missing(&self, thread: TaskId, kind: MessageKind) -> io::Error {
        let (word, enclave) = (self.backend().thread(thread), self.backend().enclave());
        io::Error::other(format!("no message {kind:?} came of {word:?}, {enclave:?}"))
    }

    /// The same, asleep between messages.
    ///
    /// # Errors
    /// None came.
    pub(super) fn wait(&self, thread: TaskId, kind: MessageKind) -> io::Result<(Message, Ns)> {
        let backend = self.backend();
        let queue = backend.default_queue();
        let end = backend.now() + Ns::from(PATIENCE);
        loop {
            backend.wait(queue, Some(end));
            let now = backend.now();
            while let Some(message) = backend.next(queue) {
                if (message.thread, message.kind) == (thread, kind) {
                    return Ok((message, now));
                }
            }
            if now >= end {
                return Err(self.missing(thread, kind));
            }
        }
    }

    /// Waits until `thread` is as `state` says.
    ///
    /// # Errors
    /// It never was.
    pub(super) fn until(&self, thread: TaskId, state: State) -> io::Result<()> {
        let begin = Instant::now();
        while self.backend().thread(thread).state != state {
            if begin.elapsed() > PATIENCE {
                return Err(io::Error::other(format!("{thread} was not {state:?}")));
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        Ok(())
    }

    /// Reads what there is.
    pub(super) fn drain(&self) {
        while self.backend().next(self.backend().default_queue()).is_some() {}
    }
}

/// A child that sleeps at its standard input.
pub(super) struct Sleeper {
    child: Child,
    input: Option<ChildStdin>,
}

impl Sleeper {
    /// Starts it.
    ///
    /// # Errors
    /// System errors.
    pub(super) fn start(mut command: Command) -> io::Result<Sleeper> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let input = child.stdin.take();
        let sleeper = Sleeper { child, input };
        sleeper.until_asleep()?;
        Ok(sleeper)
    }

    /// Its process, which is its thread.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Wakes it with the time `stamp`; zero is not counted.
    ///
    /// # Errors
    /// It is gone.
    pub(super) fn wake(&mut self, stamp: Ns) -> io::Result<()> {
        let gone = || io::Error::other("the sleeper is gone");
        self.input.as_mut().ok_or_else(gone)?.write_all(&stamp.0.to_ne_bytes())
    }

    /// Waits until it sleeps in the kernel.
    ///
    /// # Errors
    /// It does not, or is gone.
    pub(super) fn until_asleep(&self) -> io::Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            // `pipe_read` and its like: before the program has begun it may sleep elsewhere.
            let stat = Stat::read(self.pid())?.ok_or(io::ErrorKind::NotFound)?;
            let place = std::fs::read_to_string(format!("/proc/{}/syscall", self.pid()));
            // System call 0 is read.
            if stat.state == 'S' && place.is_ok_and(|place| place.starts_with("0 0x0 ")) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Err(io::Error::other("the sleeper does not sleep"))
    }

    /// Ends it: how long it took to run each time.
    ///
    /// # Errors
    /// It printed nothing of the kind.
    pub(super) fn finish(mut self) -> io::Result<Histogram> {
        drop(self.input.take());
        let out = self.child.stdout.take().ok_or_else(|| io::Error::other("no output"))?;
        let line = BufReader::new(out).lines().next().transpose()?.unwrap_or_default();
        self.child.wait()?;
        serde_json::from_str(&line).map_err(io::Error::other)
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        // It has ended where it was asked to.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
