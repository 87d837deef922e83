//! The scheduler's cost in CPU time: goroutines of one program that compute on one processor (Aspen, appendix
//! B), call C, exchange messages over TCP, or wait for a ticker.

use super::options::CpuOptions;
use super::rows::{BEST, COST};
use super::system::System;
use super::targets;
use super::toolchain::Toolchain;
use crate::suite::PartResult;
use heddle_metrics::{Better, Collector, Progress, Row, Run};
use serde::Deserialize;
use std::io::{self, Read as _};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The program.
const PROGRAM: &str = "micro";

/// A line that the program prints.
#[derive(Deserialize)]
struct Line {
    case: String,
    cpu_ns: u64,
}

/// Measures in interleaved rounds.
///
/// # Errors
/// A program that cannot be built or fails.
pub(super) fn run(
    options: &CpuOptions,
    toolchain: &Toolchain,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<PartResult> {
    progress.step("cpu: builds");
    let cases = cases(options, toolchain, stop)?;
    let mut collect = Collector::new();
    for round in 0..options.rounds {
        progress.step(&format!("cpu, round {} of {}", round + 1, options.rounds));
        for case in &cases {
            match measure_case(options, toolchain, case, round, stop) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => break,
                times => add(&mut collect, case, &times?),
            }
        }
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    let rows: Vec<Row> = collect.into_rows().into_iter().map(directed).collect();
    let targets = targets::costs(&options.systems, &rows);
    Ok(PartResult { targets, rows, ..PartResult::default() })
}

fn cases(
    options: &CpuOptions,
    toolchain: &Toolchain,
    stop: &AtomicBool,
) -> io::Result<Vec<String>> {
    // Both are built now, not in the first round.
    for system in &options.systems {
        toolchain.program(PROGRAM, system)?;
    }
    let mut command = toolchain.run(PROGRAM, options.systems.first().unwrap_or(&System::STOCK))?;
    let listed: Vec<String> =
        output(command.arg("-list"), stop)?.lines().map(String::from).collect();
    match options.cases.iter().find(|case| !listed.contains(case)) {
        Some(wrong) => {
            Err(io::Error::other(format!("no case `{wrong}`; there are {}", listed.join(", "))))
        }
        None if options.cases.is_empty() => Ok(listed),
        None => Ok(options.cases.clone()),
    }
}

/// The least CPU time of each system, in nanoseconds; each round starts with another.
fn measure_case(
    options: &CpuOptions,
    toolchain: &Toolchain,
    case: &str,
    round: u32,
    stop: &AtomicBool,
) -> io::Result<Vec<(System, f64)>> {
    let systems = &options.systems;
    let turn = |turn: usize| {
        let system = systems[(turn + round as usize) % systems.len()];
        Ok((system, best(options, toolchain, &system, case, stop)?))
    };
    (0..systems.len()).map(turn).collect()
}

fn best(
    options: &CpuOptions,
    toolchain: &Toolchain,
    system: &System,
    case: &str,
    stop: &AtomicBool,
) -> io::Result<f64> {
    let mut command = toolchain.run(PROGRAM, system)?;
    command.args(["-case", case, "-goroutines", &options.goroutines.to_string()]);
    command.args(["-rounds", &options.runs.to_string()]);
    let text = confined(options, || output(&mut command, stop))?;
    least(case, options.runs, &text)
        .map_err(|why| io::Error::other(format!("{PROGRAM}, {system}: {why}")))
}

/// A process inherits its parent's affinity; the parent only waits.
fn confined<T>(options: &CpuOptions, what: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let Some(cpus) = &options.cpus else { return what() };
    let allowed = heddle_sys::thread::affinity()?;
    heddle_sys::thread::pin(&cpus.server)?;
    let done = what();
    heddle_sys::thread::pin(&allowed)?;
    done
}

/// The least CPU time of the lines, one per requested run.
fn least(case: &str, runs: u32, text: &str) -> Result<f64, String> {
    let read = |line: &str| serde_json::from_str(line).map_err(|error| format!("{line}: {error}"));
    let lines: Vec<Line> = text.lines().map(read).collect::<Result<_, _>>()?;
    if lines.len() != runs as usize
        || lines.iter().any(|line| line.case != case || line.cpu_ns == 0)
    {
        return Err(format!("asked for {runs} runs of {case}, said: {text}"));
    }
    Ok(lines.iter().map(|line| line.cpu_ns as f64).fold(f64::INFINITY, f64::min))
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

/// Interval of checks for `stop`: long, because the program is being measured.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Returns its output, a few lines; kills it if `stop` is set.
fn output(command: &mut Command, stop: &AtomicBool) -> io::Result<String> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Running(command.spawn()?);
    let status = loop {
        if stop.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        match child.0.try_wait()? {
            Some(status) => break status,
            None => std::thread::sleep(POLL_INTERVAL),
        }
    };
    let (mut said, mut complaint) = (String::new(), String::new());
    child.0.stdout.take().map_or(Ok(0), |mut pipe| pipe.read_to_string(&mut said))?;
    child.0.stderr.take().map_or(Ok(0), |mut pipe| pipe.read_to_string(&mut complaint))?;
    if status.success() {
        return Ok(said);
    }
    Err(io::Error::other(format!("{PROGRAM} failed ({status}): {}", complaint.trim())))
}

fn add(collect: &mut Collector, case: &str, times: &[(System, f64)]) {
    let stock = times.iter().find(|(system, _)| *system == System::STOCK).map(|(_, time)| *time);
    for (system, time) in times {
        let name = system.to_string();
        collect.add(&name, case, BEST, "ns", Run::ok(*time));
        if let Some(stock) = stock.filter(|_| *system != System::STOCK) {
            collect.add(&name, case, COST, "%", Run::ok((time / stock - 1.0) * 100.0));
        }
    }
}

fn directed(row: Row) -> Row {
    row.with_better(Better::Lower)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_run_counts_and_all_must_be_there() {
        let line = |ns: u64| {
            format!(
                "{{\"case\":\"sort\",\"goroutines\":4,\"ns\":900,\"cpu_ns\":{ns},\"checksum\":\"0f\"}}\n"
            )
        };
        let text = line(300) + &line(200);
        assert_eq!(least("sort", 2, &text), Ok(200.0));
        assert!(least("sort", 3, &text).is_err(), "a run is missing");
        assert!(least("map", 2, &text).is_err(), "another case");
        assert!(least("sort", 1, "sort: 200").is_err(), "not JSON");
    }

    #[test]
    fn costs_are_against_stock_of_the_same_round() {
        let mut collect = Collector::new();
        add(&mut collect, "sort", &[(System::OFF, 102.0), (System::STOCK, 100.0)]);
        let rows = collect.into_rows();
        let cost = rows.iter().find(|row| row.metric == COST).unwrap();
        assert_eq!((cost.system.as_str(), cost.value.round()), ("heddle-off", 2.0));
        assert_eq!(rows.iter().filter(|row| row.metric == BEST).count(), 2);
    }

    #[test]
    fn a_stop_does_not_wait_for_the_program() {
        let error = output(Command::new("sleep").arg("600"), &AtomicBool::new(true)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Interrupted);
    }

    #[test]
    fn a_program_that_fails_says_why() {
        let mut command = Command::new("sh");
        let error =
            output(command.args(["-c", "echo wrong sum >&2; exit 1"]), &AtomicBool::new(false));
        assert!(error.unwrap_err().to_string().contains("wrong sum"));
    }
}
