//! Advice and verdicts as text.

use std::fmt::Write as _;

use heddle_advise::{
    Advice, Change, Cpus, Effort, Interval, Model, Outcome as Trial, Percentile, Prediction,
    Verdict, WorkerKind,
};
use heddle_core::Ns;
use heddle_metrics::{Cell, Mark, Table, TextStyle};

use crate::exit::Outcome;
use crate::out::printable;

/// Returns the text of an advice.
pub fn advice(advice: &Advice, model: &Model, can_check: bool, style: TextStyle) -> String {
    let mut text = head(advice, model);
    for note in &advice.notes {
        let _ = writeln!(text, "  note: {}", printable(note));
    }
    if let Some(reason) = &advice.declined {
        let _ = writeln!(text, "\nNo advice: {reason}.");
        return text;
    }
    let _ = writeln!(text, "\n{}\n", observation(advice));
    text.push_str(&table(advice).to_text(style));
    text.push('\n');
    text.push_str(&what_to_do(advice, can_check));
    text
}

/// Returns the text of an advice on a service that does not run yet: its options are for its developers.
pub fn design(advice: &Advice, model: &Model, style: TextStyle) -> String {
    let mut text = format!(
        "{}, as designed: {} with a socket each on {}; {}, {:.0} a second\n",
        printable(&advice.service),
        plural(model.workers.len(), "worker"),
        plural(model.host.cpus as usize, "CPU"),
        plural(model.requests.len(), "request"),
        advice.evidence.rate
    );
    for note in &advice.notes {
        let _ = writeln!(text, "  note: {}", printable(note));
    }
    if let Some(reason) = &advice.declined {
        let _ = writeln!(text, "\nNo advice: {reason}.");
        return text;
    }
    let _ = writeln!(
        text,
        "\n{} of {} requests would be {}.\n",
        Percentile(advice.quantile),
        advice.class,
        short(advice.observed)
    );
    text.push_str(&table(advice).to_text(style));
    text
}

fn head(advice: &Advice, model: &Model) -> String {
    let count = model.workers.len();
    let kind = match model.workers.first().map(|worker| worker.kind) {
        Some(WorkerKind::EventLoop) => plural(count, "event loop"),
        _ => plural(count, "worker"),
    };
    let queues = match model.queues.len() {
        1 if count > 1 => "with one queue".to_string(),
        queues if queues == count && count > 1 => "with a queue each".into(),
        queues => format!("with {}", plural(queues, "queue")),
    };
    let mut text = format!(
        "{} at port {}: {kind} {queues}; {} in {}, {:.1} a second\n",
        printable(&advice.service),
        advice.port,
        plural(model.requests.len(), "request"),
        short(model.span()),
        advice.evidence.rate
    );
    let _ = writeln!(
        text,
        "  on {}, {}, Linux {}",
        printable(&model.host.processor),
        plural(model.host.cpus as usize, "CPU"),
        printable(&model.host.kernel)
    );
    if model.classes.len() > 1 {
        let class = |class: &heddle_advise::ClassOfRequests| {
            format!("{} {} (median demand {})", class.requests, class.name, short(class.demand))
        };
        let _ =
            writeln!(text, "  {}", model.classes.iter().map(class).collect::<Vec<_>>().join(", "));
    }
    if let Some(check) = &advice.self_check {
        let row = |&(share, observed, replayed): &(f64, Ns, Ns)| {
            format!("{} {} (observed {})", Percentile(share), short(replayed), short(observed))
        };
        let rows: Vec<String> = check.quantiles.iter().map(row).collect();
        let cpus = match check.cpus {
            Cpus::Host => "on its CPUs",
            Cpus::Ample => "with waits for CPUs as observed",
        };
        let _ = writeln!(text, "  the present, replayed {cpus}: {}", rows.join(", "));
    }
    text
}

/// Returns what was observed, in a sentence.
pub fn observation(advice: &Advice) -> String {
    let limit =
        advice.limit.map_or(String::new(), |limit| format!("; the limit is {}", short(limit)));
    format!(
        "{} of {} requests is {}{limit}.",
        Percentile(advice.quantile),
        advice.class,
        short(advice.observed)
    )
}

/// Returns the options, best first.
pub fn table(advice: &Advice) -> Table {
    let what = Percentile(advice.quantile).to_string();
    let columns =
        ["", "option", what.as_str(), "faster by", "90 % of replays", "who pays", "effort"];
    let mut table = Table::new("", columns);
    for (number, option) in advice.options.iter().enumerate() {
        let mark = match advice.limit {
            Some(limit) if option.after <= limit => Mark::Good,
            _ => Mark::Plain,
        };
        table.push(vec![
            Cell::number((number + 1).to_string()),
            Cell::text(option.change.to_string()),
            Cell::number(short(option.after)).marked(mark),
            Cell::number(times(option.ratio.value)),
            Cell::number(interval(&option.ratio)),
            Cell::text(who_pays(option)),
            Cell::text(effort(option)),
        ]);
    }
    table
}

