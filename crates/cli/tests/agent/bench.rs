//! An isolated room, a multi-threaded program in it, and its threads as the kernel reports them.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use heddle_agent::guardian::{Backends as _, KernelBackends, Kind};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::room::Room;

use heddle_test_support::PATIENCE;
pub use heddle_test_support::{Running, until};

/// Returns the only CPU that the tests use: the last, since every machine has one. The others stay free.
pub fn cpu() -> String {
    let online = fs::read_to_string("/sys/devices/system/cpu/online").expect("sysfs");
    online.trim().rsplit([',', '-']).next().expect("a CPU").to_owned()
}

/// Returns another CPU, for tests of enclaves that get others; their threads must leave it time. Prints a line and
/// returns `None` if there is none.
pub fn other_cpu() -> Option<String> {
    let other = cpu().parse::<u32>().ok().and_then(|cpu| cpu.checked_sub(1));
    let is_there = |cpu: &u32| {
        let file = format!("/sys/devices/system/cpu/cpu{cpu}/online");
        // CPU 0 may have no such file.
        fs::read_to_string(file).map_or(*cpu == 0, |text| text.trim() == "1")
    };
    let other = other.filter(is_there).map(|cpu| cpu.to_string());
    if other.is_none() {
        eprintln!("skipped: this machine has no two CPUs in a row");
    }
    other
}

/// A place for enclaves and their programs.
pub struct Bench {
    /// `None` in the guest of the virtual-machine tests, which is isolated as a whole.
    room: Option<Room>,
    folder: tempfile::TempDir,
    /// Tests run one at a time, since they share a CPU.
    _turn: MutexGuard<'static, ()>,
}

/// Files that stay: locks of agents and of steering, which `heddle top` reads, too.
const KEPT: [&str; 3] = [".making.lock", ".debug", "/run/heddle/lock"];

static TURN: Mutex<()> = Mutex::new(());

