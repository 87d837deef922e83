//! The guardian under test, with its backend and its enclave.

use heddle_agent::guardian::{
    Agents, BackendChoice, Backends, Enclaves, Ending, Guardian, GuardianError, Keeper, Kind,
    Options, Workload, cleaner_process, cpus,
};
use heddle_agent::model::{EnclaveWord, Phase};
use heddle_agent::scx::SchedulerExit;
use heddle_agent::{EnclaveSpec, Moved, PickNext};
use heddle_bpf::Fentry;
use heddle_core::Ns;
use heddle_sys::processes::Process;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

fn log() -> PathBuf {
    std::env::var_os("GUARDIAN_TEST_LOG").expect("set by the test").into()
}

fn note(text: &str) {
    let mut file = std::fs::File::options().create(true).append(true).open(log()).expect("the log");
    writeln!(file, "{text}").expect("the log");
}

/// No guardian here loads it.
fn pick_next() -> PickNext {
    let (instructions, shared, maps) = (Vec::new(), Vec::new(), Vec::new());
    PickNext::new(Fentry { name: "test".into(), instructions, shared, maps })
}

/// Runs a guardian as `GUARDIAN_TEST` says. Returns its exit code.
pub fn guardian() -> i32 {
    let settings = std::env::var("GUARDIAN_TEST").unwrap_or_default();
    let setting = |key: &str| {
        settings
            .split(';')
            .find_map(|part| part.strip_prefix(key)?.strip_prefix('='))
            .map(str::to_owned)
    };
    let program: Vec<OsString> = std::env::var("GUARDIAN_TEST_PROGRAM")
        .map(|words| {
            words.split('\x1f').filter(|word| !word.is_empty()).map(OsString::from).collect()
        })
        .unwrap_or_default();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/guardian/agent.py");
    let options = Options {
        name: setting("name"),
        policy: setting("policy").unwrap_or_else(|| "fifo".into()),
        cpus: Some(cpus::parse(&setting("cpus").unwrap_or_else(|| "0".into())).expect("a list")),
        backend: BackendChoice::Only(match setting("backend").as_deref() {
            Some("scx") => Kind::Scx,
            _ => Kind::Rt,
        }),
        agents: if setting("agents").is_some() { Agents::Local } else { Agents::Central },
        spin: false,
        classes: Vec::new(),
        class_map: None,
        pick_next: setting("pick_next").map(|_| pick_next()),
        patience: Some(Ns::from_ms(100)),
        grace: Ns::from_ms(100),
        restarts: setting("restarts").map_or(0, |count| count.parse().expect("a number")),
        workload: if program.is_empty() { Workload::Nothing } else { Workload::Program(program) },
        agent: vec!["python3".into(), script.into(), "agent-process".into()],
        cleaner: match setting("cleaner").as_deref() {
            // As if it were killed.
            Some("dead") => vec!["true".into()],
            _ => cleaner_command(),
        },
        launcher: ["sh", "-c", "kill -STOP $$; exec \"$@\"", "sh"].map(OsString::from).into(),
        quiet: false,
    };
    let ended = Guardian::start(options, &Enclaves::here(), &Fake).and_then(Guardian::run);
    match ended {
        Ok(Ending::Program(code)) => code.into(),
        Ok(Ending::Done) => 0,
        Err(error) => {
            eprintln!("{error}");
            if matches!(error, GuardianError::Failed(_) | GuardianError::System { .. }) {
                1
            } else {
                2
            }
        }
    }
}

/// Returns the command of this test program as [`cleaner`]; the enclave's folder is appended.
fn cleaner_command() -> Vec<OsString> {
    let script = "GUARDIAN_TEST_CLEANS=$1 exec \"$0\" --exact cleaner --nocapture";
    let me = std::env::current_exe().expect("this test");
    vec!["sh".into(), "-c".into(), script.into(), me.into()]
}

/// Runs the cleaner process, if this process is one.
pub fn cleaner() {
    if let Some(folder) = std::env::var_os("GUARDIAN_TEST_CLEANS") {
        cleaner_process(Path::new(&folder), &Fake);
    }
}

struct Fake;

/// An enclave that only records the processes that join. It is an orphan, or has ended, if a file says so.
#[derive(Default)]
struct Enclave {
    members: Mutex<BTreeSet<u32>>,
    ended: Mutex<Option<String>>,
}

impl Backends for Fake {
    fn probe(&self, _: Kind) -> Result<(), String> {
        Ok(())
    }
    fn create(&self, _: Kind, _: &EnclaveSpec) -> Result<Box<dyn Keeper>, GuardianError> {
        Ok(Box::new(Enclave::default()))
    }
    fn undo(&self, _: Kind, _: &str) -> Result<usize, GuardianError> {
        note("undone");
        Ok(0)
    }
}

impl Keeper for Enclave {
    fn enclave(&self) -> EnclaveWord {
        let orphan = Path::new(&log()).with_extension("orphan").exists();
        let phase = if orphan { Phase::Orphan } else { Phase::Active };
        EnclaveWord { phase, ..EnclaveWord::default() }
    }
    fn members(&self) -> Vec<Process> {
        let members = self.members.lock().expect("no panic").clone();
        members.into_iter().filter_map(Process::of).collect()
    }
    fn join(&self, pid: u32) -> Result<(), GuardianError> {
        note("joined");
        self.members.lock().expect("no panic").insert(pid);
        Ok(())
    }
    fn join_process(&self, pid: u32) -> Result<usize, GuardianError> {
        note("joined");
        self.members.lock().expect("no panic").insert(pid);
        Ok(usize::from(Path::new(&format!("/proc/{pid}")).exists()))
    }
    fn give_back(&self) -> Result<usize, GuardianError> {
        note("back");
        Ok(1)
    }
    fn set_online(&self, online: &cpus::Cpus) {
        std::fs::write(log().with_extension("online"), cpus::format(online)).expect("written");
    }
    fn grow(&mut self, cpus: &cpus::Cpus) -> Result<(), GuardianError> {
        note(&format!("grown to {}", cpus::format(cpus)));
        Ok(())
    }
    fn shrink(&mut self, cpus: &cpus::Cpus) -> Moved {
        note(&format!("shrunk to {}", cpus::format(cpus)));
        Moved { moved: 3, outside: 1 }
    }
    /// Once, if a file says how.
    fn ended(&self) -> Option<SchedulerExit> {
        if self.ended.lock().expect("no panic").is_none() {
            let file = log().with_extension("ended");
            let why = std::fs::read_to_string(&file).ok();
            let _ = std::fs::remove_file(file);
            *self.ended.lock().expect("no panic") = why;
        }
        let why = self.ended.lock().expect("no panic").clone()?;
        Some(SchedulerExit { is_wanted: why.contains("sysrq"), why })
    }
}
