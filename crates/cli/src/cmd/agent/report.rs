//! An enclave as `heddle agent status` shows it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use heddle_agent::agent::{ClassReport, PickNextReport, Report};
use heddle_agent::fair::FairReport;
use heddle_agent::guardian::{Agents, EnclaveEntry, Kind, Record, Stage, cpus, states};
use heddle_core::Class;
use heddle_metrics::{Cell, Table, TextStyle, human};
use serde::Serialize;

use crate::out::printable;

/// A report older than this counts as stale: an agent writes ten per second.
const STALE: Duration = Duration::from_secs(1);

/// Everything known about an enclave.
#[derive(Serialize)]
pub struct EnclaveView {
    /// From its guardian.
    pub guardian: Record,
    /// Whether the guardian is dead, and this user may not clean up.
    pub dead: bool,
    /// How the backend differs from sched_ext.
    pub differences: &'static [&'static str],
    /// Threads by state; `None` if this user may not see them.
    pub states: Option<BTreeMap<String, usize>>,
    /// From its agent.
    pub report: Option<Report>,
    /// The age of `report`.
    pub report_age_ms: Option<u64>,
}

impl EnclaveView {
    /// Reads the current state of a listed enclave.
    pub fn of(listed: &EnclaveEntry) -> EnclaveView {
        let record = listed.record.clone();
        let path = listed.folder.status();
        let report = fs::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok());
        let written = fs::metadata(&path).and_then(|meta| meta.modified()).ok();
        let age = written.and_then(|when| SystemTime::now().duration_since(when).ok());
        EnclaveView {
            states: states(record.backend, &record.name),
            differences: differences(record.backend),
            dead: listed.dead,
            report_age_ms: age.and_then(|age| u64::try_from(age.as_millis()).ok()),
            report,
            guardian: record,
        }
    }

    /// Describes the loss of the agent or guardian, if one is lost.
    pub fn lost(&self) -> Option<String> {
        let Record { name, stage, reason, .. } = &self.guardian;
        let why = reason.as_deref().unwrap_or("the reason is unknown");
        match () {
            () if self.dead => Some(format!("the guardian of enclave `{name}` is dead")),
            () if *stage == Stage::GivenBack => {
                Some(printable(&format!("enclave `{name}` has no agent any more: {why}")))
            }
            () => None,
        }
    }

    /// Renders the view as text.
    pub fn text(&self, style: TextStyle) -> String {
        let mut text = self.head();
        let mut line = |name: &str, what: String| {
            if !what.is_empty() {
                // Writing to a string cannot fail.
                let _ = writeln!(text, "  {name:<9} {}", printable(&what));
            }
        };
        line("program", self.program());
        line("threads", self.threads());
        line("agent", self.agent());
        if let Some(report) = &self.report {
            match &report.fair {
                Some(fair) => line("set", set(fair)),
                None => {
                    line("waiting", waiting(report));
                    line("commits", commits(report));
                }
            }
            line("share", share(report));
        }
        line("state", self.trouble());
        for difference in self.differences {
            line("note", (*difference).into());
        }
        let delays = self.report.as_ref().map_or(&[][..], |report| &report.classes);
        if !delays.is_empty() {
            text += &indented(&table(delays).to_text(style));
        }
        text
    }

    fn head(&self) -> String {
        let Record { name, policy, cpus, backend, agents, spin, since_ms, .. } = &self.guardian;
        let agents = match (agents, spin) {
            _ if *backend == Kind::Fair => "no deciding agent",
            (Agents::Central, true) => "central spinning agent",
            (Agents::Central, false) => "central agent",
            (Agents::Local, _) => "local agents",
        };
        let (cpus, since) = (cpus::format(cpus), age(*since_ms));
        let head =
            format!("{name}: {policy} on CPUs {cpus}, {backend} backend, {agents}, for {since}");
        printable(&head) + "\n"
    }

    fn program(&self) -> String {
        let Record { program, pid, .. } = &self.guardian;
        match pid {
            Some(pid) => format!("{} (process {pid})", program.join(" ")),
            None => "none yet: heddle agent join".into(),
        }
    }

    fn threads(&self) -> String {
        let Some(states) = &self.states else {
            return self
                .report
                .as_ref()
                .map(|report| report.threads.to_string())
                .unwrap_or_default();
        };
        let all: usize = states.values().sum();
        let each: Vec<String> = states.iter().map(|(state, n)| format!("{n} {state}")).collect();
        if each.is_empty() { "0".into() } else { format!("{all}: {}", each.join(", ")) }
    }

    fn agent(&self) -> String {
        let Record {
            agent, guardian, upgrades, last_gap_us, resizes, restarts, last_death, ..
        } = &self.guardian;
        let mut text = match agent {
            Some(agent) => format!("process {agent}, its guardian {guardian}"),
            None => format!("none; the guardian is {guardian}"),
        };
        if let Some(gap) = last_gap_us {
            #[allow(clippy::cast_precision_loss, reason = "for people")]
            let ms = *gap as f64 / 1e3;
            let _ = write!(text, "; {upgrades} upgrades, the last with a gap of {ms:.1} ms");
        }
        if *resizes > 0 {
            let _ = write!(text, "; resized {resizes} times");
        }
        if let Some(death) = last_death {
            let _ = write!(text, "; restarted {restarts} times, the last because {death}");
        }
        text
    }

    /// Describes abnormal states.
    fn trouble(&self) -> String {
        let mut troubles = Vec::new();
        if self.dead {
            troubles.push("the guardian is dead; root cleans up with heddle agent status".into());
        }
        match self.guardian.stage {
            Stage::Active => {}
            Stage::Starting => troubles.push("starting".into()),
            Stage::Upgrading => troubles.push("one agent is replacing another".into()),
            Stage::Restarting => troubles.push("the agent has died, another is starting".into()),
            Stage::GivenBack => {
                let why = self.guardian.reason.clone().unwrap_or_default();
                troubles.push(format!("all threads are under the default scheduler: {why}"));
            }
        }
        let age = Duration::from_millis(self.report_age_ms.unwrap_or(0));
        if self.guardian.stage == Stage::Active && age > STALE {
            troubles.push(format!("the agent has not reported for {:.0} s", age.as_secs_f64()));
        }
        troubles.join("; ")
    }
}

