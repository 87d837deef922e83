//! Starting a broker in the background, for `heddle run --share`.
//!
//! The program that comes after must not have the broker as a child, for which it could wait. So there is a process
//! between them, `heddle share serve --detached`: it starts the broker, waits until that answers, and ends.

use std::env;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use heddle_broker::{Owner, query};

use super::Site;
use crate::exit::{Outcome, Usage};
use crate::out::printable;

/// How long a broker may take until it answers.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often it is looked for.
const LOOK: Duration = Duration::from_millis(5);

/// How long a broker that was started so goes on without applications.
const UNTIL_IDLE: &str = "10s";

/// Returns the socket of the broker of `file`, which is started if none answers.
///
/// # Errors
/// [`Usage`], with what the broker printed last.
pub fn find_or_start(file: &Path) -> anyhow::Result<PathBuf> {
    let site = Site::of(file)?;
    if let Ok((socket, _)) = site.find() {
        return Ok(socket);
    }
    let failed = |what: &str| {
        Usage(format!("cannot start the broker of {}: {}", printed(file), printable(what)))
    };
    let begin = || -> anyhow::Result<bool> {
        if site.own.starts_with(Owner::current().folder()) {
            Owner::current().make_folder()?;
        }
        let mut command = Command::new(env::current_exe()?);
        command.args(["share", "serve", "--detached", "--"]).arg(&site.file);
        let log = open_log(&log_of(&site.own))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Ok(command.status()?.success())
    };
    match begin() {
        Err(error) => Err(failed(&format!("{error:#}")).into()),
        Ok(true) => Ok(site.find().map(|(socket, _)| socket)?),
        Ok(false) => Err(failed(&last_line(&log_of(&site.own))).into()),
    }
}

/// Starts the broker of `file` in a session of its own, and waits until it answers.
///
/// # Errors
/// If it does not; it has printed why to the same standard error.
pub fn from_background(file: &Path) -> anyhow::Result<Outcome> {
    let site = Site::of(file)?;
    // Not the terminal's, whose end would be the broker's.
    rustix::process::setsid().context("cannot leave the terminal")?;
    // What the caller's shell has open stays the caller's.
    let _ = heddle_sys::fork::close_on_exec_from(3);
    let mut command = Command::new(env::current_exe()?);
    command.args(["share", "serve", "--until-idle", UNTIL_IDLE, "--"]).arg(&site.file);
    let mut broker = command.current_dir("/").spawn().context("cannot start the broker")?;
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        if query(&site.own).is_ok() {
            return Ok(Outcome::Done);
        }
        // It has printed why.
        if broker.try_wait()?.is_some() {
            return Ok(Outcome::Program(1));
        }
        sleep(LOOK);
    }
    let _ = broker.kill();
    bail!("the broker does not answer within {} s", PATIENCE.as_secs())
}

/// Returns where a broker that was started here prints.
fn log_of(socket: &Path) -> PathBuf {
    let mut name = socket.as_os_str().to_owned();
    name.push(".log");
    name.into()
}

fn open_log(path: &Path) -> io::Result<File> {
    let no_links = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    let mut options = File::options();
    let file = options.create(true).append(true).mode(0o600).custom_flags(no_links).open(path)?;
    file.set_len(0)?;
    Ok(file)
}

fn last_line(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it printed nothing");
    last.trim_start_matches("heddle: ").into()
}

fn printed(file: &Path) -> String {
    printable(&file.to_string_lossy())
}
