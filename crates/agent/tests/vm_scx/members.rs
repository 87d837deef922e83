//! Threads that join, have children, become other programs, leave and end.

use super::fifo::Fifo;
use super::slow_program::SlowProgram;
use super::testbed::{Holder, Testbed, Worker, expect, until, works};
use heddle_agent::Backend as _;
use heddle_agent::model::{Kind, Phase, State};
use heddle_core::Ns;
use heddle_sys::scheduling::{self, Class, Scheduling};
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A shell that runs `script` on command; killed and given back at the end.
struct Shell(Child);

impl Shell {
    fn new(script: &str) -> Shell {
        let script = format!("read line; {script}");
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::null());
        Shell(command.spawn().unwrap())
    }

    fn go(&mut self) {
        let stdin = self.0.stdin.as_mut().unwrap();
        stdin.write_all(b"go\n").unwrap();
    }

    fn is_done(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = scheduling::set(self.0.id(), Scheduling::ORDINARY);
        let _ = self.0.wait();
    }
}

#[test]
fn a_process_forks_executes_and_ends_under_its_agent() {
    let Some(testbed) = Testbed::new("fork", &[1, 2]) else { return };
    let mut shell = Shell::new("(true); (exec true); true | true; exec true");
    assert_eq!(testbed.scx.join_process(shell.0.id()).unwrap(), 1);
    shell.go();
    let mut fifo = Fifo::default();
    fifo.run(&testbed, "the shell ends", || shell.is_done());
    fifo.run(&testbed, "all have left", || testbed.scx.enclave().threads == 0);
    fifo.step(&testbed);
    let of = |kind: &str| fifo.kinds.get(kind).copied().unwrap_or(0);
    assert!(of("ThreadCreated") >= 5, "{:?}", fifo.kinds);
    assert_eq!(of("ThreadCreated"), of("ThreadDead"), "{:?}", fifo.kinds);
    assert!(testbed.scx.threads().is_empty());
    assert_eq!(testbed.scx.queue(testbed.scx.default_queue()).associated, 0);
}

#[test]
fn a_thread_that_executes_a_program_is_known_by_its_new_number() {
    let Some(testbed) = Testbed::new("exec", &[1]) else { return };
    let mut child = executes(&testbed, Path::new("/bin/true"));
    child.go();
    let mut fifo = Fifo::default();
    fifo.run(&testbed, "the program ends", || child.is_done());
    fifo.run(&testbed, "all have left", || testbed.scx.enclave().threads == 0);
}

/// A process in the enclave whose second thread executes `program` on command.
fn executes(testbed: &Testbed, program: &Path) -> Shell {
    let child = Shell(
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "members::second_thread_executes", "--ignored", "--nocapture"])
            .env("HEDDLE_EXEC", program)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let threads = || std::fs::read_dir(format!("/proc/{}/task", child.0.id())).unwrap().flatten();
    let sleeps = |thread: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap();
        stat.rsplit_once(") ").unwrap().1.starts_with('S')
    };
    // The kernel refuses to let a thread join that is just being made.
    until("it waits", || threads().count() >= 2 && threads().all(sleeps));
    testbed.scx.join_process(child.0.id()).unwrap();
    child
}

/// A process whose thread executes a program and waits for its file: it has its process's number, which its word
/// does not have yet. The file comes last, to be dropped first: a thread that waits for it cannot be killed.
fn between_numbers(testbed: &Testbed, fifo: &mut Fifo) -> (Shell, SlowProgram) {
    let file = SlowProgram::new();
    let child = executes(testbed, &file.path());
    let (mut child, file) = (child, file);
    let process = child.0.id();
    child.go();
    let is_so = || {
        let words: Vec<_> =
            testbed.scx.threads().iter().map(|one| testbed.scx.thread(*one)).collect();
        let [word] = &words[..] else { return false };
        word.state == State::Blocked && word.tgid == process && word.tid != process
    };
    fifo.run(testbed, "it waits", || file.is_waited_for() && is_so());
    (child, file)
}

/// Whatever makes it wait or takes its CPU in between: its program's file, another thread, another member.
#[test]
fn a_thread_that_waits_for_its_programs_file_can_be_committed_when_it_goes_on() {
    let Some(testbed) = Testbed::new("execslow", &[1]) else { return };
    let mut fifo = Fifo::default();
    let (mut child, file) = between_numbers(&testbed, &mut fifo);
    file.go_on();
    fifo.run(&testbed, "the program ends", || child.is_done());
    fifo.run(&testbed, "all have left", || testbed.scx.enclave().threads == 0);
}

