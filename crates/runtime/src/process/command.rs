//! How a child process is started.

use super::{Child, ExitStatus, Output, Stdio};
use crate::blocking;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process;

/// A program to run, with its arguments and surroundings: `std::process::Command`, which starts a [`Child`] of this
/// crate.
///
/// ```
/// use heddle_rt::process::Command;
///
/// let status = Command::new("sh").args(["-c", "exit $CODE"]).env("CODE", "7").status()?;
/// assert_eq!(status.code(), Some(7));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Command {
    command: process::Command,
    /// Which of stdin, stdout and stderr the program has set.
    is_set: [bool; 3],
}

impl Command {
    /// Returns a command for `program`, which is searched in `PATH` if it is a bare name.
    pub fn new(program: impl AsRef<OsStr>) -> Command {
        process::Command::new(program).into()
    }

    /// Adds an argument.
    pub fn arg(&mut self, arg: impl AsRef<OsStr>) -> &mut Command {
        self.command.arg(arg);
        self
    }

    /// Adds arguments.
    pub fn args(&mut self, args: impl IntoIterator<Item: AsRef<OsStr>>) -> &mut Command {
        self.command.args(args);
        self
    }

    /// Sets an environment variable.
    pub fn env(&mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> &mut Command {
        self.command.env(key, value);
        self
    }

    /// Sets environment variables.
    pub fn envs<K: AsRef<OsStr>, V: AsRef<OsStr>>(
        &mut self,
        vars: impl IntoIterator<Item = (K, V)>,
    ) -> &mut Command {
        self.command.envs(vars);
        self
    }

    /// Removes an environment variable.
    pub fn env_remove(&mut self, key: impl AsRef<OsStr>) -> &mut Command {
        self.command.env_remove(key);
        self
    }

    /// Removes all environment variables.
    pub fn env_clear(&mut self) -> &mut Command {
        self.command.env_clear();
        self
    }

    /// Sets the working directory.
    pub fn current_dir(&mut self, dir: impl AsRef<Path>) -> &mut Command {
        self.command.current_dir(dir);
        self
    }

    /// Sets the standard input. By default [`Command::output`] gives an empty one; other children inherit.
    pub fn stdin(&mut self, stdin: impl Into<Stdio>) -> &mut Command {
        self.command.stdin(stdin);
        self.is_set[0] = true;
        self
    }

    /// Sets the standard output. By default [`Command::output`] captures it; other children inherit.
    pub fn stdout(&mut self, stdout: impl Into<Stdio>) -> &mut Command {
        self.command.stdout(stdout);
        self.is_set[1] = true;
        self
    }

    /// Sets the standard error. By default [`Command::output`] captures it; other children inherit.
    pub fn stderr(&mut self, stderr: impl Into<Stdio>) -> &mut Command {
        self.command.stderr(stderr);
        self.is_set[2] = true;
        self
    }

    /// Starts the child.
    ///
    /// # Errors
    /// Returns the system's error: [`NotFound`](io::ErrorKind::NotFound) if there is no such program.
    pub fn spawn(&mut self) -> io::Result<Child> {
        Child::adopt_or_kill(blocking(|| self.command.spawn())?)
    }

    /// Starts the child and waits for its end; returns its exit status.
    ///
    /// # Errors
    /// As [`Command::spawn`] and [`Child::wait`]. A child that a time limit cut off runs on.
    pub fn status(&mut self) -> io::Result<ExitStatus> {
        self.spawn()?.wait()
    }

    /// Starts the child, waits for its end and returns all that it wrote.
    ///
    /// # Errors
    /// As [`Command::spawn`] and [`Child::wait_with_output`]. A child that a time limit cut off runs on.
    pub fn output(&mut self) -> io::Result<Output> {
        self.spawn_captured()?.wait_with_output()
    }

    /// [`Command::status`] as a future. If it is dropped, the child runs on.
    ///
    /// # Errors
    /// As [`Command::spawn`] and [`Child::wait_async`].
    pub async fn status_async(&mut self) -> io::Result<ExitStatus> {
        self.spawn()?.wait_async().await
    }

    /// [`Command::output`] as a future. If it is dropped, the child runs on.
    ///
    /// # Errors
    /// As [`Command::spawn`] and [`Child::wait_with_output_async`].
    pub async fn output_async(&mut self) -> io::Result<Output> {
        self.spawn_captured()?.wait_with_output_async().await
    }

    /// Starts the child; streams that the program has not set are captured.
    fn spawn_captured(&mut self) -> io::Result<Child> {
        self.set_defaults(Stdio::null, Stdio::piped);
        let child = self.spawn();
        self.set_defaults(Stdio::inherit, Stdio::inherit);
        child
    }

    /// Sets the streams that the program has not set.
    fn set_defaults(&mut self, input: fn() -> Stdio, output: fn() -> Stdio) {
        let [stdin, stdout, stderr] = self.is_set;
        if !stdin {
            self.command.stdin(input());
        }
        if !stdout {
            self.command.stdout(output());
        }
        if !stderr {
            self.command.stderr(output());
        }
    }

    /// Returns the standard library's command, to look at.
    pub fn as_std(&self) -> &process::Command {
        &self.command
    }

    /// Returns the standard library's command, for what [`CommandExt`](std::os::unix::process::CommandExt) sets.
    /// Streams that are set there are not known to [`Command::output`].
    pub fn as_std_mut(&mut self) -> &mut process::Command {
        &mut self.command
    }
}

/// [`Command::output`] takes the streams of the command for not set.
impl From<process::Command> for Command {
    fn from(command: process::Command) -> Command {
        Command { command, is_set: [false; 3] }
    }
}
