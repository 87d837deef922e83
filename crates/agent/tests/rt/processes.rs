//! Processes that are killed, that execute another program, that lack privileges. Each is this test program again,
//! with its role in an environment variable.

use crate::support::{Testbed, Worker, alone, create, may, until};
use heddle_agent::Backend as _;
use heddle_agent::EnclaveSpec;
use heddle_agent::model::{Kind, Phase, State, Transaction};
use heddle_agent::rt::{Rt, RtError, probe};
use heddle_core::CpuId;
use heddle_sys::scheduling::{self, Scheduling};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdout, Command, Stdio};

const ENCLAVE: &str = "HEDDLE_TEST_ENCLAVE";
const THREAD: &str = "HEDDLE_TEST_THREAD";

/// Returns the command of this program, which runs only `test`.
fn another(program: &std::path::Path, test: &str) -> Command {
    let mut command = Command::new(program);
    command.args(["--exact", test, "--ignored", "--nocapture"]).env("RUST_BACKTRACE", "0");
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// A process that ends with its test.
struct Process(Child, BufReader<ChildStdout>);

impl Process {
    fn start(test: &str, env: &[(&str, &str)]) -> Process {
        let mut command = another(&std::env::current_exe().unwrap(), test);
        let mut child = command.envs(env.iter().copied()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Process(child, output)
    }

    /// Returns the next line that begins with `:`; the others are the test harness's.
    fn read_line(&mut self) -> String {
        let mut line = String::new();
        while !line.contains(':') || !line.contains('!') {
            line.clear();
            assert!(self.1.read_line(&mut line).unwrap() > 0, "it ended");
        }
        line.split(':').nth(1).unwrap().trim_end_matches(['!', '\n']).to_owned()
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn say(text: &str) {
    println!(":{text}!");
    std::io::stdout().flush().unwrap();
}

fn wait_for_input() {
    let _ = std::io::stdin().read(&mut [0]);
}

#[test]
#[ignore = "is a part of the tests below"]
fn is_an_agent() {
    let Ok(name) = std::env::var(ENCLAVE) else { return };
    let rt = Rt::open(&name).unwrap();
    rt.attach().unwrap();
    for thread in rt.threads() {
        let word = rt.thread(thread);
        let mut one = [Transaction::new(thread, word.tid, CpuId(0), word.tseq)];
        rt.commit(&mut one, heddle_agent::model::Group::Each);
    }
    say("ready");
    wait_for_input();
}

#[test]
fn an_agent_that_is_killed_leaves_an_orphan_whose_threads_are_given_back() {
    let _alone = alone();
    if !may() {
        return;
    }
    let rt = create(&[1]);
    let worker = Worker::start();
    worker.await_sleep();
    rt.join(worker.tid).unwrap();
    worker.spin();
    until("it is awake", || rt.threads().iter().all(|t| rt.thread(*t).state == State::Parked));
    let mut agent = Process::start("processes::is_an_agent", &[(ENCLAVE, rt.name())]);
    assert_eq!(agent.read_line(), "ready");
    assert_eq!(rt.enclave().agent, Some(agent.0.id()));
    assert_eq!(scheduling::of(worker.tid).unwrap(), Scheduling::fifo(1));
    agent.kill();
    until("the enclave is an orphan", || rt.enclave().phase == Phase::Orphan);
    assert_eq!(rt.enclave().agent, None);
    assert!(rt.attach().is_err());
    assert_eq!(rt.give_back().unwrap(), 1);
    assert_eq!(scheduling::of(worker.tid).unwrap(), Scheduling::ORDINARY);
}

#[test]
#[ignore = "is a part of the tests below"]
fn is_a_guardian() {
    let (Ok(name), Ok(tid)) = (std::env::var(ENCLAVE), std::env::var(THREAD)) else { return };
    let rt = Rt::create(&EnclaveSpec::new(name, &[1])).unwrap();
    rt.attach().unwrap();
    rt.join(tid.parse().unwrap()).unwrap();
    say("ready");
    wait_for_input();
}

#[test]
fn the_remains_of_dead_processes_are_undone() {
    let _alone = alone();
    if !may() {
        return;
    }
    // Another test may have the CPU; this waits for it.
    let name = create(&[1]).name().to_owned();
    let worker = Worker::start();
    worker.await_sleep();
    let before = scheduling::mask(worker.tid).unwrap();
    let tid = worker.tid.to_string();
    let mut guardian =
        Process::start("processes::is_a_guardian", &[(ENCLAVE, &name), (THREAD, &tid)]);
    assert_eq!(guardian.read_line(), "ready");
    guardian.kill();
    assert_eq!(scheduling::of(worker.tid).unwrap(), Scheduling::IDLE);
    assert_eq!(Rt::undo(&name).unwrap(), 1);
    assert_eq!(scheduling::of(worker.tid).unwrap(), Scheduling::ORDINARY);
    assert_eq!(scheduling::mask(worker.tid).unwrap(), before);
    assert_eq!(Rt::undo(&name).unwrap(), 0);
    drop(Rt::create(&EnclaveSpec::new(&name, &[1])).expect("nothing is left of it"));
}

#[test]
fn the_enclave_of_a_killed_process_blocks_no_other() {
    let _alone = alone();
    if !may() {
        return;
    }
    let name = create(&[1]).name().to_owned();
    let worker = Worker::start();
    worker.await_sleep();
    let tid = worker.tid.to_string();
    for next in [name.clone(), format!("{name}-other")] {
        let mut guardian =
            Process::start("processes::is_a_guardian", &[(ENCLAVE, &name), (THREAD, &tid)]);
        assert_eq!(guardian.read_line(), "ready");
        let spec = EnclaveSpec::new(&*next, &[1]);
        assert!(matches!(Rt::create(&spec), Err(RtError::Overlap { .. } | RtError::Exists(_))));
        assert_eq!(scheduling::of(worker.tid).unwrap(), Scheduling::IDLE, "it lives");
        guardian.kill();
        drop(Rt::create(&spec).expect("it was undone"));
        assert_eq!(scheduling::of(worker.tid).unwrap(), Scheduling::ORDINARY);
    }
}

#[test]
#[ignore = "is a part of the tests below"]
fn executes_another_program() {
    if std::env::var(ENCLAVE).is_err() {
        return;
    }
    // The test harness's threads are not the process's first one.
    say(&heddle_sys::thread::id().to_string());
    wait_for_input();
    panic!("{}", Command::new("sleep").arg("60").exec());
}

#[test]
fn a_thread_that_executes_a_program_is_managed_by_its_new_number() {
    let Some(testbed) = Testbed::on(&[1]) else { return };
    let mut process = Process::start("processes::executes_another_program", &[(ENCLAVE, "-")]);
    let (tid, pid) = (process.read_line().parse::<u32>().unwrap(), process.0.id());
    assert_ne!(tid, pid);
    testbed.rt.join_process(pid).unwrap();
    let old = testbed.expect(|m| m.kind == Kind::ThreadCreated && m.tid == tid).thread;
    process.0.stdin.take().unwrap().write_all(b"x").unwrap();
    let new =
        testbed.expect(|m| m.kind == Kind::ThreadCreated && m.tid == pid && m.thread == old).thread;
    assert_eq!(testbed.rt.thread(new).tid, pid);
    assert_eq!(scheduling::of(pid).unwrap(), Scheduling::IDLE);
    until("only one is left", || testbed.rt.threads() == [new]);
    until("it sleeps", || testbed.rt.thread(new).state == State::Blocked);
}

#[test]
#[ignore = "is a part of the tests below"]
fn may_not() {
    if std::env::var(ENCLAVE).is_err() {
        return;
    }
    let error = Rt::create(&EnclaveSpec::new("not-allowed", &[0])).unwrap_err();
    say(&format!("{}; {error}; {}", probe().unwrap_err(), Rt::open("x").unwrap_err())
        .replace(':', ","));
}

#[test]
fn missing_privileges_are_named() {
    if !may() {
        return;
    }
    let folder = std::env::temp_dir().join(crate::support::a_name());
    std::fs::create_dir(&folder).unwrap();
    let program = folder.join("test");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let mut command = another(&program, "processes::may_not");
    let output = command.env(ENCLAVE, "-").current_dir("/").uid(65534).gid(65534).output().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    let said = text.split(":").nth(1).unwrap_or_default();
    assert!(said.contains("CAP_SYS_NICE") || said.contains("CAP_BPF"), "{text}");
}
