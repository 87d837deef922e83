//! Other users can do nothing to an enclave's folders, locks and socket. The tests use real users, so they need
//! root.

use crate::testbed::{Testbed, fine, until};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The user `nobody`.
const OTHER_USER: u32 = 65534;

fn may() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: being several users takes root");
    }
    root
}

/// A process of another user that holds the lock on a file, if it can get it.
struct LockHolder(Child);

impl LockHolder {
    fn locks(path: &Path) -> LockHolder {
        let mut command = Command::new("flock");
        command.arg("--exclusive").arg(path).args(["sleep", "1000"]);
        command.uid(OTHER_USER).gid(OTHER_USER).stderr(Stdio::null());
        LockHolder(command.spawn().expect("flock, of util-linux"))
    }

    /// Whether it holds the lock.
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

impl Drop for LockHolder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn another_user_gets_no_lock_and_blocks_no_command() {
    if !may() {
        return;
    }
    let testbed = Testbed::new();
    testbed.open_to_all();
    let mut first = testbed.start_with("", "name=one", &["sleep", "1000"]);
    testbed.record_when(|record| record["pid"].is_number());
    let files: Vec<_> = [".lock", ".making.lock", "one/lock", "one/guardian.json"]
        .into_iter()
        .map(|name| testbed.enclaves().join(name))
        .filter(|path| path.exists())
        .collect();
    assert!(files.len() > 2, "{files:?}");
    let holders: Vec<_> = files.iter().map(|file| LockHolder::locks(file)).collect();
    std::thread::sleep(std::time::Duration::from_millis(100));
    first.signal(Signal::TERM);
    assert_eq!(first.exit_code(), 143);
    let mut next = testbed.start("", &["sh", "-c", "exit 3"]);
    assert_eq!(next.exit_code(), 3, "{}", next.stderr());
    for mut holder in holders {
        until(|| holder.0.try_wait().expect("a child").is_some());
    }
    testbed.is_clean();
}

#[test]
fn folders_and_files_are_closed_to_others() {
    if !may() {
        return;
    }
    let testbed = Testbed::new();
    let _guardian = testbed.start_with("", "name=one", &["sleep", "1000"]);
    testbed.record_when(|record| record["pid"].is_number());
    until(|| testbed.enclaves().join("one/control").exists());
    let mut open = Vec::new();
    for folder in [testbed.enclaves(), testbed.enclaves().join("one")] {
        let inside = fs::read_dir(&folder).expect("a folder").flatten().map(|entry| entry.path());
        open.extend(inside.chain([folder]).filter(|path| {
            fs::symlink_metadata(path).is_ok_and(|meta| meta.permissions().mode() & 0o077 != 0)
        }));
    }
    assert!(open.is_empty(), "{open:?}");
}

/// The folders and locks of an older Heddle could be opened by any user, and one has opened them.
#[test]
fn a_lock_held_by_another_user_does_not_make_a_dead_guardian_look_alive() {
    if !may() {
        return;
    }
    let testbed = Testbed::new();
    testbed.open_to_all();
    let mut dead =
        testbed.start_with("", "name=one;cleaner=dead", &["sh", "-c", ". $GUARDIAN_TEST_WAIT"]);
    let record = testbed.record_when(|record| record["pid"].is_number());
    // Its agent must not clean up for it.
    testbed.kill(&record["agent"], Signal::STOP);
    let enclaves = testbed.enclaves();
    fs::write(enclaves.join(".lock"), "").expect("a file");
    for (name, mode) in [("", 0o755), ("one", 0o755), (".lock", 0o644), ("one/lock", 0o644)] {
        fs::set_permissions(enclaves.join(name), fs::Permissions::from_mode(mode)).expect("ours");
    }
    dead.signal(Signal::KILL);
    assert_eq!(dead.exit_code(), 137);
    let mut holders: Vec<_> = [".lock", "one/lock"]
        .map(|name| (LockHolder::locks(&enclaves.join(name)), enclaves.join(name)))
        .into();
    assert!(holders.iter_mut().all(|(holder, path)| holder.has_it(path)));
    let mut next = testbed.start("", &["sh", "-c", "exit 3"]);
    assert_eq!(next.exit_code(), 3, "{}", next.stderr());
    assert!(next.stderr().contains("had died: removed what it left"), "{}", next.stderr());
    drop(holders);
    fs::remove_file(enclaves.join(".lock")).expect("ours");
    testbed.is_clean();
}

#[test]
fn a_folder_of_another_user_is_refused_with_advice() {
    if !may() {
        return;
    }
    let testbed = Testbed::new();
    let run = testbed.enclaves().parent().expect("a folder").to_owned();
    fs::create_dir(&run).expect("ours");
    symlink("/tmp", testbed.enclaves()).expect("ours");
    let said = |testbed: &Testbed| {
        let mut guardian = testbed.start("", &["sh", "-c", "exit 0"]);
        assert_eq!(guardian.exit_code(), 1);
        guardian.stderr()
    };
    assert!(said(&testbed).contains("is a symbolic link; remove it"));
    fs::remove_file(testbed.enclaves()).expect("ours");
    fs::create_dir(testbed.enclaves()).expect("ours");
    std::os::unix::fs::chown(testbed.enclaves(), Some(OTHER_USER), None).expect("root");
    assert!(said(&testbed).contains("belongs to user 65534"));
}

#[test]
fn a_record_cannot_name_another_enclave() {
    let testbed = Testbed::new();
    let _guardian = testbed.start_with("", "name=one", &["sleep", "1000"]);
    let mut record = testbed.record_when(|record| record["pid"].is_number());
    let other = testbed.enclaves().join("two");
    fs::create_dir(&other).expect("ours");
    record["guardian"] = 4_000_000.into();
    fs::write(other.join("guardian.json"), record.to_string()).expect("ours");
    fs::write(other.join("lock"), "").expect("ours");
    let mut next = testbed.start_with("", "name=three", &["sh", "-c", "exit 0"]);
    assert_eq!(next.exit_code(), 2);
    assert!(next.stderr().contains("CPU 0 belongs to the enclave `one`"), "{}", next.stderr());
    assert!(!testbed.log().contains(&"undone".into()), "{:?}", testbed.log());
}

#[test]
fn an_upgrade_runs_the_sent_file_unless_others_may_write_to_it() {
    let testbed = Testbed::new();
    let _guardian = testbed.start("", &["sleep", "1000"]);
    let old = testbed.record_when(|record| record["pid"].is_number());
    let writable = testbed.enclaves().parent().expect("a folder").join("writable");
    fs::copy("/bin/sh", &writable).expect("ours");
    fs::set_permissions(&writable, fs::Permissions::from_mode(0o757)).expect("ours");
    let path = writable.to_string_lossy().into_owned();
    let upgrade = r#"{"do":"upgrade","policy":"round-robin:quantum=2ms"}"#;
    for (program, text) in [
        ("", "no program was sent with it"),
        (path.as_str(), "the program is writable by other users; chmod go-w"),
    ] {
        let answer = testbed.ask_with(upgrade, program);
        assert!(answer.contains("refused") && answer.contains(text), "{answer}");
    }
    assert_eq!(testbed.record_when(|_| true)["agent"], old["agent"]);
    let answer = testbed.ask(upgrade);
    assert!(answer.contains(r#""answer":"upgraded""#), "{answer}");
    assert_ne!(fine(&old["policy"]), "round-robin:quantum=2ms");
}
