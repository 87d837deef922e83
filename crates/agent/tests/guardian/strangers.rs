//! What other users can do to an enclave's folders, locks and socket: nothing. They are real users, so this takes root.

use crate::bench::{Bench, fine, until};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Nobody.
const STRANGER: u32 = 65534;

fn may() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: being several users takes root");
    }
    root
}

/// A stranger who has the lock on a file, as far as he gets it.
struct Stranger(Child);

impl Stranger {
    fn locks(path: &Path) -> Stranger {
        let mut command = Command::new("flock");
        command.arg("--exclusive").arg(path).args(["sleep", "1000"]);
        command.uid(STRANGER).gid(STRANGER).stderr(Stdio::null());
        Stranger(command.spawn().expect("flock, of util-linux"))
    }

    /// Whether the lock is his.
    fn has_it(&mut self, path: &Path) -> bool {
        let mut has = false;
        until(|| {
            let refused = self.0.try_wait().expect("a child").is_some();
            has = !refused
                && !Command::new("flock")
                    .args(["--nonblock", "--shared"])
                    .arg(path)
                    .arg("true")
                    .status()
                    .expect("flock")
                    .success();
            has || refused
        });
        has
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_stranger_gets_no_lock_and_keeps_nobody_waiting() {
    if !may() {
        return;
    }
    let bench = Bench::new();
    bench.open_to_all();
    let mut first = bench.start_with("", "name=one", &["sleep", "1000"]);
    bench.record_when(|record| record["pid"].is_number());
    let files: Vec<_> = [".lock", ".making.lock", "one/lock", "one/guardian.json"]
        .into_iter()
        .map(|name| bench.enclaves().join(name))
        .filter(|path| path.exists())
        .collect();
    assert!(files.len() > 2, "{files:?}");
    let strangers: Vec<_> = files.iter().map(|file| Stranger::locks(file)).collect();
    std::thread::sleep(std::time::Duration::from_millis(100));
    first.signal(Signal::TERM);
    assert_eq!(first.code(), 143);
    let mut next = bench.start("", &["sh", "-c", "exit 3"]);
    assert_eq!(next.code(), 3, "{}", next.said());
    for mut stranger in strangers {
        until(|| stranger.0.try_wait().expect("a child").is_some());
    }
    bench.is_clean();
}

#[test]
fn folders_and_files_are_closed_to_others() {
    if !may() {
        return;
    }
    let bench = Bench::new();
    let _guardian = bench.start_with("", "name=one", &["sleep", "1000"]);
    bench.record_when(|record| record["pid"].is_number());
    until(|| bench.enclaves().join("one/control").exists());
    let mut open = Vec::new();
    for folder in [bench.enclaves(), bench.enclaves().join("one")] {
        let inside = fs::read_dir(&folder).expect("a folder").flatten().map(|entry| entry.path());
        open.extend(inside.chain([folder]).filter(|path| {
            fs::symlink_metadata(path).is_ok_and(|meta| meta.permissions().mode() & 0o077 != 0)
        }));
    }
    assert!(open.is_empty(), "{open:?}");
}

/// What an older Heddle left: its folders and locks could be opened by anybody, and somebody has opened them.
#[test]
fn a_lock_that_a_stranger_has_since_an_older_heddle_makes_no_dead_guardian_look_alive() {
    if !may() {
        return;
    }
    let bench = Bench::new();
    bench.open_to_all();
    let mut dead = bench.start_with(
        "",
        "name=one;cleaner=dead",
        &["sh", "-c", "while ! [ -e $GUARDIAN_TEST_LOG.end ]; do sleep 0.01; done"],
    );
    let record = bench.record_when(|record| record["pid"].is_number());
    // Its agent is not to clean up for it.
    bench.kill(&record["agent"], Signal::STOP);
    let enclaves = bench.enclaves();
    fs::write(enclaves.join(".lock"), "").expect("a file");
    for (name, mode) in [("", 0o755), ("one", 0o755), (".lock", 0o644), ("one/lock", 0o644)] {
        fs::set_permissions(enclaves.join(name), fs::Permissions::from_mode(mode)).expect("ours");
    }
    dead.signal(Signal::KILL);
    assert_eq!(dead.code(), 137);
    let mut strangers: Vec<_> = [".lock", "one/lock"]
        .map(|name| (Stranger::locks(&enclaves.join(name)), enclaves.join(name)))
        .into();
    assert!(strangers.iter_mut().all(|(stranger, path)| stranger.has_it(path)));
    let mut next = bench.start("", &["sh", "-c", "exit 3"]);
    assert_eq!(next.code(), 3, "{}", next.said());
    assert!(next.said().contains("had died: removed what it left"), "{}", next.said());
    drop(strangers);
    fs::remove_file(enclaves.join(".lock")).expect("ours");
    bench.is_clean();
}

#[test]
fn a_folder_that_a_stranger_put_there_is_refused_with_advice() {
    if !may() {
        return;
    }
    let bench = Bench::new();
    let run = bench.enclaves().parent().expect("a folder").to_owned();
    fs::create_dir(&run).expect("ours");
    symlink("/tmp", bench.enclaves()).expect("ours");
    let said = |bench: &Bench| {
        let mut guardian = bench.start("", &["sh", "-c", "exit 0"]);
        assert_eq!(guardian.code(), 1);
        guardian.said()
    };
    assert!(said(&bench).contains("is a symbolic link; remove it"));
    fs::remove_file(bench.enclaves()).expect("ours");
    fs::create_dir(bench.enclaves()).expect("ours");
    std::os::unix::fs::chown(bench.enclaves(), Some(STRANGER), None).expect("root");
    assert!(said(&bench).contains("belongs to user 65534"));
}

#[test]
fn a_record_cannot_name_another_enclave() {
    let bench = Bench::new();
    let _guardian = bench.start_with("", "name=one", &["sleep", "1000"]);
    let mut record = bench.record_when(|record| record["pid"].is_number());
    let other = bench.enclaves().join("two");
    fs::create_dir(&other).expect("ours");
    record["guardian"] = 4_000_000.into();
    fs::write(other.join("guardian.json"), record.to_string()).expect("ours");
    fs::write(other.join("lock"), "").expect("ours");
    let mut next = bench.start_with("", "name=three", &["sh", "-c", "exit 0"]);
    assert_eq!(next.code(), 2);
    assert!(next.said().contains("CPU 0 belongs to the enclave `one`"), "{}", next.said());
    assert!(!bench.log().contains(&"undone".into()), "{:?}", bench.log());
}

#[test]
fn an_upgrade_runs_what_came_along_and_nothing_that_others_may_write_to() {
    let bench = Bench::new();
    let _guardian = bench.start("", &["sleep", "1000"]);
    let old = bench.record_when(|record| record["pid"].is_number());
    let writable = bench.enclaves().parent().expect("a folder").join("writable");
    fs::copy("/bin/sh", &writable).expect("ours");
    fs::set_permissions(&writable, fs::Permissions::from_mode(0o757)).expect("ours");
    let path = writable.to_string_lossy().into_owned();
    let upgrade = r#"{"do":"upgrade","policy":"round-robin:quantum=2ms"}"#;
    for (program, text) in [
        ("", "no program came with it"),
        (path.as_str(), "other users may write to the program; chmod go-w"),
    ] {
        let answer = bench.ask_with(upgrade, program);
        assert!(answer.contains("refused") && answer.contains(text), "{answer}");
    }
    assert_eq!(bench.record_when(|_| true)["agent"], old["agent"]);
    let answer = bench.ask(upgrade);
    assert!(answer.contains(r#""answer":"upgraded""#), "{answer}");
    assert_ne!(fine(&old["policy"]), "round-robin:quantum=2ms");
}
