//! The process that cleans up if guardian and agent are both killed. It only waits: a killed guardian's enclave is
//! undone by its agent, and what neither can undo would stay until the next `heddle agent status`.

use super::folder::{Enclaves, Folder};
use super::keeper::Backends;
use super::{GuardianError, clean, cleaned, tasks};
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

/// How long an agent may take to undo its guardian's enclave. Threads that keep creating threads can delay it.
const INHERITING: Duration = Duration::from_secs(10);
/// How long to try to clean up. After that, the next `heddle agent status` does it.
const CLEANING: Duration = Duration::from_secs(60);
/// How often to check.
const CHECK_EVERY: Duration = Duration::from_millis(50);

/// The cleaner process, as its guardian holds it.
#[derive(Debug)]
pub(super) struct Cleaner {
    child: Child,
    // Its end tells the process that the guardian has ended.
    _life: Option<ChildStdin>,
}

impl Cleaner {
    /// Starts `command` for the enclave in `folder`.
    ///
    /// # Errors
    /// If the process cannot be started.
    pub fn start(command: &[OsString], folder: &Folder) -> Result<Cleaner, GuardianError> {
        let (name, arguments) =
            command.split_first().ok_or_else(|| GuardianError::Failed("no cleaner".into()))?;
        let mut child = Command::new(name)
            .args(arguments)
            .arg(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            // Ctrl-C in the terminal must not reach it.
            .process_group(0)
            .spawn()
            .map_err(GuardianError::system("cannot start the cleaner process"))?;
        let life = child.stdin.take();
        Ok(Cleaner { child, _life: life })
    }

    /// Returns the process's number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends the process: there is nothing to clean up.
    pub fn end(mut self) {
        // It may have been killed and collected already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The main of the cleaner process: waits for the end of its guardian, which holds its standard input, and cleans
/// up what is left in `folder` unless the agent does.
pub fn cleaner_process(folder: &Path, backends: &dyn Backends) {
    // Only the end of file ever comes.
    let _ = io::copy(&mut io::stdin(), &mut io::sink());
    let (folder, begin) = (Folder::at(folder), Instant::now());
    while folder.path().exists() && begin.elapsed() < CLEANING {
        if begin.elapsed() >= INHERITING || !has_agent(&folder) {
            for done in clean(&Enclaves::here(), backends) {
                eprintln!("heddle: {}", cleaned(&done));
            }
        }
        std::thread::sleep(CHECK_EVERY);
    }
}

fn has_agent(folder: &Folder) -> bool {
    let record = folder.clone().entry().map(|listed| listed.record);
    record.is_some_and(|record| {
        record.agent.is_some_and(|agent| tasks::is_alive(agent, record.agent_began))
    })
}
