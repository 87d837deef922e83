//! The watch of root's deployments: a child, `heddle apply --watch`, which deploys again what the restart of a
//! service has ended. It is a client of heddled like any other. heddled itself reads no deployment, looks into no
//! process and copies no socket: what it could do on a user's behalf stays as little as without deployments
//! (`docs/design/deploy.md`, "Who watches").

use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use crate::options::Options;

/// A watch that ran for this long did not fail at its start.
const STARTED: Duration = Duration::from_secs(10);
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Starts the watch in a child, and again whenever it ends. It ends with heddled, by the end of its standard input.
/// Call this before there are other threads: they then lack the right to trace processes, which only the child needs.
pub fn start(options: &Options) -> anyhow::Result<()> {
    if !options.deployments {
        return Ok(());
    }
    if !rustix::process::geteuid().is_root() {
        bail!("--deployments takes root: only root's deployments are watched");
    }
    let program =
        std::env::current_exe().context("no path of this program")?.with_file_name("heddle");
    if !program.exists() {
        bail!(
            "--deployments runs {}, which does not exist: install it beside heddled",
            program.display()
        );
    }
    let (socket, state) = (options.socket.clone(), options.state.clone());
    let run = move || watch(&program, &socket, &state);
    Builder::new().name("deployments".into()).spawn(run).context("cannot start a thread")?;
    drop_tracing().context("cannot give up the right to trace processes")
}

fn watch(program: &PathBuf, socket: &PathBuf, state: &PathBuf) {
    let mut failures = 0;
    loop {
        let begin = Instant::now();
        let mut command = Command::new(program);
        command.args(["apply", "--watch", "--until-input-ends"]);
        command.env("HEDDLE_SOCKET", socket).env("HEDDLE_RUN", state);
        match run(&mut command) {
            Ok(status) => {
                eprintln!("heddled: the watch of deployments ended ({status}) and is started again")
            }
            Err(error) => eprintln!("heddled: cannot start {}: {error}", program.display()),
        }
        failures = if begin.elapsed() > STARTED { 0 } else { failures + 1 };
        thread::sleep(Duration::from_secs(1 << failures.min(6)).min(LONGEST_WAIT));
    }
}

/// Runs the command to its end. It has a pipe of ours as its standard input, which closes with us.
fn run(command: &mut Command) -> io::Result<ExitStatus> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
    // `wait` would close it.
    let _input = child.stdin.take();
    child.wait()
}

/// Takes from this thread, and from those that it starts, the right to trace processes, and with it to copy sockets.
fn drop_tracing() -> io::Result<()> {
    let mut sets = capabilities(None)?;
    for set in [&mut sets.effective, &mut sets.permitted, &mut sets.inheritable] {
        set.remove(CapabilitySet::SYS_PTRACE);
    }
    Ok(set_capabilities(None, sets)?)
}
