//! `heddle tune`: keeps a running service within its limit.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use heddle_advise::tune::{Action, Epoch, Guardrail, Tuner};
use heddle_advise::{Advice, Measured, Options, Prediction, Slo};
use heddle_core::Ns;
use heddle_observe::{Recording, Target};
use serde_json::{Value, json};

use super::advise::change::Applicable;
use super::advise::check::{Plan, in_turns};
use super::advise::guard::Guard;
use super::advise::watch::{self, TargetArgs};
use crate::exit::{Outcome, Usage};
use crate::{interrupt, out};

/// Options of `heddle tune`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sudo heddle tune --pid 812 --slo 'p99 < 20ms'                   says what it would do
  sudo heddle tune --pid 812 --slo 'p99(short) < 20ms' --guard 'p99(long) < 400ms' --guard 'rate >= 95%' --apply
  sudo heddle tune --port 5300 --slo 'p99 < 5ms' --policy sita:type-offset=2,scan=3 --apply --journal tune.jsonl

Each epoch is measured. If the limit is missed in two of three, the options are replayed; the best
whose guards would hold is tried by on and off windows in turns, and stays if it does as
predicted. One epoch that violates a guard takes it back at once, and so does the end of this
command, however it ends. It changes at most once a minute and six times an hour, and only which
socket a policy chooses.")]
pub struct Args {
    #[command(flatten)]
    target: TargetArgs,
    /// The limit to keep.
    #[arg(long, value_name = "LIMIT")]
    slo: Slo,
    /// What must hold while a change is in effect: a limit on a quantile, or a share of the rate before; repeat for
    /// several.
    #[arg(long = "guard", value_name = "GUARD")]
    guards: Vec<Guardrail>,
    /// A further steering policy to try, with its parameters; repeat for several.
    #[arg(long = "policy", value_name = "POLICY")]
    policies: Vec<String>,
    /// Change something; without it, only say what would be changed.
    #[arg(long)]
    apply: bool,
    /// How long an epoch is.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = epoch)]
    epoch: Duration,
    /// End after this time [default: go on until Ctrl-C].
    #[arg(long = "for", value_name = "DURATION", value_parser = watch::duration)]
    time: Option<Duration>,
    /// Append every step to a file, one JSON object a line.
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,
    /// Print JSON objects, one a line, instead of text.
    #[arg(long)]
    json: bool,
}

fn epoch(text: &str) -> Result<Duration, String> {
    let time = watch::duration(text)?;
    if time < Duration::from_secs(5) {
        return Err(format!("`{text}` is too short: an epoch is 5s or more"));
    }
    Ok(time)
}

/// Pairs of windows of a trial.
const PAIRS: u64 = 2;

/// Tunes until it is interrupted, or for the time given.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let target = args.target.target()?;
    let stop = interrupt::flag()?;
    let journal = args.journal.as_ref().map(|file| {
        let opened = File::options().create(true).append(true).open(file);
        opened.map_err(|error| Usage(format!("{}: {error}", file.display())))
    });
    let mut session = Session {
        args,
        target,
        stop: &stop,
        tuner: Tuner::new(args.slo.clone(), args.guards.clone()),
        journal: journal.transpose()?,
        began: Instant::now(),
        held: None,
        processes: Vec::new(),
    };
    let result = session.run();
    let undone = session.take_back();
    result.and_then(|outcome| undone.map(|()| outcome))
}

/// A change in effect, and the process that undoes it if this one dies.
struct Held {
    change: Applicable,
    guard: Guard,
    name: String,
}

struct Session<'a> {
    args: &'a Args,
    target: Target,
    stop: &'a AtomicBool,
    tuner: Tuner,
    journal: Option<File>,
    began: Instant,
    held: Option<Held>,
    /// The service's processes in the epoch before.
    processes: Vec<u32>,
}

