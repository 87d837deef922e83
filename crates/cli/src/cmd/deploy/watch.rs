//! The watch: deploys again when a service or its workers restart.
//!
//! Each second it plans from what there is to what was applied, and carries out the steps that a restart causes:
//! attach, add, start. It never replaces or detaches anything: that is for `heddle apply`.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use heddle_steer::client::Steering;

use super::act::Executor;
use super::others;
use super::plan::{Action, Step, plan};
use super::record::{Record, Records};
use super::service::Service;
use super::state::Current;
use crate::cmd::steer::{connect::open, refused};
use crate::exit::{Outcome, note};
use crate::interrupt;

/// How often services are looked at.
const INTERVAL: Duration = Duration::from_secs(1);
/// The longest wait before a failed step is tried again.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// A step that fails: it is tried again less and less often.
struct Failure {
    count: u32,
    next: Instant,
    text: String,
}

struct Watch<'a> {
    records: &'a Records,
    steering: Steering,
    /// By deployment and section.
    failures: BTreeMap<(String, String), Failure>,
}

/// Watches all deployments of the user until a signal, or the end of the standard input.
pub fn run(records: &Records, direct: bool, until_input_ends: bool) -> anyhow::Result<Outcome> {
    let stop = interrupt::flag()?;
    if until_input_ends {
        let stop = Arc::clone(&stop);
        thread::spawn(move || {
            // An error is an end, too.
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            stop.store(true, Ordering::Relaxed);
        });
    }
    if records.is_watched() {
        note("heddle: another process watches these deployments; this one waits for its end");
    }
    let Some(_lock) = wait_for_turn(records, &stop)? else { return Ok(Outcome::Done) };
    let Some(steering) = connect(direct, until_input_ends, &stop)? else {
        return Ok(Outcome::Done);
    };
    let mut watch = Watch { records, steering, failures: BTreeMap::new() };
    while !stop.load(Ordering::Relaxed) {
        if let Err(error) = watch.check() {
            watch.report("", "", &format!("{error:#}"));
        }
        pause(&stop);
    }
    Ok(Outcome::Done)
}

/// Waits for the end of another watch, or until `stop` is set.
fn wait_for_turn(
    records: &Records,
    stop: &AtomicBool,
) -> anyhow::Result<Option<super::record::RecordsLock>> {
    while !stop.load(Ordering::Relaxed) {
        if let Some(lock) = records.try_watch_lock()? {
            return Ok(Some(lock));
        }
        pause(stop);
    }
    Ok(None)
}

/// Connects to heddled. As heddled's child, waits until it listens, or until `stop` is set.
fn connect(direct: bool, waits: bool, stop: &AtomicBool) -> anyhow::Result<Option<Steering>> {
    loop {
        match open(direct) {
            Ok(steering) => return Ok(Some(steering)),
            Err(error) if !waits => return Err(error),
            Err(_) if stop.load(Ordering::Relaxed) => return Ok(None),
            Err(_) => sleep(Duration::from_millis(50)),
        }
    }
}

/// Waits for the interval, or until `stop` is set.
fn pause(stop: &AtomicBool) {
    let begin = Instant::now();
    while begin.elapsed() < INTERVAL && !stop.load(Ordering::Relaxed) {
        sleep(Duration::from_millis(50));
    }
}