/// Waits for earlier tests, whether or not they passed.
fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Bench {
    /// For tests on the real-time backend. Prints a line and returns `None` if it does not work here.
    pub fn new() -> Option<Bench> {
        Bench::on(Kind::Rt)
    }

    /// The same on another backend.
    pub fn on(backend: Kind) -> Option<Bench> {
        let room = Room::new()?;
        if let Err(missing) = KernelBackends.probe(backend) {
            eprintln!("skipped: {missing}");
            return None;
        }
        Some(Bench {
            room: Some(room),
            folder: tempfile::tempdir().expect("a folder"),
            _turn: turn(),
        })
    }

    /// In the guest of `make test-vm`. Elsewhere prints a line and returns `None`.
    pub fn in_guest() -> Option<Bench> {
        if std::env::var_os("HEDDLE_VM").is_none() {
            eprintln!("skipped: not in a guest of scripts/vm (make test-vm)");
            return None;
        }
        Some(Bench { room: None, folder: tempfile::tempdir().expect("a folder"), _turn: turn() })
    }

    fn in_room(&self, program: &str, arguments: &[&str]) -> Command {
        match &self.room {
            Some(room) => room.command(program, arguments),
            None => {
                let mut command = Command::new(program);
                command.args(arguments).stdin(Stdio::null());
                command
            }
        }
    }

    /// The program of these tests: this binary, which runs hogs and sleepers until the end file exists, and
    /// exits with 9.
    pub fn program(&self) -> Vec<String> {
        let me = std::env::current_exe().expect("this test");
        vec![
            me.to_string_lossy().into_owned(),
            "--exact".into(),
            "program".into(),
            "--nocapture".into(),
        ]
    }

    fn end_file(&self) -> PathBuf {
        self.folder.path().join("end")
    }

    /// Makes programs end.
    pub fn end(&self) {
        fs::write(self.end_file(), "").expect("a file");
    }

    /// Starts `heddle agent` with these arguments.
    pub fn start(&self, arguments: &[&str], program: &[String]) -> Running {
        Running::start_logged(&mut self.command(arguments, program))
    }

    /// The same under another command with its arguments, such as `strace`.
    pub fn start_under(&self, wrapper: &[&str], arguments: &[&str]) -> Running {
        let all = [&wrapper[1..], &[env!("CARGO_BIN_EXE_heddle"), "agent"], arguments].concat();
        Running::start_logged(&mut self.in_room(wrapper[0], &all))
    }

    /// The path of a file in the test's folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns `heddle agent` with these arguments.
    pub fn command(&self, arguments: &[&str], program: &[String]) -> Command {
        let mut all = vec!["agent"];
        all.extend(arguments);
        if !program.is_empty() {
            all.push("--");
            all.extend(program.iter().map(String::as_str));
        }
        let mut command = self.in_room(env!("CARGO_BIN_EXE_heddle"), &all);
        command.env("AGENT_TEST_END", self.end_file());
        command
    }

    /// Returns any other command in the room.
    pub fn other(&self, program: &str, arguments: &[&str]) -> Command {
        self.in_room(program, arguments)
    }

    /// Runs another command of `heddle` to its end, and returns its output.
    pub fn heddle(&self, arguments: &[&str]) -> String {
        let output = self.in_room(env!("CARGO_BIN_EXE_heddle"), arguments).output();
        let output = output.expect("it starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs `heddle agent` to its end.
    pub fn run(&self, arguments: &[&str], program: &[&str]) -> Output {
        let program: Vec<String> = program.iter().map(|word| (*word).to_owned()).collect();
        self.command(arguments, &program).output().expect("it starts")
    }

    /// Returns the output of `heddle agent status --json`.
    pub fn status(&self) -> Value {
        let output = self.run(&["status", "--json"], &[]);
        serde_json::from_slice(&output.stdout).expect("one JSON object")
    }

    /// Waits until the only enclave satisfies `so`, and returns it.
    #[track_caller]
    pub fn enclave_when(&self, what: &str, so: impl Fn(&Value) -> bool) -> Value {
        let begin = Instant::now();
        loop {
            let found = self.status()["enclaves"].get(0).cloned().unwrap_or_default();
            if !found.is_null() && so(&found) {
                return found;
            }
            assert!(begin.elapsed() < PATIENCE, "timed out waiting until {what}: {found:#}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Asserts that no enclave and no pin is left.
    #[track_caller]
    pub fn is_clean(&self) {
        assert_eq!(self.status()["enclaves"], serde_json::json!([]));
        let mut list =
            self.in_room("sh", &["-c", "find /sys/fs/bpf /run/heddle -mindepth 1 -type f"]);
        let left = list.output().expect("find");
        let left = String::from_utf8_lossy(&left.stdout).into_owned();
        let left: Vec<&str> =
            left.lines().filter(|line| !KEPT.iter().any(|own| line.ends_with(own))).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // Programs of a failed test end soon after.
        self.end();
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Signals a process that a status names.
pub fn kill(pid: &Value, signal: Signal) {
    let pid = pid.as_i64().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    kill_process(pid.expect("a process"), signal).expect("it is there");
}

/// A thread as the kernel reports it: policy number, CPUs, whether it is runnable, and its CPU time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    pub tid: u32,
    pub policy: i32,
    pub cpus: String,
    pub runnable: bool,
    pub ran_ns: u64,
}

/// Returns the threads of a process.
pub fn threads(pid: &Value) -> Vec<Thread> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| thread(&entry.path())).collect()
}

fn thread(folder: &std::path::Path) -> Option<Thread> {
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
    let (stat, status, schedstat) = (read("stat")?, read("status")?, read("schedstat")?);
    let (_, fields) = stat.rsplit_once(") ")?;
    let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(Thread {
        tid: folder.file_name()?.to_str()?.parse().ok()?,
        policy: fields.split(' ').nth(38)?.parse().ok()?,
        cpus: cpus.trim().to_owned(),
        runnable: fields.starts_with('R'),
        ran_ns: schedstat.split(' ').next()?.parse().ok()?,
    })
}

/// Whether all threads are ordinary, on all CPUs that this process may use.
pub fn are_ordinary(pid: &Value) -> bool {
    let status = fs::read_to_string("/proc/self/status").expect("procfs");
    let mine = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let mine = mine.expect("a list of CPUs").trim();
    let all = threads(pid);
    !all.is_empty() && all.iter().all(|thread| (thread.policy, thread.cpus.as_str()) == (0, mine))
}

/// Waits until every thread of the process has run, except sleeping ones.
#[track_caller]
pub fn all_progress(pid: &Value) {
    let before = threads(pid);
    assert!(!before.is_empty());
    until("all threads have run", || {
        let now = threads(pid);
        before.iter().all(|old| {
            now.iter().any(|new| new.tid == old.tid && (new.ran_ns > old.ran_ns || !new.runnable))
        })
    });
}