impl Session<'_> {
    fn run(&mut self) -> anyhow::Result<Outcome> {
        loop {
            if self.args.time.is_some_and(|time| self.began.elapsed() >= time) {
                return Ok(Outcome::Done);
            }
            let recording = watch::record_until(&self.target, self.args.epoch, self.stop, false)?;
            let Some(recording) = recording else { return Ok(Outcome::Interrupted) };
            self.look_after()?;
            let epoch = self.measure(&recording);
            let action = self.tuner.epoch(self.now(), &epoch);
            self.say(
                "epoch",
                json!({"measured": epoch, "action": action}),
                &words(&epoch, &action, &self.args.slo),
            )?;
            match action {
                Action::Wait { .. } => {}
                Action::RollBack { .. } => self.take_back()?,
                Action::Ask => self.ask(&recording)?,
            }
            if self.stop.load(Ordering::Relaxed) {
                return Ok(Outcome::Interrupted);
            }
        }
    }

    fn now(&self) -> Ns {
        Ns::from(self.began.elapsed())
    }

    /// Steps aside if another program has changed what this command changed; fails if its guard is gone.
    fn look_after(&mut self) -> anyhow::Result<()> {
        let Some(held) = &mut self.held else { return Ok(()) };
        held.guard.check()?;
        if held.change.is_on()? {
            return Ok(());
        }
        let Some(Held { guard, name, .. }) = self.held.take() else { return Ok(()) };
        guard.dismiss()?;
        self.tuner = Tuner::new(self.args.slo.clone(), self.args.guards.clone());
        let text = format!("{name} was changed by another program: left as it is");
        self.say("stepped-aside", json!({"change": name}), &text)
    }

    fn measure(&mut self, recording: &Recording) -> Epoch {
        let of = |slo: &Slo| {
            let class = slo.class.as_deref().unwrap_or("all");
            let port =
                heddle_advise::busiest_port(recording, self.args.target.ports.first().copied());
            let measured = Measured::of(recording, self.held.is_some(), port, None, class);
            let enough = heddle_advise::has_enough(measured.responses.len(), slo.quantile);
            let mut times = measured.responses;
            (enough.then(|| heddle_advise::quantile(&mut times, slo.quantile)), measured.rate)
        };
        let (quantile, rate) = of(&self.args.slo);
        let value = |guard: &Guardrail| match guard {
            Guardrail::Quantile(slo) => of(slo).0,
            Guardrail::Rate(_) => None,
        };
        let guards = self.args.guards.iter().map(value).collect();
        let before = std::mem::replace(&mut self.processes, recording.service.processes.clone());
        let lost = recording.lost.records + recording.lost.unanswered;
        let ignored = match () {
            () if !before.is_empty() && before != self.processes => {
                Some("the service's processes have changed".into())
            }
            () if lost * 100 > recording.spans.len() as u64 => {
                Some("more than 1 % was lost".into())
            }
            () => None,
        };
        Epoch { quantile, rate, guards, ignored }
    }

    /// Looks for a change, and tries it.
    fn ask(&mut self, recording: &Recording) -> anyhow::Result<()> {
        let options = Options {
            slo: Some(self.args.slo.clone()),
            port: self.args.target.ports.first().copied(),
            policies: self.args.policies.clone(),
        };
        let (advice, _) = heddle_advise::advise(recording, &options, |_, _| {})?;
        if let Some(reason) = &advice.declined {
            return self.say(
                "declined",
                json!({"reason": reason}),
                &format!("no advice: {reason}"),
            );
        }
        let candidates =
            advice.options.iter().filter(|option| option.gains() && option.is_steering());
        let (refused, allowed): (Vec<_>, Vec<_>) = candidates
            .map(|option| (option, self.tuner.refuses(option)))
            .partition(|(_, why)| why.is_some());
        for (option, why) in refused {
            let why = why.unwrap_or_default();
            self.say(
                "refused",
                json!({"change": option.change, "why": why}),
                &format!("not {}: {why}", option.change),
            )?;
        }
        let Some((best, _)) = allowed.first() else {
            return self.say("nothing", json!({}), "no policy would help");
        };
        let (best, ratio) = ((*best).clone(), best.ratio.value);
        if !self.args.apply {
            let text = format!(
                "would try {}: {ratio:.2} times faster predicted (--apply does it)",
                best.change
            );
            return self.say(
                "would-try",
                json!({"change": best.change, "predicted": best.ratio}),
                &text,
            );
        }
        self.try_out(&advice, &best)
    }

    fn try_out(&mut self, advice: &Advice, best: &Prediction) -> anyhow::Result<()> {
        let name = best.change.to_string();
        self.say(
            "trial",
            json!({"change": best.change, "predicted": best.ratio}),
            &format!("trying {name}"),
        )?;
        let change = Applicable::new(&best.change)?;
        let guard = Guard::start(&change)?;
        let held = self.held.insert(Held { change, guard, name: name.clone() });
        let plan = Plan { target: &self.target, advice, pairs: PAIRS, window: self.args.epoch };
        let Some(trial) = in_turns(&plan, &held.change, &mut held.guard, self.stop)? else {
            return Ok(());
        };
        let outcome = trial.outcome(advice.quantile, best.ratio.value);
        let keep = self.tuner.tried(self.now(), best, &outcome);
        let ratio = outcome
            .ratio
            .map_or("unclear".into(), |ratio| format!("{:.2} times faster", ratio.value));
        let done = if keep { "kept" } else { "taken back" };
        let text = format!("{name}: {ratio}, {:.2} predicted: {done}", best.ratio.value);
        self.say(
            "outcome",
            json!({"change": best.change, "outcome": outcome, "kept": keep}),
            &text,
        )?;
        if keep { Ok(()) } else { self.take_back() }
    }

    /// Undoes the change in effect, if there is one.
    fn take_back(&mut self) -> anyhow::Result<()> {
        let Some(Held { change, guard, name }) = self.held.take() else { return Ok(()) };
        // If it cannot be undone here, the guard tries once more as its pipe ends.
        change.set(false).with_context(|| format!("{name} could not be undone"))?;
        guard.dismiss()?;
        self.say("undone", json!({"change": name}), &format!("{name} is undone"))
    }

    /// Prints a step and appends it to the journal.
    fn say(&mut self, step: &str, fields: Value, text: &str) -> anyhow::Result<()> {
        let since_epoch =
            SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
        let mut line = json!({"time_ms": since_epoch, "step": step});
        if let (Some(line), Value::Object(fields)) = (line.as_object_mut(), fields) {
            line.extend(fields);
        }
        if let Some(journal) = &mut self.journal {
            writeln!(journal, "{line}").context("the journal cannot be written")?;
        }
        let seconds = self.began.elapsed().as_secs();
        out::text(&if self.args.json {
            format!("{line}\n")
        } else {
            format!("{seconds:>5} s  {}\n", out::printable(text))
        })?;
        Ok(())
    }
}

fn words(epoch: &Epoch, action: &Action, slo: &Slo) -> String {
    let value = epoch.quantile.map_or("-".into(), |value| value.to_string());
    let done = match action {
        Action::Wait { why } => why.clone(),
        Action::Ask => "the limit is missed: looking for a policy".into(),
        Action::RollBack { why } => format!("{why}: taking the change back"),
    };
    format!("{value} ({slo}), {:.1} requests/s: {done}", epoch.rate)
}
