//! What the programs print.

use heddle_core::Ns;
use heddle_metrics::Histogram;
use serde::Deserialize;

/// What a kernel or a program took and what it computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Timing {
    /// The least CPU time among the runs: noise only adds time.
    pub(super) least: Ns,
    pub(super) checksum: String,
}

/// Reads a line for each run, its nanoseconds and its checksum.
///
/// # Errors
/// What it is instead.
pub(super) fn kernel_runs(printed: &str) -> Result<Timing, String> {
    let wrong = || format!("printed no times and checksums but `{}`", printed.trim());
    let run = |line: &str| {
        let (ns, checksum) = line.split_once(' ')?;
        Some(Timing { least: Ns(ns.parse().ok()?), checksum: checksum.to_owned() })
    };
    let runs: Option<Vec<Timing>> = printed.lines().map(run).collect();
    let runs = runs.ok_or_else(wrong)?;
    if runs.is_empty() { Err(wrong()) } else { least(runs) }
}

/// Returns the least of several runs of the same.
///
/// # Errors
/// There is none, or they have not computed the same.
pub(super) fn least(runs: Vec<Timing>) -> Result<Timing, String> {
    let least = runs.iter().min_by_key(|run| run.least).ok_or("did not run")?.clone();
    match runs.iter().find(|run| run.checksum != least.checksum) {
        Some(other) => {
            Err(format!("printed two checksums, {} and {}", least.checksum, other.checksum))
        }
        None => Ok(least),
    }
}

/// Times that a program has recorded by the time stamp counter.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Recorded {
    pub(super) times: Histogram,
    /// The same with what the machine took; of turns only.
    pub(super) whole: Histogram,
    /// Times that were left out, because the machine had the CPU, as a share of all.
    pub(super) lost: f64,
    /// What the machine took and the times leave out, as a share of the whole run.
    pub(super) stolen: f64,
}

/// What `recorder.c` and `turns.c` print.
#[derive(Deserialize)]
struct Ticks {
    ticks: u64,
    ns: u64,
    #[serde(default)]
    lost: u64,
    #[serde(default)]
    stolen: u64,
    buckets: Vec<(u64, u64)>,
    #[serde(default)]
    whole: Vec<(u64, u64)>,
}

/// Reads recorded times.
///
/// # Errors
/// What it is instead.
pub(super) fn recorded(printed: &str) -> Result<Recorded, String> {
    let ticks: Ticks = serde_json::from_str(printed.trim()).map_err(|error| {
        let begin: String = printed.trim().chars().take(60).collect();
        format!("printed no recorded times but `{begin}`: {error}")
    })?;
    if ticks.ticks == 0 || ticks.ns == 0 {
        return Err("the time stamp counter stands still".into());
    }
    let ns_per_tick = ticks.ns as f64 / ticks.ticks as f64;
    let histogram = |buckets: Vec<(u64, u64)>| {
        let mut times = Histogram::new();
        for (highest, count) in buckets {
            times.record_n(Ns((highest as f64 * ns_per_tick).round() as u64), count);
        }
        times
    };
    let (times, whole) = (histogram(ticks.buckets), histogram(ticks.whole));
    let all = times.count() + ticks.lost;
    let lost = ticks.lost as f64 / all.max(1) as f64;
    Ok(Recorded { lost, stolen: ticks.stolen as f64 / ticks.ticks as f64, times, whole })
}

/// The CPU time of two threads' work, and how often they were preempted meanwhile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Worked {
    /// The least CPU time of the process among the repeats.
    pub(super) cpu_ns: f64,
    /// Preemptions of one repeat.
    pub(super) preemptions: f64,
}

#[derive(Deserialize)]
struct Work {
    cpu_ns: f64,
    repeats: f64,
}

/// Reads what `turns work` printed, and the report of `heddle run --report` on standard error.
///
/// # Errors
/// What it is instead.
pub(super) fn worked(printed: &str, said: &str) -> Result<Worked, String> {
    let work: Work = serde_json::from_str(printed.trim())
        .map_err(|error| format!("printed no work but `{}`: {error}", printed.trim()))?;
    let preemptions = preemptions(said)
        .ok_or("without a line `preemptions` in the report of heddle run; was it preloaded?")?;
    Ok(Worked { cpu_ns: work.cpu_ns, preemptions: preemptions / work.repeats })
}

/// The line `  preemptions      123` of the report.
fn preemptions(said: &str) -> Option<f64> {
    said.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some("preemptions")).then(|| words.next()?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_time_counts_and_the_checksum_is_one() {
        let run = kernel_runs("30 0a\n20 0a\n25 0a\n").unwrap();
        assert_eq!((run.least, &*run.checksum), (Ns(20), "0a"));
        for (printed, says) in [
            ("", "printed no times"),
            ("fast\n", "but `fast`"),
            ("1 0a\nx 0a\n", "printed no times"),
            ("1 0a\n2 0b\n", "two checksums, 0a and 0b"),
        ] {
            assert!(kernel_runs(printed).unwrap_err().contains(says), "{printed}");
        }
    }

    #[test]
    fn ticks_become_nanoseconds_and_what_was_left_out_is_a_share() {
        let printed = "{\"ticks\": 3000, \"ns\": 1000, \"lost\": 1, \"lost_ticks\": 9, \
                       \"stolen\": 300, \"buckets\": [[300, 98], [30000, 1]], \
                       \"whole\": [[600, 1]]}\n";
        let recorded = recorded(printed).unwrap();
        assert_eq!(recorded.times.count(), 99);
        assert_eq!(recorded.times.p50(), Ns(100));
        assert_eq!(recorded.times.max(), Ns(10_000));
        assert_eq!((recorded.lost, recorded.stolen), (0.01, 0.1));
        assert_eq!(recorded.whole.max(), Ns(200));
    }

    #[test]
    fn what_is_no_recording_is_an_error() {
        let error = |printed| recorded(printed).unwrap_err();
        assert!(error("broken").contains("but `broken`"));
        assert!(error("{\"ticks\": 0, \"ns\": 1, \"buckets\": []}").contains("stands still"));
        let empty = recorded("{\"ticks\": 1, \"ns\": 1, \"buckets\": []}").unwrap();
        assert!(empty.times.is_empty() && empty.lost == 0.0);
    }

    #[test]
    fn preemptions_are_those_of_one_repeat() {
        let said = "heddle: a warning\n\nheddle run: round-robin\n  switches                  40002  \n  \
                    preemptions               40000  \n  signals for them              0  \n";
        let worked = worked("{\"cpu_ns\": 5000, \"repeats\": 4}", said).unwrap();
        assert_eq!(worked, Worked { cpu_ns: 5000.0, preemptions: 10_000.0 });
    }

    #[test]
    fn work_without_a_report_is_an_error() {
        let printed = "{\"cpu_ns\": 5000, \"repeats\": 4}";
        assert!(worked(printed, "").unwrap_err().contains("preloaded"));
        assert!(worked("", "preemptions 1").unwrap_err().contains("no work"));
    }
}
