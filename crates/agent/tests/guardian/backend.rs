//! The guardian that the tests start, its backend, and the enclave that it has.

use heddle_agent::guardian::{
    Agents, Backends, Enclaves, Ending, Guardian, GuardianError, Keeper, Kind, Options, Wanted,
    What, cpus,
};
use heddle_agent::model::{
    CpuWord, EnclaveWord, Group, Message, Phase, QueueId, QueueWord, ThreadWord, Transaction,
};
use heddle_agent::{Backend, BackendError, EnclaveSpec, Traits};
use heddle_core::{CpuId, CpuInfo, CpuSet, Ns, TaskId};
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

/// Runs a guardian as `GUARDIAN_TEST` says; its exit code.
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
        backend: Wanted::Only(Kind::Rt),
        agents: Agents::Central,
        spin: false,
        classes: Vec::new(),
        class_map: None,
        patience: Some(Ns::from_ms(100)),
        grace: Ns::from_ms(100),
        restarts: setting("restarts").map_or(0, |count| count.parse().expect("a number")),
        what: if program.is_empty() { What::Nothing } else { What::Program(program) },
        agent: vec!["python3".into(), script.into(), "agent-process".into()],
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

struct Fake;

struct Enclave {
    cpus: Vec<CpuInfo>,
    /// The processes that joined.
    members: Mutex<Vec<u32>>,
}

impl Backends for Fake {
    fn probe(&self, _: Kind) -> Result<(), String> {
        Ok(())
    }
    fn create(&self, _: Kind, spec: &EnclaveSpec) -> Result<Box<dyn Keeper>, GuardianError> {
        Ok(Box::new(Enclave { cpus: spec.places(), members: Mutex::default() }))
    }
    fn undo(&self, _: Kind, _: &str) -> Result<usize, GuardianError> {
        note("undone");
        Ok(0)
    }
}

impl Keeper for Enclave {
    fn backend(&self) -> &dyn Backend {
        self
    }
    fn join(&self, pid: u32) -> Result<(), GuardianError> {
        note("joined");
        self.members.lock().expect("no panic").push(pid);
        Ok(())
    }
    fn join_process(&self, pid: u32) -> Result<usize, GuardianError> {
        note("joined");
        self.members.lock().expect("no panic").push(pid);
        Ok(usize::from(Path::new(&format!("/proc/{pid}")).exists()))
    }
    fn give_back(&self) -> Result<usize, GuardianError> {
        note("back");
        Ok(1)
    }
}

/// Processes are written down and not touched; it is an orphan where a file says so.
impl Backend for Enclave {
    fn traits(&self) -> Traits {
        Traits { name: "none", parks: false, atomic: false, groups: false, below_ordinary: false }
    }
    fn cpus(&self) -> &[CpuInfo] {
        &self.cpus
    }
    fn now(&self) -> Ns {
        Ns::ZERO
    }
    fn attach(&self) -> Result<(), BackendError> {
        Ok(())
    }
    fn detach(&self) {}
    fn next(&self, _: QueueId) -> Option<Message> {
        None
    }
    fn wait(&self, _: QueueId, _: Option<Ns>) {}
    fn wake(&self, _: QueueId) {}
    fn queue(&self, _: QueueId) -> QueueWord {
        QueueWord::default()
    }
    fn default_queue(&self) -> QueueId {
        QueueId(0)
    }
    fn create_queue(&self, _: bool) -> Result<QueueId, BackendError> {
        Err(BackendError::NoRoom(0))
    }
    fn configure_queue(&self, queue: QueueId, _: bool) -> Result<(), BackendError> {
        Err(BackendError::NoQueue(queue))
    }
    fn destroy_queue(&self, queue: QueueId) -> Result<(), BackendError> {
        Err(BackendError::NoQueue(queue))
    }
    fn associate(&self, thread: TaskId, _: QueueId) -> Result<(), BackendError> {
        Err(BackendError::NoThread(thread))
    }
    fn associate_cpu(&self, _: CpuId, queue: QueueId) -> Result<(), BackendError> {
        Err(BackendError::NoQueue(queue))
    }
    fn threads(&self) -> Vec<TaskId> {
        (0..self.members.lock().expect("no panic").len() as u32).map(TaskId).collect()
    }
    fn thread(&self, thread: TaskId) -> ThreadWord {
        let tgid = self.members.lock().expect("no panic")[thread.index()];
        ThreadWord { tgid, ..ThreadWord::default() }
    }
    fn affinity(&self, _: TaskId) -> CpuSet {
        CpuSet::default()
    }
    fn cpu(&self, _: CpuId) -> CpuWord {
        CpuWord::default()
    }
    fn enclave(&self) -> EnclaveWord {
        let orphan = Path::new(&log()).with_extension("orphan").exists();
        let phase = if orphan { Phase::Orphan } else { Phase::Active };
        EnclaveWord { phase, ..EnclaveWord::default() }
    }
    fn commit(&self, _: &mut [Transaction], _: Group) -> usize {
        0
    }
    fn recall(&self, _: CpuId) -> Option<TaskId> {
        None
    }
    fn preempt(&self, _: CpuId) -> bool {
        false
    }
}
