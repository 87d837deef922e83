//! The journal: the original settings of threads and groups, on file. Undoing an enclave needs nothing else.
//!
//! - **J1** A change is recorded before it is made.
//! - **J2** Of several entries on a thread the last one holds. A thread without an entry is restored to its
//!   process's first thread's settings.
//! - **J3** Guardian and agent both write, under a lock. A line that a kill cut off is skipped.

use super::groups::Group;
use super::levels::Levels;
use crate::private::{self, Lock};
use heddle_core::Ns;
use heddle_sys::processes::{self, Process};
use heddle_sys::scheduling::{Attributes, Mask, Scheduling};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long another process may hold the lock.
const WAITING: Duration = Duration::from_secs(5);

/// The original settings of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Original {
    pub attributes: Attributes,
    pub mask: Mask,
}

/// A line of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Entry {
    /// The enclave's CPUs.
    Cpus(Vec<u32>),
    /// The present levels, which threads are set to from now on.
    Levels(Levels),
    /// A thread joins.
    Thread(ThreadEntry),
    /// The weight of a scheduling group changes.
    Group(GroupEntry),
}

/// A joining thread and its original settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ThreadEntry {
    process: u32,
    /// The start time of its process, in the kernel's ticks.
    process_began: u64,
    thread: u32,
    began: u64,
    policy: u32,
    priority: u32,
    nice: i32,
    slice_ns: u64,
    mask: Vec<u64>,
}

/// A scheduling group whose weight changes, in the unit of its file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct GroupEntry {
    pub group: Group,
    pub was: i64,
    pub set: i64,
}

impl ThreadEntry {
    pub fn new(process: Process, thread: Process, was: &Original) -> ThreadEntry {
        let Attributes { scheduling, nice, slice } = was.attributes;
        ThreadEntry {
            process: process.pid,
            process_began: process.began,
            thread: thread.pid,
            began: thread.began,
            policy: scheduling.number(),
            priority: scheduling.priority,
            nice,
            slice_ns: slice.0,
            mask: was.mask.to_vec(),
        }
    }

    fn original(&self) -> Option<Original> {
        let scheduling = Scheduling::from_number(self.policy, self.priority)?;
        let attributes = Attributes { scheduling, nice: self.nice, slice: Ns(self.slice_ns) };
        Some(Original { attributes, mask: self.mask.clone().try_into().ok()? })
    }
}

/// A process with threads in the enclave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Member {
    /// Its threads that have entries: their start times and original settings.
    threads: BTreeMap<u32, (u64, Original)>,
}

impl Member {
    /// Returns the original settings of `thread` of `process` (J2).
    pub fn original(&self, process: Process, thread: Process) -> Option<Original> {
        let own = self.threads.get(&thread.pid).filter(|(began, _)| *began == thread.began);
        let first = || self.threads.get(&process.pid).or_else(|| self.threads.values().next());
        own.or_else(first).map(|(_, was)| *was)
    }
}

/// The content of the journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Contents {
    pub cpus: BTreeSet<u32>,
    /// All levels that threads may have been set to; the last one is in effect.
    pub levels: Vec<Levels>,
    pub members: BTreeMap<Process, Member>,
    pub groups: Vec<GroupEntry>,
}

impl Contents {
    /// Whether the enclave may have set a thread's present attributes.
    pub fn may_have_set(&self, now: Attributes, was: Attributes) -> bool {
        self.levels.iter().any(|levels| levels.may_have_set(now, was))
    }

    /// Returns the enclave's CPUs among a thread's own; all of its own if there is none.
    pub fn confined(&self, own: &Mask) -> Mask {
        let mut both: Mask = [0; 16];
        for &cpu in &self.cpus {
            let (word, bit) = (cpu as usize / 64, cpu % 64);
            if let (Some(both), Some(own)) = (both.get_mut(word), own.get(word)) {
                *both |= own & (1 << bit);
            }
        }
        if both == [0; 16] { *own } else { both }
    }

