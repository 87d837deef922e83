//! The agent: finds the enclave's threads and sets them.

use super::FairReport;
use super::groups::Group;
use super::journal::{Contents, Entry, GroupEntry, Journal, Original, Stamp, ThreadEntry};
use super::levels::{Levels, same};
use super::members::{self, InEnclave};
use super::threads::{is_fair, now, unless_gone};
use super::undo::{restore, still_set};
use crate::agent::{Control, EndReason, Report, ReportPage, SHARE};
use crate::classes::Classes;
use heddle_core::Class;
use heddle_sys::clock;
use heddle_sys::processes::{self, Process};
use heddle_sys::scheduling::{self, Attributes};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use std::{fs, io};

/// How often to search for threads.
const EVERY: Duration = Duration::from_millis(100);
/// How often to check processes, names, settings by other programs, and starvation.
const SELDOM: Duration = Duration::from_secs(1);
/// How often to check for the end.
const PAUSE: Duration = Duration::from_millis(10);
/// The most that the agent takes of a CPU: one part in this many.
const PART: u32 = 20;
/// Best-effort threads starve if they want a CPU and get less of the enclave's than one part in this many.
const STARVED: u64 = 50;
/// They have enough again when they get more than one part in this many.
const ENOUGH: u64 = 5;
/// A journal of more bytes is compacted.
const LARGE: u64 = 1 << 20;

/// Options of the agent.
pub(crate) struct WatchOptions {
    /// The enclave's folder.
    pub folder: PathBuf,
    /// The policy's name and parameters.
    pub policy: String,
    /// Assigns classes to threads.
    pub classes: Classes,
    /// Where to report.
    pub status: PathBuf,
    /// The enclave's name.
    pub enclave: String,
    /// The enclave's guardian.
    pub guardian: Option<u32>,
}