/// What a user must know about a backend.
fn differences(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Scx => &[],
        Kind::Fair => &[
            "fair: the kernel's scheduler decides; threads' nice values, slices and CPU masks are changed",
        ],
        Kind::Rt => &[
            "rt: waiting threads run at SCHED_IDLE while their CPU is idle; chosen threads run at SCHED_FIFO 1, \
                above ordinary threads",
        ],
    }
}

/// What was set in the kernel's fair scheduler.
fn set(fair: &FairReport) -> String {
    let FairReport { threads, be_raised, groups, failed } = fair;
    let threads: Vec<String> = threads.iter().map(|(what, n)| format!("{n} {what}")).collect();
    let mut text = if threads.is_empty() { "no threads".into() } else { threads.join(", ") };
    if *be_raised {
        text += "; best-effort threads had starved and are ordinary for now";
    }
    if !groups.is_empty() {
        let _ = write!(text, "; raised: {}", groups.join(", "));
    }
    if let Some(failed) = failed {
        let _ = write!(text, "; {failed}");
    }
    text
}

fn waiting(report: &Report) -> String {
    let all: usize = report.waiting.iter().sum();
    match &report.waiting[..] {
        [] | [_] => format!("{all} in the policy's queue"),
        queues => {
            let each: Vec<String> = queues.iter().map(ToString::to_string).collect();
            format!("{all} in the policy's queues: {}", each.join(" "))
        }
    }
}

/// The agents' share of the CPUs.
fn share(report: &Report) -> String {
    let Report { agents_cpu_ns, share_limit, pauses, .. } = report;
    let Some(cpu) = agents_cpu_ns else { return "the agent has its own CPU".into() };
    #[allow(clippy::cast_precision_loss, reason = "for people")]
    let taken = human(*cpu as f64, "ns");
    format!(
        "an agent uses at most {share_limit} % of a CPU: {taken} of CPU time so far, {pauses} pauses to stay below"
    )
}

fn commits(report: &Report) -> String {
    let Report {
        committed,
        failed,
        taken,
        pick_next,
        outcomes,
        preemptions,
        steals,
        adoptions,
        lost,
        ..
    } = report;
    let reasons = outcomes.iter().filter(|(what, _)| *what != "Committed");
    let reasons: Vec<String> = reasons.map(|(what, n)| format!("{what} {n}")).collect();
    let why = if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join(", ")) };
    let mut text = format!("{committed}, failed {failed}{why}");
    if *taken > 0 {
        let _ = write!(text, "; {taken} threads taken by CPUs without waiting");
    }
    if let Some(PickNextReport { picked, declined, misjudged }) = pick_next {
        let _ = write!(
            text,
            "; pick_next: {picked} picked, {declined} left to the agent, {misjudged} wrong"
        );
    }
    let _ = write!(text, "; {preemptions} preemptions, {steals} steals, {adoptions} rescans");
    if *lost > 0 {
        let _ = write!(text, "; {lost} messages lost");
    }
    text
}

fn table(classes: &[ClassReport]) -> Table {
    let head = ["class", "wakeups", "delay p50", "p90", "p99", "p99.9", "longest"];
    let mut table = Table::new("", head);
    for ClassReport { class, delay, .. } in classes {
        #[allow(clippy::cast_precision_loss, reason = "for people")]
        let time = |ns: u64| Cell::number(human(ns as f64, "ns"));
        table.push(vec![
            Cell::text(class_name(*class)),
            Cell::number(delay.count.to_string()),
            time(delay.p50_ns),
            time(delay.p90_ns),
            time(delay.p99_ns),
            time(delay.p999_ns),
            time(delay.max_ns),
        ]);
    }
    table
}

pub fn class_name(class: usize) -> String {
    match class {
        class if class == usize::from(Class::LC.0) => "lc".into(),
        class if class == usize::from(Class::BE.0) => "be".into(),
        other => other.to_string(),
    }
}

fn indented(text: &str) -> String {
    text.lines().filter(|line| !line.is_empty()).map(|line| format!("  {line}\n")).collect()
}

/// How long ago `unix_ms` was, in its largest unit.
fn age(unix_ms: u64) -> String {
    let begin = UNIX_EPOCH + Duration::from_millis(unix_ms);
    let seconds = SystemTime::now().duration_since(begin).unwrap_or_default().as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86400),
    }
}