#[test]
fn a_thread_that_waits_for_its_programs_file_is_given_back() {
    let Some(testbed) = Testbed::new("execback", &[1]) else { return };
    let mut fifo = Fifo::default();
    let (mut child, file) = between_numbers(&testbed, &mut fifo);
    assert_eq!(testbed.scx.give_back().unwrap(), 1);
    assert!(testbed.scx.threads().is_empty());
    assert_eq!(scheduling::of(child.0.id()).unwrap().class, Class::Other);
    file.go_on();
    until("the program ends without an agent", || child.is_done());
}

/// Not a test: the program that the tests above start.
#[test]
#[ignore = "is started by another test"]
fn second_thread_executes() {
    let Some(program) = std::env::var_os("HEDDLE_EXEC") else { return };
    use std::os::unix::process::CommandExt as _;
    // The harness runs tests in a second thread unless there is one CPU.
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let thread = std::thread::spawn(|| panic!("{}", Command::new(program).exec()));
    let _ = thread.join();
}

#[test]
fn a_thread_that_leaves_runs_as_before() {
    let Some(testbed) = Testbed::new("leave", &[1]) else { return };
    let worker = Worker::spinning();
    let task = testbed.join(&worker);
    scheduling::set(worker.tid, Scheduling::ORDINARY).unwrap();
    let message = expect(&testbed.scx, Kind::ThreadDeparted);
    assert_eq!((message.thread, message.tid), (task, worker.tid));
    assert_eq!(testbed.state(task), State::Free);
    assert_eq!(testbed.scx.enclave().threads, 0);
    worker.moves();
    // It can come back, by the same call.
    let again = testbed.join(&worker);
    assert_eq!(again, task);
    testbed.run(again, 0, &worker);
    assert_eq!(testbed.scx.give_back().unwrap(), 1);
    worker.moves();
    assert_eq!(scheduling::of(worker.tid).unwrap().class, Class::Other);
}

#[test]
fn the_end_of_a_thread_is_its_last_message() {
    let Some(testbed) = Testbed::new("end", &[1]) else { return };
    let worker = Worker::spinning();
    let task = testbed.join(&worker);
    testbed.run(task, 0, &worker);
    worker.stop();
    let mut kinds = vec![];
    while kinds.last() != Some(&Kind::ThreadDead) {
        let message = super::testbed::next(&testbed.scx);
        assert_eq!(message.thread, task);
        kinds.push(message.kind);
        if testbed.state(task) == State::Parked {
            testbed.commit(task, 0);
        }
    }
    assert_eq!(testbed.state(task), State::Free);
    assert!(!testbed.scx.join(worker.tid).unwrap(), "it is gone");
}

#[test]
fn a_thread_of_no_enclave_is_run_without_an_agent() {
    let Some(testbed) = Testbed::new("outsider", &[1]) else { return };
    let worker = Worker::spinning();
    let ext = Scheduling { class: Class::Ext, priority: 0, reset_on_fork: false };
    scheduling::set(worker.tid, ext).unwrap();
    for _ in 0..10 {
        worker.moves();
    }
    assert!(testbed.scx.threads().is_empty());
    testbed.is_silent();
    // It can be put into an enclave later.
    let task = testbed.join(&worker);
    assert!(worker.stands_still());
    testbed.run(task, 0, &worker);
}

/// It is in sched_ext's class almost all the time; to join it must opt in anew.
#[test]
fn a_thread_that_opts_in_all_the_time_is_in_the_enclave_that_it_is_put_into() {
    let Some(testbed) = Testbed::new("eager", &[1]) else { return };
    let ext = Scheduling { class: Class::Ext, priority: 0, reset_on_fork: false };
    let worker = Worker::doing(move || scheduling::set(heddle_sys::thread::id(), ext).unwrap());
    worker.moves();
    assert!(testbed.scx.threads().is_empty());
    assert!(testbed.scx.join(worker.tid).unwrap());
    assert!(testbed.scx.has(worker.tid));
    until("it is parked", || {
        let task = testbed.scx.threads()[0];
        testbed.state(task) == State::Parked
    });
    // Nothing waits for the next thread with its number, or for itself.
    scheduling::set(worker.tid, Scheduling::ORDINARY).unwrap();
    worker.moves();
    assert!(testbed.scx.threads().is_empty());
}

