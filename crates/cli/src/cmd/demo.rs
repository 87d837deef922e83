//! `heddle demo`: what preemption and steering do to the tail, and what would help a running server, in three minutes.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context;
use heddle_advise::Options;
use heddle_bench::kv::{self, KvOptions, StoreKind, Verdict};
use heddle_bench::steer;
use heddle_core::Ns;
use heddle_metrics::{Machine, Progress, Report, Table};
use heddle_observe::Target;

use super::advise;
use super::bench::kv_options::{self, Extent, KvArgs};
use crate::exit::{Outcome, Usage};
use crate::{interrupt, out};

/// Options of `heddle demo`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  heddle demo
  heddle demo --out /tmp/tails --store memory

Writes report.html (open it in a browser) and results.json. An earlier report is replaced; any
other file of that name is kept, and the command refuses to run.")]
pub struct Args {
    #[command(flatten)]
    kv: KvArgs,
    /// Folder for the report.
    #[arg(long, value_name = "DIR", default_value = "heddle-demo")]
    out: PathBuf,
    /// Run for a few seconds: a check that everything works, not figures to quote.
    #[arg(long)]
    quick: bool,
}

/// Twelve servers, 24 points of 2 s: about 80 s with starts and warm-ups; steering takes another 20 s.
fn extent(quick: bool) -> Extent {
    match quick {
        true => Extent { loads: vec![50.0], rounds: 1, seconds: 0.5 },
        false => Extent { loads: vec![50.0, 80.0], rounds: 3, seconds: 2.0 },
    }
}

/// Measures, prints the results, and writes the report.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    let options = kv_options::options(args.kv, extent(args.quick))?;
    // Claimed before minutes of measuring, not after.
    let files = Files::claim(&args.out)?;
    if options.store == StoreKind::Memory {
        eprintln!(
            "Note: the server uses the in-memory store. `make demo` builds with RocksDB and uses that."
        );
    }
    let stop = interrupt::flag()?;
    let mut verdict = kv_options::compare("demo", &options, &stop)?;
    let steering = match (args.quick, verdict.interrupted) {
        (false, false) => steering(&stop),
        _ => Err("Steering is left out: the run was cut short.".into()),
    };
    let advice = match &steering {
        Ok(_) => advice(&stop),
        Err(_) => Err("Advice is left out, as steering is.".into()),
    };
    let report = with_steering(kv::report(&options, &verdict), &mut verdict, &steering);
    let report = match &advice {
        Ok((sentence, table, _)) => report
            .section("What would help a running server", ADVICE)
            .text(sentence)
            .table(table.clone()),
        Err(reason) => report.notes(reason.as_str()),
    };
    files.write(report, &verdict)?;
    let said = match &advice {
        Ok((_, _, text)) => format!("{ADVICE}\n\n{text}"),
        Err(reason) => format!("{reason}\n"),
    };
    out::text(&summary(&options, &verdict, &steering, &said, &files.report))?;
    Ok(kv_options::outcome(&verdict))
}

/// Returns the second part, or why it is left out: it requires privileges that the first does not.
fn steering(stop: &AtomicBool) -> Result<steer::Demo, String> {
    let mut progress = Progress::new("demo: steering", steer::DEMO_STEPS);
    let demo = steer::demo(stop, &mut progress);
    progress.finish("measured");
    demo.unwrap_or_else(|error| Err(format!("Steering is left out: {error}.")))
}

/// How long the server of the third part is watched, and for how long it is loaded.
const WATCH: Duration = Duration::from_secs(15);
const LOAD: Ns = Ns::from_secs(17);

/// Returns the third part: a sentence and a table for the report, and the text; or why it is left out.
fn advice(stop: &AtomicBool) -> Result<(String, Table, String), String> {
    let left_out = |why: String| format!("Advice is left out: {why}.");
    let program = std::env::current_exe().map_err(|error| left_out(error.to_string()))?;
    let watched = steer::outside::under_load(&program, LOAD, stop, |pid, port| {
        let target = Target { processes: vec![pid], ports: vec![port] };
        std::thread::sleep(Duration::from_millis(500));
        advise::watch::record_until(&target, WATCH, stop, true)
    });
    let recording = watched
        .map_err(|error| left_out(error.to_string()))?
        .map_err(|error| left_out(error.to_string()))?;
    let recording = recording.ok_or_else(|| left_out("the run was cut short".into()))?;
    let slo = "p99(short) < 5ms".parse().map_err(|_| left_out("the limit".into()))?;
    let policies = vec!["sita:type-offset=2,scan=3".into()];
    let options = Options { slo: Some(slo), policies, ..Options::default() };
    let (advice, model) = heddle_advise::advise(&recording, &options, |_, _| {})
        .map_err(|error| left_out(error.to_string()))?;
    let text = advise::show::advice(&advice, &model, false, out::style());
    Ok((advise::show::observation(&advice), advise::show::table(&advice), text))
}