    /// Returns the original settings that a process has or inherits from an ancestor in the enclave; none for other
    /// processes.
    pub fn inherited(&self, process: Process) -> Option<Original> {
        let was = |of: &Process| self.members.get(of)?.original(*of, *of);
        if let Some(was) = was(&process) {
            return Some(was);
        }
        let lives = self.members.keys().filter(|member| member.lives());
        let families = processes::families(lives.map(|member| member.pid));
        families.iter().find(|(_, child)| *child == process).and_then(|(root, _)| was(root))
    }

    /// Whether `thread` of `process` has an entry of its own.
    pub fn has(&self, process: Process, thread: Process) -> bool {
        let threads = self.members.get(&process).map(|member| &member.threads);
        let entry = threads.and_then(|threads| threads.get(&thread.pid));
        entry.is_some_and(|(began, _)| *began == thread.began)
    }

    fn parse(text: &str) -> Contents {
        let mut contents = Contents::default();
        let entries = text.lines().filter_map(|line| serde_json::from_str(line).ok());
        entries.for_each(|entry| contents.add(entry));
        contents
    }

    fn add(&mut self, entry: Entry) {
        match entry {
            Entry::Cpus(cpus) => self.cpus = cpus.into_iter().collect(),
            Entry::Levels(levels) => self.levels.push(levels),
            Entry::Group(entry) => self.groups.push(entry),
            Entry::Thread(entry) => {
                let process = Process { pid: entry.process, began: entry.process_began };
                let thread = Process { pid: entry.thread, began: entry.began };
                let member = self.members.entry(process).or_default();
                if let Some(was) = entry.original() {
                    member.threads.insert(thread.pid, (thread.began, was));
                }
            }
        }
    }

    fn entries(&self) -> Vec<Entry> {
        let mut entries = vec![Entry::Cpus(self.cpus.iter().copied().collect())];
        entries.extend(self.levels.iter().copied().map(Entry::Levels));
        for (&process, member) in &self.members {
            let threads = member.threads.iter().map(|(&pid, (began, was))| {
                Entry::Thread(ThreadEntry::new(process, Process { pid, began: *began }, was))
            });
            entries.extend(threads);
        }
        entries.extend(self.groups.iter().cloned().map(Entry::Group));
        entries
    }
}

/// Distinguishes one state of the file from another.
pub(super) type Stamp = (u64, u64);

/// The journal of one enclave.
#[derive(Clone, Debug)]
pub(super) struct Journal(PathBuf);

impl Journal {
    /// Returns the journal in the enclave's folder.
    pub fn at(folder: &Path) -> Journal {
        Journal(folder.join("journal"))
    }

    /// Creates the journal, replacing an old one.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn create(&self, cpus: &[u32]) -> io::Result<()> {
        let _lock = self.lock()?;
        private::file(&self.0)?.set_len(0)?;
        self.write(&[Entry::Cpus(cpus.to_vec())])
    }

    /// Appends entries.
    ///
    /// # Errors
    /// If the file cannot be written, or another process keeps the lock.
    pub fn append(&self, entries: &[Entry]) -> io::Result<()> {
        if entries.is_empty() {
            return Ok(());
        }
        let _lock = self.lock()?;
        self.write(entries)
    }

    fn write(&self, entries: &[Entry]) -> io::Result<()> {
        let mut file = private::file(&self.0)?;
        file.seek(io::SeekFrom::End(0))?;
        write_to(&mut file, entries)
    }

    /// Reads the journal; empty if there is no file.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read(&self) -> io::Result<Contents> {
        let mut text = Vec::new();
        match private::existing_file(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            opened => drop(opened?.read_to_end(&mut text)?),
        }
        Ok(Contents::parse(&String::from_utf8_lossy(&text)))
    }

    /// Returns a value that changes with the file.
    pub fn stamp(&self) -> Stamp {
        fs::metadata(&self.0).map_or((0, 0), |meta| (meta.ino(), meta.len()))
    }

    /// Drops processes that have ended.
    ///
    /// # Errors
    /// If the file cannot be written; then nothing has changed.
    pub fn compact(&self) -> io::Result<()> {
        let _lock = self.lock()?;
        let mut contents = self.read()?;
        contents.members.retain(|process, _| process.lives());
        let part = self.0.with_extension("part");
        let mut file = private::file(&part)?;
        file.set_len(0)?;
        write_to(&mut file, &contents.entries())?;
        fs::rename(part, &self.0)
    }

    /// Removes the journal.
    pub fn remove(&self) {
        let _ = fs::remove_file(&self.0);
        let _ = fs::remove_file(self.lock_path());
    }

    fn lock_path(&self) -> PathBuf {
        self.0.with_extension("lock")
    }

    fn lock(&self) -> io::Result<Lock> {
        private::lock(private::file(&self.lock_path())?, WAITING)
    }
}