impl Watch<'_> {
    fn check(&mut self) -> anyhow::Result<()> {
        let _lock = self.records.lock()?;
        for record in self.records.list()? {
            // `heddle apply` was killed: a person decides.
            if record.complete
                && let Err(error) = self.deployment(&record)
            {
                self.failed(&record.name, "deployment", &format!("{error:#}"));
            }
        }
        Ok(())
    }

    /// Deploys again what a restart has ended.
    fn deployment(&mut self, record: &Record) -> anyhow::Result<()> {
        if !self.is_due(&record.name, "deployment") {
            return Ok(());
        }
        let wanted = record.deployment()?;
        let others = others(self.records, &record.name)?;
        let current = Current::of(&self.steering, &wanted, record.service, &others)?;
        let processes = match &current.processes {
            Ok(processes) => processes,
            Err(why) => return self.absent(record, &wanted.service, why),
        };
        let plan = plan(&wanted, &current, Some(record), Some(&wanted))?;
        self.failures.remove(&(record.name.clone(), "deployment".into()));
        let mut started = record.clone();
        started.attachments.retain(|one| current.attachment(one.id).is_some());
        started.problems.remove("deployment");
        let (steering, records) = (&self.steering, self.records);
        let steps: Vec<&Step> = plan.steps.iter().filter(|step| is_of_a_restart(step)).collect();
        let mut executor =
            Executor::new(steering, records, &wanted, Some(&wanted), processes, started, &plan);
        let (mut results, mut is_behind) = (Vec::new(), !plan.absent.is_empty());
        for step in steps {
            // An agent may need an attachment's number, so it comes after all of them.
            let is_agent = matches!(step.action, Action::StartAgent | Action::RestartAgent);
            if is_agent && is_behind {
                continue;
            }
            if !due(&self.failures, &record.name, &step.section) {
                is_behind = true;
                continue;
            }
            let result = executor.step(step);
            is_behind |= result.is_err();
            results.push((step, result));
        }
        let mut now = executor.record;
        for (step, result) in results {
            match result {
                Ok(()) => {
                    now.problems.remove(&step.section);
                    self.failures.remove(&(record.name.clone(), step.section.clone()));
                    self.report(&record.name, &step.section, &step.what);
                }
                Err(error) => {
                    let text = format!("cannot {}: {error:#}", step.what);
                    now.problems.insert(step.section.clone(), text.clone());
                    self.failed(&record.name, &step.section, &text);
                }
            }
        }
        if now != *record {
            self.records.write(&now)?;
        }
        Ok(())
    }

    /// The service does not run. By its pid it never will again.
    fn absent(&mut self, record: &Record, service: &Service, why: &str) -> anyhow::Result<()> {
        let list = self.steering.list().map_err(refused)?;
        let is_there = |id: u32| list.iter().any(|one| one.id == id);
        let is_attached = record.attachments.iter().any(|one| is_there(one.id));
        if matches!(service, Service::Pid(_)) && !is_attached {
            self.records.remove(&record.name)?;
            self.report(
                &record.name,
                "service",
                &format!("{why} any more: the deployment has ended"),
            );
        }
        Ok(())
    }

    fn is_due(&self, name: &str, section: &str) -> bool {
        due(&self.failures, name, section)
    }

    /// Reports a failure if it is a new one, and puts off the next try.
    fn failed(&mut self, name: &str, section: &str, text: &str) {
        let key = (name.to_owned(), section.to_owned());
        let before = self.failures.remove(&key);
        if before.as_ref().is_none_or(|before| before.text != text) {
            self.report(name, section, text);
        }
        let count = before.map_or(0, |before| before.count);
        let wait = Duration::from_secs(1 << count.min(6)).min(LONGEST_WAIT);
        let failure = Failure {
            count: count.saturating_add(1),
            next: Instant::now() + wait,
            text: text.into(),
        };
        self.failures.insert(key, failure);
    }

    fn report(&self, name: &str, section: &str, text: &str) {
        match (name, section) {
            ("", _) => note(&format!("heddle: deployments: {text}")),
            (name, section) => note(&format!("heddle: deployment {name}: {section}: {text}")),
        }
    }
}

fn due(failures: &BTreeMap<(String, String), Failure>, name: &str, section: &str) -> bool {
    let failure = failures.get(&(name.to_owned(), section.to_owned()));
    failure.is_none_or(|failure| failure.next <= Instant::now())
}

/// Whether a restart of the service or of its workers makes the step necessary.
fn is_of_a_restart(step: &Step) -> bool {
    matches!(
        step.action,
        Action::Attach { .. } | Action::Add { .. } | Action::StartAgent | Action::RestartAgent
    )
}
