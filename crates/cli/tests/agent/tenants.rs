//! A program with two tenants of two threads each, which notice which of the others run while they do.
//!
//! A thread asks, waits for answers, and looks whether the kernel took its CPU meanwhile. If it did not, a thread that
//! has answered ran at the same time: that is proof, whatever the clocks say.

use std::fs::File;
use std::hint::spin_loop;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::program::LIMIT;

/// The threads' names; threads of one name are one tenant.
const THREADS: [&str; 4] = ["tenant1", "tenant1", "tenant2", "tenant2"];
/// How often a thread looks for answers to one question.
const LOOKS: u32 = 20_000;
/// Who was seen to run beside threads of their own tenant, and of the other one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Met {
    /// How often the program has written this.
    pub written: u64,
    pub own: [u64; 2],
    pub foreign: u64,
}

impl Met {
    /// Returns what the program has written to `file` last.
    pub fn read(file: &Path) -> Met {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let numbers: Vec<u64> = text.split_whitespace().filter_map(|n| n.parse().ok()).collect();
        match numbers[..] {
            [written, first, second, foreign] => Met { written, own: [first, second], foreign },
            _ => Met::default(),
        }
    }
}

#[derive(Default)]
struct Thread {
    question: AtomicU64,
    /// The last question that each of the threads has answered here.
    answers: [AtomicU64; THREADS.len()],
    /// How often each of them was met.
    met: [AtomicU64; THREADS.len()],
}

/// Runs until the file that `AGENT_TEST_END` names exists, and keeps what was met in the one that `AGENT_TEST_MET`
/// names. Does nothing if the variables are unset.
pub fn main() {
    let path = |name| std::env::var_os(name).map(PathBuf::from);
    let (Some(end), Some(met)) = (path("AGENT_TEST_END"), path("AGENT_TEST_MET")) else { return };
    let threads: [Thread; THREADS.len()] = Default::default();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (me, name) in THREADS.into_iter().enumerate() {
            let (threads, over) = (&threads, &over);
            let thread = std::thread::Builder::new().name(name.into());
            thread.spawn_scoped(scope, move || ask(me, threads, over)).expect("a thread");
        }
        let begin = Instant::now();
        for written in 1.. {
            if end.exists() || begin.elapsed() > LIMIT {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
            write(&met, written, &threads);
        }
        over.store(true, Ordering::Relaxed);
    });
    std::process::exit(9);
}

fn write(file: &Path, written: u64, threads: &[Thread]) {
    let mut met = Met { written, ..Met::default() };
    for (asked, other) in threads.iter().enumerate() {
        for (answered, count) in other.met.iter().enumerate() {
            let is_own = THREADS[asked] == THREADS[answered];
            let cell = if is_own { &mut met.own[asked / 2] } else { &mut met.foreign };
            *cell += count.load(Ordering::Relaxed);
        }
    }
    let text = format!("{} {} {} {}", met.written, met.own[0], met.own[1], met.foreign);
    let new = file.with_extension("new");
    std::fs::write(&new, text).expect("written");
    std::fs::rename(&new, file).expect("renamed");
}

fn answer(me: usize, threads: &[Thread]) {
    for other in threads {
        let question = other.question.load(Ordering::SeqCst);
        other.answers[me].store(question, Ordering::SeqCst);
    }
}

fn ask(me: usize, threads: &[Thread], over: &AtomicBool) {
    let status = File::open("/proc/thread-self/status").expect("procfs");
    let mine = &threads[me];
    let mut question = 0;
    while !over.load(Ordering::Relaxed) {
        question += 1;
        let before = switches(&status);
        mine.question.store(question, Ordering::SeqCst);
        for _ in 0..LOOKS {
            answer(me, threads);
            spin_loop();
        }
        let answers = mine.answers.iter().map(|cell| cell.load(Ordering::SeqCst));
        let seen: Vec<bool> = answers.map(|answer| answer == question).collect();
        if switches(&status) != before {
            continue;
        }
        for (who, count) in mine.met.iter().enumerate() {
            count.fetch_add(u64::from(seen[who] && who != me), Ordering::Relaxed);
        }
    }
}

/// Returns how often the kernel has taken this thread's CPU.
fn switches(status: &File) -> u64 {
    let mut text = [0; 4096];
    let length = status.read_at(&mut text, 0).expect("procfs");
    let text = String::from_utf8_lossy(&text[..length]);
    let counts = text.lines().filter_map(|line| line.split_once("_ctxt_switches:"));
    counts.map(|(_, count)| count.trim().parse::<u64>().expect("a count")).sum()
}