/// Opting in needs no privilege, and a thread that waits for half a minute would end the scheduler for all.
#[test]
fn threads_of_no_enclave_are_made_ordinary_and_members_are_not() {
    let Some(testbed) = Testbed::new("unmanaged", &[1]) else { return };
    let (outsider, member) = (Worker::spinning(), Worker::spinning());
    let task = testbed.join(&member);
    let ext = Scheduling { class: Class::Ext, priority: 0, reset_on_fork: false };
    let class = |worker: &Worker| scheduling::of(worker.tid).unwrap().class;
    for _ in 0..2 {
        scheduling::set(outsider.tid, ext).unwrap();
        assert_eq!(testbed.scx.release_unmanaged(), 0, "it may be coming in");
        assert_eq!(testbed.scx.release_unmanaged(), 1);
        assert_eq!(class(&outsider), Class::Other);
        assert_eq!(testbed.scx.release_unmanaged(), 0);
    }
    outsider.moves();
    assert_eq!(class(&member), Class::Ext);
    testbed.run(task, 0, &member);
}

#[test]
fn a_member_that_executes_a_program_stays_a_member() {
    let Some(testbed) = Testbed::new("execstays", &[1]) else { return };
    let mut fifo = Fifo::default();
    let (mut child, file) = between_numbers(&testbed, &mut fifo);
    let worker = Worker::spinning();
    let ext = Scheduling { class: Class::Ext, priority: 0, reset_on_fork: false };
    // A thread that causes all threads to be scanned.
    scheduling::set(worker.tid, ext).unwrap();
    assert_eq!(testbed.scx.release_unmanaged(), 0);
    assert_eq!(testbed.scx.release_unmanaged(), 1);
    assert_eq!(scheduling::of(worker.tid).unwrap().class, Class::Other);
    assert_eq!(testbed.scx.threads().len(), 1);
    file.go_on();
    fifo.run(&testbed, "the program ends", || child.is_done());
}

#[test]
fn a_member_that_waits_outside_for_long_is_given_back() {
    let Some(testbed) = Testbed::new("starved", &[1]) else { return };
    let worker = Worker::spinning();
    let task = testbed.join(&worker);
    let holder = Holder::realtime(3);
    worker.pin(3);
    until("it waits there", || testbed.state(task) == State::Parked);
    until("it is made ordinary", || testbed.scx.release_unmanaged() == 1);
    assert_eq!(scheduling::of(worker.tid).unwrap().class, Class::Other);
    assert_eq!(testbed.scx.thread(task).state, State::Free);
    drop(holder);
    worker.moves();
}

/// Any member may go where no agent can commit it. That is not the agent's fault, and must not cost the others
/// their enclave.
#[test]
fn a_thread_that_goes_to_other_cpus_runs_there_and_ends_no_enclave() {
    let patience = Ns::from_ms(300);
    let Some(testbed) = Testbed::with_patience("outside", &[1, 2], Some(patience)) else { return };
    let stays = || {
        std::thread::sleep(std::time::Duration::from_millis(1200));
        assert_eq!(testbed.scx.enclave().phase, Phase::Active);
    };
    let worker = Worker::spinning();
    worker.pin(3);
    let task = testbed.join(&worker);
    worker.moves();
    stays();
    worker.moves();
    let holder = Holder::ordinary(3);
    until("it has lost the CPU to an occupant", || testbed.state(task) == State::Parked);
    stays();
    drop(holder);
    worker.moves();
    worker.pin(1);
    // Its agent can act now, and does not.
    until("patience ends", || testbed.scx.enclave().phase == Phase::Orphan);
}

#[test]
fn a_committed_thread_that_goes_to_other_cpus_runs_there_and_can_come_back() {
    let Some(testbed) = Testbed::new("leaves", &[1, 2]) else { return };
    let worker = Worker::spinning();
    let task = testbed.join(&worker);
    testbed.run(task, 0, &worker);
    worker.pin(3);
    worker.moves();
    until("it is elsewhere", || testbed.scx.thread(task).os_cpu == 3);
    assert_eq!(testbed.scx.cpu(heddle_core::CpuId(0)).current, None);
    worker.moves();
    worker.pin(2);
    until("it is parked", || testbed.state(task) == State::Parked && worker.stands_still());
    while testbed.scx.next(testbed.scx.default_queue()).is_some() {}
    testbed.run(task, 1, &worker);
}

#[test]
fn threads_go_on_when_their_enclave_is_removed() {
    if !works() {
        return;
    }
    let _alone = super::testbed::alone();
    let worker = Worker::spinning();
    let scx =
        heddle_agent::scx::Scx::create(&heddle_agent::EnclaveSpec::new("gone", &[1])).unwrap();
    scx.join(worker.tid).unwrap();
    until("it is parked", || {
        scx.threads().first().is_some_and(|t| scx.thread(*t).state == State::Parked)
    });
    assert_eq!(scx.remove().unwrap(), 1);
    worker.moves();
    assert_eq!(scheduling::of(worker.tid).unwrap().class, Class::Other);
    assert!(heddle_agent::scx::Scx::names().unwrap().is_empty());
}