fn who_pays(option: &Prediction) -> String {
    let service = option.harm.as_ref().map(|row| {
        let of =
            if row.class == "all" { String::new() } else { format!(" of {} requests", row.class) };
        format!("{}{of}: {} -> {}", Percentile(row.quantile), short(row.before), short(row.after))
    });
    let neighbour = match &option.change {
        Change::Nice { name, .. } => {
            Some(format!("{} runs when the service does not", printable(name)))
        }
        _ => None,
    };
    let all: Vec<String> = service.into_iter().chain(neighbour).collect();
    if all.is_empty() { "-".into() } else { all.join("; ") }
}

fn effort(option: &Prediction) -> &'static str {
    match (&option.change, option.effort) {
        (Change::Nothing, _) => "-",
        (_, Effort::None) => "none",
        (_, Effort::Restart) => "restart",
        (_, Effort::Rebuild) => "rebuild",
        (_, Effort::Code) => "code",
    }
}

fn what_to_do(advice: &Advice, can_check: bool) -> String {
    let (best, more) = (advice.best(), advice.with_effort());
    let mut text = String::new();
    if best.is_none() && more.is_none() {
        text.push_str("Nothing helps: no option surely gains a tenth.\n");
    }
    if let Some((apply, undo)) = best.and_then(|best| best.apply.as_ref().zip(best.undo.as_ref())) {
        let _ = writeln!(text, "Apply:  {apply}\nUndo:   {undo}");
        if can_check {
            text.push_str("Prove:  heddle advise check\n");
        }
    }
    if let Some(more) = more {
        let how = match &more.change {
            Change::RuntimePolicy { .. } => "With a restart of the service",
            Change::HeddleGo => "Built again with Heddle's scheduler (docs/go)",
            Change::EventQueue => "With other code in the service (docs/events)",
            _ => "With a restart of the service, by its own options",
        };
        let _ = writeln!(text, "{how}: {}.", more.change);
    }
    let reaches = |option: Option<&Prediction>| {
        option.zip(advice.limit).is_none_or(|(option, limit)| option.after <= limit)
    };
    if !reaches(more.or(best)) {
        text.push_str("No option reaches the limit.\n");
    }
    text
}

/// Returns the text of a verdict.
pub fn outcome(advice: &Advice, prediction: &Prediction, trial: &Trial) -> String {
    let mut text = String::new();
    let what = Percentile(advice.quantile).to_string();
    let _ = writeln!(text, "{}: {what} of {} requests", prediction.change, advice.class);
    let _ = writeln!(text, "  without    {}\n  with       {}", short(trial.off), short(trial.on));
    if let Some(ratio) = &trial.ratio {
        let _ = writeln!(
            text,
            "  faster by  {} ({}), in {}",
            times(ratio.value),
            interval(ratio),
            plural(trial.pairs, "pair")
        );
    }
    let _ = writeln!(
        text,
        "  predicted  {} ({})",
        times(prediction.ratio.value),
        interval(&prediction.ratio)
    );
    for why in &trial.discarded {
        let _ = writeln!(text, "  not counted: {why}");
    }
    let command = |command: &Option<String>| command.clone().unwrap_or_default();
    let _ = match trial.verdict {
        Verdict::AsPredicted => {
            writeln!(text, "\nAs predicted. To keep it:  {}", command(&prediction.apply))
        }
        Verdict::Better => {
            writeln!(text, "\nBetter than predicted. To keep it:  {}", command(&prediction.apply))
        }
        Verdict::Worse => writeln!(text, "\nWorse than predicted. It is undone."),
        Verdict::Harmful => writeln!(text, "\nThe service is slower with it. It is undone."),
        Verdict::Unclear => {
            writeln!(text, "\nUnclear: too few windows were alike. Try again, with more --pairs.")
        }
    };
    text
}

/// Returns the exit code of a verdict.
pub fn exit(verdict: &Verdict) -> Outcome {
    match verdict {
        Verdict::AsPredicted | Verdict::Better => Outcome::Done,
        Verdict::Worse | Verdict::Harmful => Outcome::Program(1),
        Verdict::Unclear => Outcome::Invalid,
    }
}

fn times(ratio: f64) -> String {
    match ratio {
        ratio if ratio < 10.0 => format!("{ratio:.2} x"),
        ratio => format!("{ratio:.1} x"),
    }
}

fn interval(interval: &Interval) -> String {
    let digits = if interval.high < 10.0 { 2 } else { 1 };
    format!("{:.digits$} to {:.digits$}", interval.low, interval.high)
}

fn plural(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Three digits are enough.
fn short(time: Ns) -> String {
    let scale = 10_u64.pow(time.0.max(1).ilog10().saturating_sub(2));
    Ns((time.0 + scale / 2) / scale * scale).to_string()
}
