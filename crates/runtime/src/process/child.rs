//! A running child process.

use super::{ChildStderr, ChildStdin, ChildStdout, ExitStatus, Output};
use crate::blocking;
use crate::io::Polled;
use crate::poller::Interest;
use crate::time::now;
use heddle_core::Ns;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io::{self, PipeReader, Read};
use std::os::fd::OwnedFd;
use std::process;
use std::time::Duration;

/// A child process. As in std, dropping it neither ends the child nor reaps it: call [`Child::wait`] or
/// [`Child::try_wait`].
///
/// ```
/// use heddle_rt::process::Command;
/// use std::time::Duration;
///
/// let mut child = Command::new("sleep").arg("1000").spawn()?;
/// if child.wait_timeout(Duration::from_millis(1))?.is_none() {
///     child.kill()?;
/// }
/// assert!(!child.wait()?.success());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Child {
    /// The child's standard input, if it was piped.
    pub stdin: Option<ChildStdin>,
    /// The child's standard output, if it was piped.
    pub stdout: Option<ChildStdout>,
    /// The child's standard error, if it was piped.
    pub stderr: Option<ChildStderr>,
    child: process::Child,
}

type Streams = (Option<ChildStdin>, Option<ChildStdout>, Option<ChildStderr>);

/// Takes the piped streams of a child and registers them.
fn take_streams(child: &mut process::Child) -> io::Result<Streams> {
    Ok((
        child.stdin.take().map(ChildStdin::from_std).transpose()?,
        child.stdout.take().map(ChildStdout::from_std).transpose()?,
        child.stderr.take().map(ChildStderr::from_std).transpose()?,
    ))
}

impl Child {
    /// Takes over a child of the standard library, with its piped streams.
    ///
    /// # Errors
    /// Fails if a stream cannot be registered; the child runs on.
    pub fn from_std(mut child: process::Child) -> io::Result<Child> {
        let streams = take_streams(&mut child)?;
        Ok(Child::new(child, streams))
    }

    /// Like [`Child::from_std`], but a child whose streams cannot be registered is killed and reaped.
    pub(super) fn adopt_or_kill(mut child: process::Child) -> io::Result<Child> {
        match take_streams(&mut child) {
            Ok(streams) => Ok(Child::new(child, streams)),
            Err(error) => {
                let _ = child.kill();
                let _ = blocking(|| child.wait());
                Err(error)
            }
        }
    }

    fn new(child: process::Child, (stdin, stdout, stderr): Streams) -> Child {
        Child { stdin, stdout, stderr, child }
    }

