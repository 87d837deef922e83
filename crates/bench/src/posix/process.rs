//! Runs a program to its end and reads what it measured.

use std::collections::BTreeMap;
use std::io;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::kv::Bystanders;

/// Longer than any run: a program that exceeds it hangs.
const PATIENCE: Duration = Duration::from_secs(60);
/// Interval of checks: long, because the program is being measured.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// What a program printed, on its way to a success.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    /// On standard output.
    pub(crate) printed: String,
    /// On standard error.
    pub(crate) said: String,
    /// Its CPU time, user's and system's, with that of its threads and children.
    pub(crate) cpu: Duration,
    /// CPU time of all other processes meanwhile, as a share of one CPU.
    pub(crate) others: f64,
}

/// What a program measured.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    /// Its figures by name.
    pub(super) values: BTreeMap<String, f64>,
    /// CPU time of all other processes meanwhile, as a share of one CPU.
    pub(super) others: f64,
}

/// A program that is killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended, or does so now.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs `command` on `cpus` and reads the JSON object that it prints.
///
/// # Errors
/// The program fails, hangs or prints something else; `stop` is set ([`io::ErrorKind::Interrupted`]).
pub(super) fn measure(
    command: Command,
    cpus: &[u32],
    patience: Option<Duration>,
    stop: &AtomicBool,
) -> io::Result<Measured> {
    let Output { printed, others, .. } = run(command, cpus, patience, stop)?;
    let values = serde_json::from_str(printed.trim())
        .map_err(|_| io::Error::other(format!("printed no figures but `{}`", printed.trim())))?;
    Ok(Measured { values, others })
}

/// Runs `command` on `cpus`, to its end.
///
/// # Errors
/// The program fails or hangs; `stop` is set ([`io::ErrorKind::Interrupted`]).
pub(crate) fn run(
    command: Command,
    cpus: &[u32],
    patience: Option<Duration>,
    stop: &AtomicBool,
) -> io::Result<Output> {
    run_beside(command, cpus, patience, &[], stop)
}

/// The same beside other processes of the measurement.
///
/// # Errors
/// As for [`run`].
pub(crate) fn run_beside(
    command: Command,
    cpus: &[u32],
    patience: Option<Duration>,
    ours: &[u32],
    stop: &AtomicBool,
) -> io::Result<Output> {
    let mut program = Running(start(command, cpus)?);
    // Read while it runs: a pipe holds 64 KiB.
    let printed = read(program.0.stdout.take());
    let said = read(program.0.stderr.take());
    let ours = [ours, &[std::process::id(), program.0.id()]].concat();
    let bystanders = Bystanders::watch(&ours);
    let begin = Instant::now();
    let (status, cpu) = wait(&mut program.0, patience.unwrap_or(PATIENCE), stop)?;
    let others = bystanders.used().as_secs_f64() / begin.elapsed().as_secs_f64().max(1e-9);
    let text = |reader: Reader| reader.join().unwrap_or_else(|_| Ok(String::new()));
    let (printed, said) = (text(printed)?, text(said)?);
    if !status.success() {
        let line = said.lines().next().unwrap_or("no message");
        return Err(io::Error::other(format!("failed ({status}): {line}")));
    }
    Ok(Output { printed, said, cpu, others })
}

type Reader = thread::JoinHandle<io::Result<String>>;

/// Reads `pipe` to its end, beside the caller.
fn read(pipe: Option<impl io::Read + Send + 'static>) -> Reader {
    thread::spawn(move || {
        let mut text = String::new();
        pipe.map_or(Ok(0), |mut pipe| pipe.read_to_string(&mut text)).map(|_| text)
    })
}

/// A process inherits the affinity of the thread that starts it.
fn start(mut command: Command, cpus: &[u32]) -> io::Result<Child> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let pinned = || {
        heddle_sys::thread::pin(cpus)?;
        command.spawn()
    };
    thread::scope(|scope| scope.spawn(pinned).join())
        .unwrap_or_else(|_| Err(io::Error::other("the starting thread panicked")))
}

fn wait(
    child: &mut Child,
    patience: Duration,
    stop: &AtomicBool,
) -> io::Result<(ExitStatus, Duration)> {
    let begin = Instant::now();
    while begin.elapsed() < patience {
        if stop.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        match heddle_sys::child::time_if_ended(child.id())? {
            Some(cpu) => return Ok((child.wait()?, cpu)),
            None => thread::sleep(POLL_INTERVAL),
        }
    }
    Err(io::Error::other(format!("not done after {} s", patience.as_secs())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, stop: bool, patience: Option<Duration>) -> io::Result<Measured> {
        let cpus = heddle_sys::thread::affinity().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        measure(command, &cpus[..1], patience, &AtomicBool::new(stop))
    }

    #[test]
    fn figures_are_read_and_the_program_has_the_given_cpus() {
        let measured = shell("echo \"{\\\"cpus\\\": $(nproc), \\\"x\\\": 2.5}\"", false, None);
        let values = measured.unwrap().values;
        assert_eq!((values["cpus"], values["x"]), (1.0, 2.5));
    }

    #[test]
    fn the_cpu_time_is_known() {
        let cpus = heddle_sys::thread::affinity().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done"]);
        let output = run(command, &cpus[..1], None, &AtomicBool::new(false)).unwrap();
        assert!(output.cpu > Duration::ZERO);
    }

    #[test]
    fn a_program_may_print_more_than_a_pipe_holds() {
        let measured = shell(
            "printf '{\"x\": 1'; head -c 300000 /dev/zero | tr '\\0' ' '; echo '}'",
            false,
            None,
        );
        assert_eq!(measured.unwrap().values["x"], 1.0);
    }

    /// Invariant I4.
    #[test]
    fn programs_that_fail_hang_or_print_something_else_say_so() {
        let error = |script, patience| shell(script, false, patience).unwrap_err().to_string();
        assert!(error("echo broken >&2; exit 7", None).ends_with("broken"));
        assert!(error("echo fast", None).contains("`fast`"));
        assert!(error("sleep 600", Some(Duration::ZERO)).starts_with("not done"));
    }

    #[test]
    fn a_stop_does_not_wait_for_the_program() {
        let error = shell("sleep 600", true, None).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Interrupted);
    }
}
