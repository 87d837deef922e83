//! Starting a program with its first thread in the enclave before the program's first instruction.
//!
//! Safe code may do nothing between `fork` and `exec`. So the guardian starts this very binary, which stops itself;
//! the stopped process is put into the enclave, continued, and becomes the program.

use super::GuardianError;
use super::event::{Event, Events};
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, getppid, kill_process,
    set_parent_process_death_signal, waitpid,
};
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A shell's exit code for a program that does not exist.
const NOT_FOUND: i32 = 127;
/// A shell's exit code for a program that cannot be started.
const NOT_EXECUTABLE: i32 = 126;

/// Starts `launcher` with `program` as its arguments, and waits until it has stopped itself.
///
/// # Errors
/// If there is no such program, or the launcher ends.
pub fn start_stopped(launcher: &[OsString], program: &[OsString]) -> Result<Pid, GuardianError> {
    check(program)?;
    let failed = || "cannot start the program".to_owned();
    let (name, arguments) =
        launcher.split_first().ok_or_else(|| GuardianError::Failed("no launcher".into()))?;
    let child = Command::new(name)
        .args(arguments)
        .args(program)
        .spawn()
        .map_err(GuardianError::system(failed()))?;
    let pid = Pid::from_child(&child);
    match waitpid(Some(pid), WaitOptions::UNTRACED).map_err(GuardianError::system(failed()))? {
        Some((_, status)) if status.stopped() => Ok(pid),
        _ => Err(GuardianError::Failed(failed())),
    }
}

/// Continues the stopped process, which becomes the program.
///
/// # Errors
/// If it is gone.
pub fn begin(pid: Pid) -> Result<(), GuardianError> {
    kill_process(pid, Signal::CONT).map_err(GuardianError::system("cannot start the program"))
}

/// Starts `program` after `put_in` has put it where it belongs, and waits for its end. Returns its exit code, as
/// shells report it.
///
/// # Errors
/// If there is no such program, or `put_in` fails.
pub fn run(
    launcher: &[OsString],
    program: &[OsString],
    put_in: impl FnOnce(u32) -> Result<(), GuardianError>,
) -> Result<u8, GuardianError> {
    let events = Events::new();
    super::signals::listen(&events)?;
    let pid = start_stopped(launcher, program)?;
    if let Err(error) = put_in(pid.as_raw_nonzero().get().cast_unsigned()) {
        // It has not become the program yet, so nothing is lost with it.
        let _ = kill_process(pid, Signal::KILL);
        return Err(error);
    }
    begin(pid)?;
    Ok(wait_for(pid, events))
}

/// Passes signals on until the program has ended.
fn wait_for(pid: Pid, mut events: Events) -> u8 {
    loop {
        match events.next(Duration::from_secs(1)) {
            Some(Event::Signal(signal, false)) => drop(kill_process(pid, signal)),
            _ => {
                if let Ok(Some((_, status))) = waitpid(Some(pid), WaitOptions::NOHANG) {
                    return code(status);
                }
            }
        }
    }
}

/// Returns the exit code of a program, as shells report it.
pub(super) fn code(status: WaitStatus) -> u8 {
    let number =
        status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal));
    number.and_then(|number| u8::try_from(number).ok()).unwrap_or(1)
}

/// Checks that the program exists, before anything is made for it.
///
/// # Errors
/// [`GuardianError::NoProgram`], [`GuardianError::NotExecutable`].
pub fn check(program: &[OsString]) -> Result<(), GuardianError> {
    let name = program
        .first()
        .ok_or_else(|| GuardianError::Usage("there is no program to start".into()))?;
    let shown = || name.to_string_lossy().into_owned();
    let candidates = candidates(Path::new(name));
    if candidates.iter().any(|path| is_executable(path)) {
        return Ok(());
    }
    match candidates.iter().any(|path| path.exists()) {
        true => Err(GuardianError::NotExecutable(shown(), io::ErrorKind::PermissionDenied.into())),
        false => Err(GuardianError::NoProgram(shown())),
    }
}

/// Returns the paths at which a program may be: its own path, or those in PATH.
fn candidates(name: &Path) -> Vec<PathBuf> {
    if name.components().count() != 1 || name.is_absolute() || name.starts_with(".") {
        return vec![name.to_owned()];
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    std::env::split_paths(&path).map(|folder| folder.join(name)).collect()
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// The launcher's main: stops, and becomes the program when it is continued. Returns an exit code only if it
/// cannot.
#[must_use]
pub fn launch(program: &[OsString]) -> i32 {
    let Some((name, arguments)) = program.split_first() else { return NOT_FOUND };
    let parent = getppid();
    // If the guardian is killed meanwhile, the launcher must not stay stopped forever.
    let waits = set_parent_process_death_signal(Some(Signal::KILL))
        .and_then(|()| kill_process(getpid(), Signal::STOP))
        .and_then(|()| set_parent_process_death_signal(None));
    if waits.is_err() {
        return NOT_EXECUTABLE;
    }
    let mut command = Command::new(name);
    command.args(arguments);
    // systemd names the process that its sockets are for; that was the guardian (sd_listen_fds).
    if std::env::var("LISTEN_PID").ok() == parent.map(|pid| pid.to_string()) {
        command.env("LISTEN_PID", getpid().to_string());
    }
    let error = command.exec();
    eprintln!("heddle: `{}` cannot be started: {error}", name.to_string_lossy());
    if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(name: &str) -> Result<(), GuardianError> {
        check(&[name.into()])
    }

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        checked("sh").unwrap();
        checked("/bin/sh").unwrap();
        assert!(matches!(checked("no-such-program-here"), Err(GuardianError::NoProgram(_))));
        assert!(matches!(checked("./no-such"), Err(GuardianError::NoProgram(_))));
        assert!(matches!(checked("/etc/passwd"), Err(GuardianError::NotExecutable(..))));
        assert!(matches!(checked("/etc"), Err(GuardianError::NotExecutable(..))));
        assert!(matches!(check(&[]), Err(GuardianError::Usage(_))));
    }
}