    /// Returns the number of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills the child by SIGKILL. It must still be waited for. Does nothing if it was reaped already.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()
    }

    /// Closes the child's standard input and waits for its end.
    ///
    /// # Errors
    /// Returns the system's error; [`TimedOut`](io::ErrorKind::TimedOut) if a [`crate::timeout`] cut it off.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        drop(self.stdin.take());
        self.wait_until(None)
    }

    /// Returns the exit status if the child has ended, without waiting.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Waits for the end of the child, for at most `timeout`; `None` if it still runs. Leaves its standard input open.
    ///
    /// # Errors
    /// Returns the system's error; [`TimedOut`](io::ErrorKind::TimedOut) if a [`crate::timeout`] cut it off.
    pub fn wait_timeout(&mut self, timeout: Duration) -> io::Result<Option<ExitStatus>> {
        match self.wait_until(Some(now() + timeout.into())) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            ended => ended.map(Some),
        }
    }

    /// Waits for the end of the child by a descriptor of the process, which is readable from then on; fails with
    /// `WouldBlock` after `deadline`.
    fn wait_until(&mut self, deadline: Option<Ns>) -> io::Result<ExitStatus> {
        let pidfd = match self.end()? {
            End::Reaped(status) => return Ok(status),
            End::Awaited(pidfd) => pidfd,
        };
        pidfd.run_until(Interest::Read, deadline, io::ErrorKind::WouldBlock, |_| self.reap())
    }

    /// Closes the child's standard input and waits for its end; a future. One that is dropped leaves the child as it
    /// is: it can be waited for again.
    ///
    /// ```
    /// use heddle_rt::process::Command;
    /// use heddle_rt::timeout_async;
    /// use std::time::Duration;
    ///
    /// let mut child = Command::new("sleep").arg("1000").spawn()?;
    /// heddle_rt::block_on(async {
    ///     if timeout_async(Duration::from_millis(1), child.wait_async()).await.is_err() {
    ///         child.kill()?;
    ///     }
    ///     assert!(!child.wait_async().await?.success());
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns the system's error.
    pub async fn wait_async(&mut self) -> io::Result<ExitStatus> {
        drop(self.stdin.take());
        let pidfd = match self.end()? {
            End::Reaped(status) => return Ok(status),
            End::Awaited(pidfd) => pidfd,
        };
        pidfd.run_async(Interest::Read, |_| self.reap()).await
    }

    /// Reaps the child if it has ended, or returns what becomes readable when it does.
    fn end(&mut self) -> io::Result<End> {
        if let Some(status) = self.child.try_wait()? {
            return Ok(End::Reaped(status));
        }
        // The number is the child's until it is reaped.
        match pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty()) {
            // Not kept: the next wait may happen in another runtime.
            Ok(pidfd) => Polled::new(pidfd).map(End::Awaited),
            // Reaped behind our back: std reports that.
            Err(Errno::SRCH) => self.child.wait().map(End::Reaped),
            Err(error) => Err(error.into()),
        }
    }

    fn reap(&mut self) -> io::Result<ExitStatus> {
        self.child.try_wait()?.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }

    /// Closes the child's standard input, reads its piped streams to their ends, and waits for its end.
    ///
    /// # Errors
    /// Returns the system's error; [`TimedOut`](io::ErrorKind::TimedOut) if a [`crate::timeout`] cut it off.
    pub fn wait_with_output(mut self) -> io::Result<Output> {
        let mut outputs = self.outputs()?;
        outputs.any.run(Interest::Read, |_| outputs.read.more())?;
        let [stdout, stderr] = outputs.read.texts;
        Ok(Output { status: self.wait()?, stdout, stderr })
    }

    /// [`Child::wait_with_output`] as a future. One that is dropped drops the child and what was read.
    ///
    /// # Errors
    /// Returns the system's error.
    pub async fn wait_with_output_async(mut self) -> io::Result<Output> {
        let mut outputs = self.outputs()?;
        outputs.any.run_async(Interest::Read, |_| outputs.read.more()).await?;
        let [stdout, stderr] = outputs.read.texts;
        Ok(Output { status: self.wait_async().await?, stdout, stderr })
    }

    /// Closes the child's standard input and takes its piped streams.
    fn outputs(&mut self) -> io::Result<Outputs> {
        drop(self.stdin.take());
        Outputs::new([
            self.stdout.take().map(|ChildStdout(stream)| stream),
            self.stderr.take().map(|ChildStderr(stream)| stream),
        ])
    }
}

/// A child's end.
enum End {
    Reaped(ExitStatus),
    /// By a descriptor of the process, which is readable from its end on.
    Awaited(Polled<OwnedFd>),
}

/// Two streams that are read to their ends: in step, for a child that has filled one pipe goes on only once that is
/// read.
struct Outputs {
    /// Ready when one of the streams is.
    any: Polled<OwnedFd>,
    read: ReadInStep,
}

struct ReadInStep {
    streams: [Option<Polled<PipeReader>>; 2],
    open: [bool; 2],
    texts: [Vec<u8>; 2],
}

impl Outputs {
    fn new(streams: [Option<Polled<PipeReader>>; 2]) -> io::Result<Outputs> {
        let any = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for stream in streams.iter().flatten() {
            epoll::add(&any, stream, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        let open = streams.each_ref().map(Option::is_some);
        let read = ReadInStep { streams, open, texts: [const { Vec::new() }; 2] };
        Ok(Outputs { any: Polled::new(any)?, read })
    }
}

impl ReadInStep {
    /// Reads what the streams hold; fails with `WouldBlock` before they have ended.
    fn more(&mut self) -> io::Result<()> {
        for ((stream, open), text) in self.streams.iter().zip(&mut self.open).zip(&mut self.texts) {
            if let (Some(stream), true) = (stream, *open) {
                *open = read_available(stream.io(), text)?;
            }
        }
        if self.open == [false; 2] { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }
}

/// Appends to `text` what a non-blocking pipe holds; false at its end.
fn read_available(mut pipe: &PipeReader, text: &mut Vec<u8>) -> io::Result<bool> {
    match pipe.read_to_end(text) {
        Ok(_) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
        Err(error) => Err(error),
    }
}