/// Explains the third part.
const ADVICE: &str = "The same server, in a process of its own that knows nothing of Heddle. `heddle advise` has \
    watched it from outside for 15 s, and has replayed what it saw under each option.";

/// Adds the second part and the results of both to the report.
fn with_steering(
    mut report: Report,
    verdict: &mut Verdict,
    steering: &Result<steer::Demo, String>,
) -> Report {
    match steering {
        Ok(demo) => {
            verdict.results.rows.extend(demo.rows.iter().cloned());
            report = report.section("Which socket gets a request", STEERING);
            report = report.text(demo.sentence.as_str());
            for table in &demo.tables {
                report = report.table(table.clone());
            }
        }
        Err(reason) => report = report.notes(reason.as_str()),
    }
    report.results(verdict.results.clone())
}

/// Explains the second part.
const STEERING: &str = "A server of six threads, each with its own socket on one port. The kernel's hash gives \
    requests to busy threads while others are idle; a policy in the kernel chooses instead. Times are stretched \
    by fifty, so that six threads can be seen on few cores.";

/// The two files, which may be written.
struct Files {
    report: PathBuf,
    results: PathBuf,
}

/// Text that only our reports and results contain.
const MARKS: [&str; 2] = ["heddle-results", "\"schema\""];

impl Files {
    fn claim(dir: &Path) -> anyhow::Result<Files> {
        fs::create_dir_all(dir).with_context(|| {
            format!("cannot create the folder {}; choose another with --out", dir.display())
        })?;
        let files = Files { report: dir.join("report.html"), results: dir.join("results.json") };
        for (path, mark) in [&files.report, &files.results].into_iter().zip(MARKS) {
            refuse_foreign(path, mark)?;
        }
        Ok(files)
    }

    fn write(&self, report: Report, verdict: &Verdict) -> anyhow::Result<()> {
        report.write(&self.report)?;
        Ok(verdict.results.write(&self.results)?)
    }
}

fn refuse_foreign(path: &Path, mark: &str) -> Result<(), Usage> {
    match fs::read(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Ok(bytes) if String::from_utf8_lossy(&bytes).contains(mark) => Ok(()),
        _ => Err(Usage(format!(
            "{} is not an earlier report of heddle: move it away, or choose another folder with --out",
            path.display()
        ))),
    }
}

/// The terminal's version: the same sentence and table as the page's.
fn summary(
    options: &KvOptions,
    verdict: &Verdict,
    steering: &Result<steer::Demo, String>,
    advice: &str,
    report: &Path,
) -> String {
    let mut text = String::new();
    verdict.headline.iter().for_each(|line| text += &format!("{line}\n\n"));
    verdict.table.iter().for_each(|table| text += &table.to_text(out::style()));
    match steering {
        Ok(demo) => {
            text += &format!("\n{STEERING}\n\n");
            demo.tables.iter().for_each(|table| text += &(table.to_text(out::style()) + "\n"));
            text += &format!("{}\n", demo.sentence);
        }
        Err(reason) => text += &format!("\n{reason}\n"),
    }
    text += &format!("\n{advice}");
    if verdict.interrupted {
        text += "Interrupted: the report contains what was measured until then.\n";
    }
    text += &format!("\nMeasured on {}.\n", Machine::detect().summary());
    kv::conditions(options).iter().for_each(|line| text += &format!("{line}\n"));
    let path = fs::canonicalize(report).unwrap_or_else(|_| report.to_owned());
    text + &format!("Report: {}\n", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_file_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report.html");
        fs::write(&path, "my thesis").unwrap();
        let error = Files::claim(dir.path()).err().unwrap();
        assert!(error.is::<Usage>() && error.to_string().contains("report.html"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "my thesis");
        fs::write(&path, heddle_metrics::Report::new("x").results(results()).to_html()).unwrap();
        fs::write(dir.path().join("results.json"), results().to_json()).unwrap();
        assert!(Files::claim(dir.path()).is_ok());
    }

    fn results() -> heddle_metrics::Results {
        heddle_metrics::Results::here(Vec::new())
    }

    #[test]
    fn the_demo_stays_under_three_minutes() {
        let Extent { loads, rounds, seconds } = extent(false);
        // Per server: the points with their warm-ups, a second to start, half a second of SCANs. Then GETs alone,
        // steering, and advice.
        let servers = f64::from(rounds) * kv::System::defaults().len() as f64;
        assert!(
            servers * (loads.len() as f64 * (seconds + 0.31) + 1.5)
                + f64::from(rounds) * 1.8
                + 8.0
                + 25.0
                + 20.0
                < 180.0
        );
    }
}
