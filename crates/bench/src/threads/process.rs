//! Runs one measurement in a process pinned to one CPU, with a time limit.

use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use heddle_sys::thread::{affinity, pin};

/// Longer than any budget: a child that exceeds it hangs.
const PATIENCE: Duration = Duration::from_secs(60);
/// Polling interval of the runner; long enough not to disturb the measured process.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Runs `command` on the last `cpus` CPUs that this process can use and returns the number it prints.
///
/// # Errors
/// What went wrong, in one line.
pub fn measure(command: Command, cpus: usize) -> Result<f64, String> {
    let printed = output(command, Some(cpus))?;
    printed.trim().parse().map_err(|_| format!("printed no number but `{}`", printed.trim()))
}

/// The `N` numbers that a child printed.
///
/// # Errors
/// Its actual output, in one line.
pub fn numbers<const N: usize>(printed: &str) -> Result<[f64; N], String> {
    let wrong = || format!("printed not {N} numbers but `{}`", printed.trim());
    let numbers: Result<Vec<f64>, _> = printed.split_whitespace().map(str::parse).collect();
    numbers.map_err(|_| wrong())?.try_into().map_err(|_| wrong())
}

/// Runs `command`, on the last `cpus` CPUs only if that is given, and returns what it prints.
///
/// # Errors
/// What went wrong, in one line.
pub fn output(command: Command, cpus: Option<usize>) -> Result<String, String> {
    let mut child = start(command, cpus).map_err(|error| format!("cannot start: {error}"))?;
    let status = wait(&mut child)?;
    let mut printed = String::new();
    let mut complaint = String::new();
    // The pipes can hold a child's whole output: one number, or the few lines of a panic.
    child.stdout.take().map(|mut pipe| pipe.read_to_string(&mut printed));
    child.stderr.take().map(|mut pipe| pipe.read_to_string(&mut complaint));
    if !status.success() {
        return Err(format!(
            "failed ({status}): {}",
            complaint.lines().next().unwrap_or("no message")
        ));
    }
    Ok(printed)
}

/// Affinity is inherited: a thread that pins itself before it starts the child pins every kind of peer alike.
fn start(mut command: Command, cpus: Option<usize>) -> io::Result<Child> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Some(cpus) = cpus else { return command.spawn() };
    let starter = thread::spawn(move || {
        let allowed = affinity()?;
        let first = allowed.len().checked_sub(cpus);
        pin(&allowed[first.ok_or_else(|| io::Error::other(too_many(cpus, allowed.len())))?..])?;
        command.spawn()
    });
    starter.join().unwrap_or_else(|_| Err(io::Error::other("the starting thread panicked")))
}

fn too_many(wanted: usize, allowed: usize) -> String {
    format!("{wanted} workers, but only {allowed} CPUs may be used")
}

fn wait(child: &mut Child) -> Result<ExitStatus, String> {
    let begin = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Err(error) => return Err(format!("cannot be waited for: {error}")),
            Ok(None) if begin.elapsed() > PATIENCE => break,
            Ok(None) => thread::sleep(LOOK_EVERY),
        }
    }
    // It may have just ended: neither result matters.
    let _ = child.kill();
    let _ = child.wait();
    Err(format!("not done after {} s", PATIENCE.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_number_is_read_and_anything_else_is_an_error() {
        assert_eq!(measure(shell("echo 24.5"), 1), Ok(24.5));
        assert_eq!(measure(shell("echo fast"), 1), Err("printed no number but `fast`".into()));
        assert!(measure(shell("echo broken >&2; exit 7"), 1).unwrap_err().ends_with("broken"));
        assert!(measure(Command::new("/nonexistent"), 1).unwrap_err().starts_with("cannot start"));
    }

    #[test]
    fn as_many_numbers_as_asked_for_are_read() {
        assert_eq!(numbers("1 2.5 -3\n"), Ok([1.0, 2.5, -3.0]));
        assert!(numbers::<3>("1 2").is_err() && numbers::<3>("1 2 x").is_err());
    }

    #[test]
    fn the_child_has_as_many_cpus_as_workers() {
        assert_eq!(measure(shell("nproc"), 1), Ok(1.0));
        let all = affinity().unwrap().len();
        assert_eq!(measure(shell("nproc"), all), Ok(all as f64));
        assert!(measure(shell("nproc"), all + 1).unwrap_err().contains("CPUs may be used"));
    }
}
