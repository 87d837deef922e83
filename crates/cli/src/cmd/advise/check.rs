//! `heddle advise check`: on and off windows in turns.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use anyhow::Context as _;
use heddle_advise::{Advice, Change, Measured, Prediction, Trial};
use heddle_metrics::Progress;
use heddle_observe::Target;

use super::change::Applicable;
use super::guard::Guard;
use super::saved::Saved;
use super::{show, watch};
use crate::exit::{Outcome, Usage};
use crate::{interrupt, out};

/// Time after a change that does not count: requests that were queued before it are served.
const SETTLE: Duration = Duration::from_millis(500);

/// Options of `heddle advise check`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sudo heddle advise check
  sudo heddle advise check --option 2 --pairs 6 --window 20s
  sudo heddle advise check --json > check.json

It checks the last advice on this machine. The change is applied and undone in turns, and undone
at the end, also if this command is killed. Windows in which the load or the neighbours changed do
not count.
Exit code 0: as predicted, or better; 1: worse; 3: unclear.")]
pub struct Args {
    /// The option to check, by its number in the table [default: the best that can be applied now].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    option: Option<u64>,
    /// Pairs of windows, one without the change and one with it.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(2..=1000))]
    pairs: u64,
    /// How long a window is.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = watch::duration)]
    window: Duration,
    /// The advice, if it is not the last one on this machine.
    #[arg(long, value_name = "FILE")]
    advice: Option<PathBuf>,
    /// Write the windows, with every response time, to a file.
    #[arg(long, value_name = "FILE", value_parser = out::new_file)]
    save: Option<PathBuf>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// Checks.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let saved = Saved::read(args.advice.as_deref())?;
    let prediction = chosen(&saved, args.option)?;
    let change = Applicable::new(&prediction.change)?;
    let stop = interrupt::flag()?;
    let guard = Guard::start(&change)?;
    let measured = windows(args, &saved, &change, guard, &stop);
    let Some(trial) = measured? else { return Ok(Outcome::Interrupted) };
    if let Some(file) = &args.save {
        std::fs::write(file, serde_json::to_vec(&trial)?)
            .with_context(|| file.display().to_string())?;
    }
    let outcome = trial.outcome(saved.advice.quantile, prediction.ratio.value);
    match args.json {
        true => out::json(&serde_json::json!({
            "schema": 1, "change": prediction.change, "predicted": prediction.ratio, "outcome": outcome,
        }))?,
        false => out::text(&show::outcome(&saved.advice, prediction, &outcome))?,
    }
    Ok(show::exit(&outcome.verdict))
}

fn chosen(saved: &Saved, number: Option<u64>) -> anyhow::Result<&Prediction> {
    let options = &saved.advice.options;
    if saved.advice.declined.is_some() {
        return Err(Usage(
            "the last `heddle advise` declined, so there is nothing to check".into(),
        )
        .into());
    }
    let Some(number) = number else {
        let best = saved.advice.best();
        return Ok(best.ok_or_else(|| {
            Usage("the advice was to do nothing, so there is nothing to check".into())
        })?);
    };
    let at = usize::try_from(number - 1).ok();
    let chosen = at.and_then(|at| options.get(at));
    let chosen = chosen.ok_or_else(|| {
        Usage(format!("--option {number}: the advice has {} options", options.len()))
    })?;
    if chosen.change == Change::Nothing {
        return Err(Usage(format!(
            "--option {number} is to do nothing, so there is nothing to check"
        ))
        .into());
    }
    Ok(chosen)
}

/// Measures the windows, and undoes the change whatever happens. `None` if it was interrupted.
fn windows(
    args: &Args,
    saved: &Saved,
    change: &Applicable,
    mut guard: Guard,
    stop: &AtomicBool,
) -> anyhow::Result<Option<Trial>> {
    let plan = Plan {
        target: &saved.target,
        advice: &saved.advice,
        pairs: args.pairs,
        window: args.window,
    };
    let result = in_turns(&plan, change, &mut guard, stop);
    // If it cannot be undone here, the guard tries once more as its pipe ends.
    change.set(false).context("the change could not be undone")?;
    let dismissed = guard.dismiss();
    // Why the windows failed says more than that the guard is gone.
    result.and_then(|trial| dismissed.map(|()| trial))
}

/// What to measure in turns.
pub struct Plan<'a> {
    pub target: &'a Target,
    pub advice: &'a Advice,
    pub pairs: u64,
    pub window: Duration,
}

/// Measures windows without and with a change in turns; it is in effect at the end. `None` if it was interrupted.
pub fn in_turns(
    plan: &Plan,
    change: &Applicable,
    guard: &mut Guard,
    stop: &AtomicBool,
) -> anyhow::Result<Option<Trial>> {
    let mut trial = Trial::default();
    let mut progress = Progress::new("checking", 2 * plan.pairs);
    for number in 0..2 * plan.pairs {
        let on = number % 2 == 1;
        progress.step(if on { "with the change" } else { "without" });
        guard.check()?;
        change.set(on)?;
        sleep(SETTLE);
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let Some(recording) = watch::record_until(plan.target, plan.window, stop, false)? else {
            return Ok(None);
        };
        let advice = plan.advice;
        trial.windows.push(Measured::of(&recording, on, advice.port, advice.edge, &advice.class));
    }
    guard.check()?;
    progress.finish("windows measured");
    Ok(Some(trial))
}