/// Writes entries with one call, on lines of their own whatever is before them (J3).
fn write_to(file: &mut File, entries: &[Entry]) -> io::Result<()> {
    let mut text = String::from("\n");
    for entry in entries {
        text += &serde_json::to_string(entry)?;
        text.push('\n');
    }
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROCESS: Process = Process { pid: 7, began: 100 };

    fn original(nice: i32) -> Original {
        let attributes =
            Attributes { scheduling: Scheduling::ORDINARY, nice, slice: Ns::from_ms(1) };
        Original { attributes, mask: [3; 16] }
    }

    fn thread(pid: u32, began: u64, nice: i32) -> Entry {
        Entry::Thread(ThreadEntry::new(PROCESS, Process { pid, began }, &original(nice)))
    }

    fn journal() -> (tempfile::TempDir, Journal) {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::at(folder.path());
        journal.create(&[1, 64]).unwrap();
        (folder, journal)
    }

    #[test]
    fn the_last_entry_on_a_thread_holds() {
        let (_folder, journal) = journal();
        let before = journal.stamp();
        journal.append(&[thread(7, 100, 0), thread(8, 101, 9)]).unwrap();
        assert_ne!(journal.stamp(), before);
        journal.append(&[thread(8, 101, 5), Entry::Levels(Levels::of("cfs").unwrap())]).unwrap();
        let contents = journal.read().unwrap();
        let member = &contents.members[&PROCESS];
        let of =
            |pid, began| member.original(PROCESS, Process { pid, began }).unwrap().attributes.nice;
        assert_eq!((of(7, 100), of(8, 101)), (0, 5));
        assert_eq!(
            of(8, 999),
            0,
            "the number is another thread's, which is as its process's first"
        );
        assert_eq!(contents.levels, [Levels::of("cfs").unwrap()]);
        assert_eq!(contents.cpus, [1, 64].into());
    }

    #[test]
    fn a_line_that_was_cut_off_is_skipped_and_nothing_after_it() {
        let (_folder, journal) = journal();
        let mut file = private::file(&journal.0).unwrap();
        file.seek(io::SeekFrom::End(0)).unwrap();
        file.write_all(b"\n{\"thread\":{\"process\":7,\"pro").unwrap();
        journal.append(&[thread(7, 100, 3)]).unwrap();
        assert_eq!(journal.read().unwrap().members.len(), 1);
    }

    #[test]
    fn compacting_drops_ended_processes() {
        let (_folder, journal) = journal();
        let me = Process::of(std::process::id()).unwrap();
        let mine = Entry::Thread(ThreadEntry::new(me, me, &original(2)));
        let group = GroupEntry { group: Group::Autogroup(3), was: 0, set: -15 };
        let levels = Levels::of("priority").unwrap();
        let kept = [Entry::Levels(levels), mine, Entry::Group(group)];
        journal.append(&[&[thread(7, 100, 0)], &kept[..]].concat()).unwrap();
        let mut before = journal.read().unwrap();
        journal.compact().unwrap();
        before.members.remove(&PROCESS);
        assert_eq!(journal.read().unwrap(), before);
    }

    #[test]
    fn threads_are_confined_to_cpus_that_both_have() {
        let contents = Contents { cpus: [1, 64].into(), ..Contents::default() };
        let mut own: Mask = [0; 16];
        (own[0], own[1]) = (0b110, 0b11);
        let mut both: Mask = [0; 16];
        (both[0], both[1]) = (0b10, 0b1);
        assert_eq!(contents.confined(&own), both);
        let mut elsewhere: Mask = [0; 16];
        elsewhere[0] = 0b100;
        assert_eq!(contents.confined(&elsewhere), elsewhere);
    }
}