/// Watches until `control` ends it. `ready` returns when the agent may begin; `attached` is called when all threads
/// are set.
///
/// # Errors
/// A sentence: the policy cannot be expressed, or the journal cannot be used.
pub(crate) fn serve(
    options: WatchOptions,
    control: &Control,
    ready: impl FnOnce(),
    attached: impl FnOnce(),
) -> Result<EndReason, String> {
    let levels = Levels::of(&options.policy)?;
    // The agent must be able to run beside threads that it has given priority.
    let _ = scheduling::set_nice(0, -20);
    ready();
    let failed = |error: io::Error| format!("cannot use the enclave's journal: {error}");
    let mut watch = Watch::begin(&options, levels).map_err(failed)?;
    let mut attached = Some(attached);
    let page = ReportPage::new(Some(&options.enclave), &options.policy);
    loop {
        let begin = Instant::now();
        watch.check().map_err(failed)?;
        let report = watch.report(&options.policy);
        page.show(&report);
        // A missing folder is no reason to stop.
        let _ = crate::agent::save_report(&report, &options.status);
        if let Some(attached) = attached.take() {
            attached();
        }
        let rest = EVERY.max(begin.elapsed() * (PART - 1));
        let until = Instant::now() + rest;
        while Instant::now() < until {
            if let Some(why) = control.reason() {
                return Ok(why);
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// A thread of the enclave.
#[derive(Clone, Copy, Debug)]
struct WatchedThread {
    process: Process,
    began: u64,
    was: Original,
    class: Class,
    /// The attributes that it was set to; none if it is left alone.
    set: Option<Attributes>,
    /// Its run and wait times at the last check.
    times: Option<(u64, u64)>,
}

struct Watch<'a> {
    journal: Journal,
    stamp: Stamp,
    contents: Contents,
    levels: Levels,
    classes: &'a Classes,
    known: BTreeMap<u32, WatchedThread>,
    starved: bool,
    groups: BTreeSet<Group>,
    failed: Option<String>,
    looks: u64,
    /// When the less frequent checks were last made.
    last_check: Option<Instant>,
    guardian: Option<u32>,
}

impl<'a> Watch<'a> {
    fn begin(options: &'a WatchOptions, levels: Levels) -> io::Result<Watch<'a>> {
        let journal = Journal::at(&options.folder);
        journal.append(&[Entry::Levels(levels)])?;
        let contents = journal.read()?;
        let mut groups = BTreeSet::new();
        if levels.lc_first() {
            // Raised by an agent before this one.
            let raised = contents.groups.iter().filter(|entry| still_set(entry).is_some());
            groups.extend(raised.map(|entry| entry.group.clone()));
        } else {
            contents.groups.iter().for_each(|entry| drop(restore(entry)));
        }
        Ok(Watch {
            stamp: journal.stamp(),
            journal,
            contents,
            levels,
            classes: &options.classes,
            known: BTreeMap::new(),
            starved: false,
            groups,
            failed: None,
            looks: 0,
            last_check: None,
            guardian: options.guardian,
        })
    }

    fn check(&mut self) -> io::Result<()> {
        self.looks += 1;
        let is_due = self.last_check.is_none_or(|last_check| last_check.elapsed() >= SELDOM);
        if is_due {
            self.add_children()?;
        }
        self.read_if_changed()?;
        self.check_threads(is_due)?;
        if is_due {
            self.raise_groups()?;
            let passed = self.last_check.map(|last_check| last_check.elapsed());
            self.last_check = Some(Instant::now());
            self.update_starvation(passed);
            if self.stamp.1 > LARGE {
                self.journal.compact()?;
            }
        }
        Ok(())
    }

    fn read_if_changed(&mut self) -> io::Result<()> {
        let stamp = self.journal.stamp();
        if stamp != self.stamp {
            self.contents = self.journal.read()?;
            self.stamp = stamp;
        }
        Ok(())
    }

    /// Records the processes that members have started: each inherits the settings of its ancestor among them.
    fn add_children(&mut self) -> io::Result<()> {
        self.read_if_changed()?;
        let known = &self.contents.members;
        let entries: Vec<Entry> = members::processes(&self.contents, self.guardian)
            .into_iter()
            .filter(|found| !known.contains_key(&found.process))
            .filter_map(|InEnclave { process, ancestor, member }| {
                let was = member.original(ancestor, ancestor)?;
                Some(Entry::Thread(ThreadEntry::new(process, process, &was)))
            })
            .collect();
        self.journal.append(&entries)
    }

    fn check_threads(&mut self, thoroughly: bool) -> io::Result<()> {
        let members: Vec<Process> = self.contents.members.keys().copied().collect();
        let mut there = BTreeSet::new();
        for process in members.into_iter().filter(|process| process.lives()) {
            for thread in processes::threads(process.pid) {
                there.insert(thread.pid);
                let known = self.known.get(&thread.pid).filter(|it| it.began == thread.began);
                match known.copied() {
                    None => self.add_thread(process, thread)?,
                    Some(known) if thoroughly => self.recheck(thread, known)?,
                    Some(_) => {}
                }
            }
        }
        self.known.retain(|tid, _| there.contains(tid));
        Ok(())
    }

    /// Adds a new thread. It has its original attributes or the enclave's; if it has others, it has chosen them
    /// itself since, as `nice` does before it becomes the program.
    fn add_thread(&mut self, process: Process, thread: Process) -> io::Result<()> {
        let Some(member) = self.contents.members.get(&process) else { return Ok(()) };
        let (Some(mut was), Ok(now)) = (member.original(process, thread), now(thread)) else {
            return Ok(());
        };
        let may_set = is_fair(now.attributes) && is_fair(was.attributes);
        let is_known = same(now.attributes, was.attributes)
            || self.contents.may_have_set(now.attributes, was.attributes);
        if may_set && !is_known {
            // A thread that joined by itself was never set.
            let is_own = self.contents.has(process, thread);
            was.attributes = match is_own {
                true => now.attributes,
                false => self.levels.chosen(was.attributes, now.attributes),
            };
            self.journal.append(&[Entry::Thread(ThreadEntry::new(process, thread, &was))])?;
        }
        let class = self.class_of(thread.pid, process, was);
        let known =
            WatchedThread { process, began: thread.began, was, class, set: None, times: None };
        self.known.insert(thread.pid, known);
        if may_set {
            self.set(thread.pid, class, now.attributes);
        }
        Ok(())
    }

    fn class_of(&self, tid: u32, process: Process, was: Original) -> Class {
        self.classes.of_thread(tid, process.pid, was.attributes.nice > 0)
    }

    /// Rechecks a thread's name and nice value: a raised value says that the thread is less urgent. Anything else
    /// that other programs have set stays (F2).
    fn recheck(&mut self, thread: Process, mut known: WatchedThread) -> io::Result<()> {
        let (Some(set), Ok(now)) = (known.set, scheduling::attributes(thread.pid)) else {
            return Ok(());
        };
        if !same(now, set) {
            if now.scheduling != set.scheduling || now.nice <= set.nice {
                self.known.insert(thread.pid, WatchedThread { set: None, ..known });
                return Ok(());
            }
            known.was.attributes = self.levels.chosen(known.was.attributes, now);
            let entry = ThreadEntry::new(known.process, thread, &known.was);
            self.journal.append(&[Entry::Thread(entry)])?;
            self.known.insert(thread.pid, known);
        }
        let class = self.class_of(thread.pid, known.process, known.was);
        if class != known.class || !same(now, set) {
            self.set(thread.pid, class, now);
        }
        Ok(())
    }

    /// Sets a thread to the level of its class.
    fn set(&mut self, tid: u32, class: Class, now: Attributes) {
        let Some(known) = self.known.get_mut(&tid) else { return };
        let wanted = self.levels.attributes(class, known.was.attributes, self.starved);
        let done = match same(now, wanted) {
            true => Ok(Some(())),
            false => unless_gone(scheduling::set_attributes(tid, wanted)),
        };
        known.class = class;
        match done {
            Ok(there) => known.set = there.map(|()| wanted),
            Err(error) => {
                known.set = None;
                self.failed = Some(format!("cannot set thread {tid}: {error}"));
            }
        }
    }

    /// Raises the groups of processes with latency-critical threads (F4), and restores those that have none any
    /// more: a program started by `nice` is best-effort only once `nice` has become the program.
    fn raise_groups(&mut self) -> io::Result<()> {
        if !self.levels.lc_first() {
            return Ok(());
        }
        let lc = self.known.values().filter(|it| it.class == Class::LC && it.set.is_some());
        let processes: BTreeSet<u32> = lc.map(|known| known.process.pid).collect();
        let mut wanted = BTreeSet::new();
        for pid in processes {
            let Some(group) = Group::of(pid) else { continue };
            if wanted.insert(group.clone()) && !self.groups.contains(&group) {
                self.raise(group, pid)?;
            }
        }
        let entries = self.contents.groups.iter();
        for entry in entries.filter(|entry| self.groups.contains(&entry.group)) {
            if !wanted.contains(&entry.group)
                && let Err(error) = restore(entry)
            {
                self.failed = Some(format!("cannot restore {}: {error}", entry.group));
            }
        }
        self.groups = wanted;
        Ok(())
    }

    /// Raises the group of `pid`, unless it is high enough.
    fn raise(&mut self, group: Group, pid: u32) -> io::Result<()> {
        if let Some(was) = group.weight(pid)
            && let Some(set) = group.raised(was)
        {
            let entry = GroupEntry { group: group.clone(), was, set };
            self.journal.append(&[Entry::Group(entry)])?;
            if let Err(error) = group.set(pid, set) {
                self.failed = Some(format!("cannot raise {group}: {error}"));
            }
        }
        Ok(())
    }

    /// Makes best-effort threads ordinary if they have got nothing since the last check, and idle again if they
    /// have had enough.
    fn update_starvation(&mut self, passed: Option<Duration>) {
        let (mut ran, mut waited) = (0, 0);
        let be = self.known.iter_mut().filter(|(_, it)| it.class != Class::LC && it.set.is_some());
        for (tid, known) in be {
            let Some(now) = times(*tid) else { continue };
            if let Some(then) = known.times.replace(now) {
                ran += now.0.saturating_sub(then.0);
                waited += now.1.saturating_sub(then.1);
            }
        }
        let Some(passed) = passed.and_then(|passed| u64::try_from(passed.as_nanos()).ok()) else {
            return;
        };
        let all = passed * self.contents.cpus.len().max(1) as u64;
        let starved = starve(self.starved, ran, waited, passed, all);
        if starved != self.starved {
            self.starved = starved;
            self.set_best_effort();
        }
    }

    fn set_best_effort(&mut self) {
        let be = self.known.iter().filter(|(_, it)| it.class != Class::LC && it.set.is_some());
        let be: Vec<(u32, Class)> = be.map(|(tid, known)| (*tid, known.class)).collect();
        for (tid, class) in be {
            if let Ok(now) = scheduling::attributes(tid) {
                self.set(tid, class, now);
            }
        }
    }

    fn report(&self, policy: &str) -> Report {
        let mut threads = BTreeMap::new();
        for known in self.known.values() {
            let what = match (known.set, known.class) {
                (None, _) => "left",
                (Some(_), Class::LC) => "lc",
                (Some(_), _) => "be",
            };
            *threads.entry(what.to_owned()).or_insert(0) += 1;
        }
        Report {
            policy: policy.to_owned(),
            agents: "options".into(),
            backend: "fair".into(),
            at_ns: clock::now().0,
            phase: "active".into(),
            threads: self.known.len() as u64,
            cpus: self.contents.cpus.iter().copied().collect(),
            rounds: self.looks,
            agents_cpu_ns: Some(clock::thread_cpu_time().0),
            share_limit: u64::from(100 / PART).min(SHARE),
            fair: Some(FairReport {
                threads,
                be_raised: self.starved,
                groups: self.groups.iter().map(ToString::to_string).collect(),
                failed: self.failed.clone(),
            }),
            ..Report::default()
        }
    }
}

/// Whether best-effort threads, which starve `now` or not, starve after they `ran` and `waited` for these times
/// while `passed` went by and `all` was the CPUs' total.
fn starve(now: bool, ran: u64, waited: u64, passed: u64, all: u64) -> bool {
    match now {
        false => waited >= passed / 2 && ran < all / STARVED,
        true => waited > 0 && ran <= all / ENOUGH,
    }
}

/// Returns how long a thread has run and has waited for a CPU, in ns.
fn times(tid: u32) -> Option<(u64, u64)> {
    let text = fs::read_to_string(format!("/proc/{tid}/schedstat")).ok()?;
    let mut numbers = text.split_whitespace().map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_threads_without_cpu_time_starve_until_they_have_enough() {
        const S: u64 = 1_000_000_000;
        let starves = |ran, waited| starve(false, ran, waited, S, S);
        assert!(starves(S / 100, S));
        assert!(!starves(S / 10, S), "a tenth is something");
        assert!(!starves(0, S / 10), "a thread that hardly wants a CPU does not starve");
        let still = |ran, waited| starve(true, ran, waited, S, S);
        assert!(still(S / 30, S) && still(S / 5, S));
        assert!(!still(S / 2, S) && !still(S / 100, 0));
        assert!(starve(false, S / 30, 2 * S, S, 4 * S), "of four CPUs");
    }
}
