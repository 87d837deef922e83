//! The test environment: a folder, a guardian in a process of its own, and their output.

use heddle_test_support::Running;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Waits until the condition holds.
#[track_caller]
pub fn until(so: impl FnMut() -> bool) {
    heddle_test_support::until("the condition holds", so);
}

/// Returns the text of a JSON value.
pub fn fine(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Whether the process exists and is not a zombie.
pub fn is_alive(pid: u64) -> bool {
    u32::try_from(pid).is_ok_and(heddle_test_support::is_alive)
}

/// A folder for enclaves, and a log.
pub struct Testbed {
    folder: tempfile::TempDir,
}

/// What a program includes that waits for [`Testbed::end`], or for the end of the test.
const WAIT: &str = "while [ -d ${GUARDIAN_TEST_LOG%/*} ] && ! [ -e $GUARDIAN_TEST_LOG.end ]; do sleep 0.01; done\n";

impl Testbed {
    pub fn new() -> Testbed {
        let testbed = Testbed { folder: tempfile::tempdir().expect("a folder") };
        fs::write(testbed.wait_path(), WAIT).expect("a file");
        testbed
    }

    fn wait_path(&self) -> PathBuf {
        self.folder.path().join("wait")
    }

    fn log_path(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// Returns what agent, backend and program have logged.
    pub fn log(&self) -> Vec<String> {
        let text = fs::read_to_string(self.log_path()).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Starts a guardian of `program` whose agent has this fault.
    pub fn start(&self, fault: &str, program: &[&str]) -> Running {
        self.start_with(fault, "", program)
    }

    /// As [`Testbed::start`], with settings.
    pub fn start_with(&self, fault: &str, settings: &str, program: &[&str]) -> Running {
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command.args(["--exact", "guardian", "--nocapture", "--test-threads=1"]);
        command.env("GUARDIAN_TEST", settings).env("GUARDIAN_TEST_PROGRAM", program.join("\x1f"));
        command.env("GUARDIAN_TEST_AGENT", fault).env("GUARDIAN_TEST_LOG", self.log_path());
        command.env("GUARDIAN_TEST_WAIT", self.wait_path());
        command.env("HEDDLE_RUN", self.folder.path().join("run"));
        Running::start_logged(command.stdin(Stdio::null()))
    }

    /// Returns the only enclave's record, once it satisfies the condition.
    #[track_caller]
    pub fn record_when(&self, so: impl Fn(&Value) -> bool) -> Value {
        let mut found = Value::Null;
        until(|| {
            let enclaves =
                fs::read_dir(self.folder.path().join("run/agent")).into_iter().flatten().flatten();
            let texts =
                enclaves.filter_map(|entry| fs::read(entry.path().join("guardian.json")).ok());
            let record = texts.filter_map(|text| serde_json::from_slice(&text).ok()).next();
            found = record.unwrap_or_default();
            !found.is_null() && so(&found)
        });
        found
    }

    /// Returns the folder of all enclaves.
    pub fn enclaves(&self) -> PathBuf {
        self.folder.path().join("run/agent")
    }

    /// Lets other users reach the enclaves, as they can reach /run/heddle.
    pub fn open_to_all(&self) {
        let all = fs::Permissions::from_mode(0o755);
        fs::set_permissions(self.folder.path(), all).expect("ours");
    }

    /// Sends a request and returns the guardian's answer. The client is Python, as its agents are.
    pub fn ask(&self, request: &str) -> String {
        self.ask_with(request, "python3")
    }

    /// As [`Testbed::ask`], with a client that sends `program` along.
    pub fn ask_with(&self, request: &str, program: &str) -> String {
        let name = fine(&self.record_when(|_| true)["name"]).to_owned();
        self.ask_enclave(&name, request, program)
    }

    /// As [`Testbed::ask_with`], of one of several enclaves.
    pub fn ask_enclave(&self, name: &str, request: &str, program: &str) -> String {
        let socket = self.folder.path().join("run/agent").join(name).join("control");
        until(|| socket.exists());
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/guardian/ask.py");
        let mut command = Command::new("python3");
        let output =
            command.arg(script).arg(socket).arg(request).arg(program).output().expect("python3");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Sends a signal to a process that a record names.
    pub fn kill(&self, pid: &Value, signal: Signal) {
        let pid = pid.as_i64().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        kill_process(pid.expect("a process"), signal).expect("it is there");
    }

    /// Ends the program.
    pub fn end(&self) {
        fs::write(self.folder.path().join("log.end"), "").expect("a file");
    }

    /// Ends the backend under the enclave, for this reason.
    pub fn end_backend(&self, why: &str) {
        let part = self.folder.path().join("log.part");
        fs::write(&part, why).expect("a file");
        fs::rename(part, self.folder.path().join("log.ended")).expect("a file");
    }

    /// Makes the enclave an orphan.
    pub fn orphan(&self) {
        fs::write(self.folder.path().join("log.orphan"), "").expect("a file");
    }

    /// Returns the CPUs that are online, as the guardian has reported to the backend.
    pub fn online(&self) -> String {
        fs::read_to_string(self.folder.path().join("log.online")).unwrap_or_default()
    }

    /// Checks that no record is left.
    #[track_caller]
    pub fn is_clean(&self) {
        let left =
            fs::read_dir(self.folder.path().join("run/agent")).into_iter().flatten().flatten();
        let left: Vec<_> =
            left.map(|entry| entry.file_name()).filter(|name| name != ".making.lock").collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        // Programs of a failed test.
        self.end();
    }
}
