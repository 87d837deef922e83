//! Threads that come, have children, become other programs, leave and end.

use super::bench::{Bench, Holder, Worker, expect, until, works};
use super::fifo::Fifo;
use super::slow_program::SlowProgram;
use heddle_agent::Backend as _;
use heddle_agent::model::{Kind, Phase, State};
use heddle_core::Ns;
use heddle_sys::scheduling::{self, Class, Scheduling};
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A shell that does `script` after it was told to go on; killed and given back at the end.
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
    let Some(bench) = Bench::new("fork", &[1, 2]) else { return };
    let mut shell = Shell::new("(true); (exec true); true | true; exec true");
    assert_eq!(bench.scx.join_process(shell.0.id()).unwrap(), 1);
    shell.go();
    let mut fifo = Fifo::default();
    fifo.run(&bench, "the shell ends", || shell.is_done());
    fifo.run(&bench, "all have left", || bench.scx.enclave().threads == 0);
    fifo.step(&bench);
    let of = |kind: &str| fifo.kinds.get(kind).copied().unwrap_or(0);
    assert!(of("ThreadCreated") >= 5, "{:?}", fifo.kinds);
    assert_eq!(of("ThreadCreated"), of("ThreadDead"), "{:?}", fifo.kinds);
    assert!(bench.scx.threads().is_empty());
    assert_eq!(bench.scx.queue(bench.scx.default_queue()).associated, 0);
}

#[test]
fn a_thread_that_executes_a_program_is_known_by_its_new_number() {
    let Some(bench) = Bench::new("exec", &[1]) else { return };
    let mut child = executes(&bench, Path::new("/bin/true"));
    child.go();
    let mut fifo = Fifo::default();
    fifo.run(&bench, "the program ends", || child.is_done());
    fifo.run(&bench, "all have left", || bench.scx.enclave().threads == 0);
}

/// A process in the enclave whose second thread executes `program` when it is told to go on.
fn executes(bench: &Bench, program: &Path) -> Shell {
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
    // A thread that is just being made is one that the kernel is not ready to have put in.
    until("it waits", || threads().count() >= 2 && threads().all(sleeps));
    bench.scx.join_process(child.0.id()).unwrap();
    child
}

/// A process whose thread executes a program and waits for its file: it has its process's number, which its word does not say yet. The
/// file comes last, to be dropped first: nobody who waits for it can be killed.
fn between_numbers(bench: &Bench, fifo: &mut Fifo) -> (Shell, SlowProgram) {
    let file = SlowProgram::new();
    let child = executes(bench, &file.path());
    let (mut child, file) = (child, file);
    let process = child.0.id();
    child.go();
    let is_so = || {
        let words: Vec<_> = bench.scx.threads().iter().map(|one| bench.scx.thread(*one)).collect();
        let [word] = &words[..] else { return false };
        word.state == State::Blocked && word.tgid == process && word.tid != process
    };
    fifo.run(bench, "it waits", || file.is_waited_for() && is_so());
    (child, file)
}

/// Whatever makes it wait or takes its CPU between the two: its program's file, another thread, another member.
#[test]
fn a_thread_that_waits_for_its_programs_file_can_be_committed_when_it_goes_on() {
    let Some(bench) = Bench::new("execslow", &[1]) else { return };
    let mut fifo = Fifo::default();
    let (mut child, file) = between_numbers(&bench, &mut fifo);
    file.go_on();
    fifo.run(&bench, "the program ends", || child.is_done());
    fifo.run(&bench, "all have left", || bench.scx.enclave().threads == 0);
}

#[test]
fn a_thread_that_waits_for_its_programs_file_is_given_back() {
    let Some(bench) = Bench::new("execback", &[1]) else { return };
    let mut fifo = Fifo::default();
    let (mut child, file) = between_numbers(&bench, &mut fifo);
    assert_eq!(bench.scx.give_back().unwrap(), 1);
    assert!(bench.scx.threads().is_empty());
    assert_eq!(scheduling::of(child.0.id()).unwrap().class, Class::Other);
    file.go_on();
    until("the program ends without an agent", || child.is_done());
}

/// Not a test: what those above start.
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
    let Some(bench) = Bench::new("leave", &[1]) else { return };
    let worker = Worker::spinning();
    let task = bench.join(&worker);
    scheduling::set(worker.tid, Scheduling::ORDINARY).unwrap();
    let message = expect(&bench.scx, Kind::ThreadDeparted);
    assert_eq!((message.thread, message.tid), (task, worker.tid));
    assert_eq!(bench.state(task), State::Free);
    assert_eq!(bench.scx.enclave().threads, 0);
    worker.moves();
    // It can come back, by the same word.
    let again = bench.join(&worker);
    assert_eq!(again, task);
    bench.run(again, 0, &worker);
    assert_eq!(bench.scx.give_back().unwrap(), 1);
    worker.moves();
    assert_eq!(scheduling::of(worker.tid).unwrap().class, Class::Other);
}

#[test]
fn a_thread_that_ends_is_told_of_last() {
    let Some(bench) = Bench::new("end", &[1]) else { return };
    let worker = Worker::spinning();
    let task = bench.join(&worker);
    bench.run(task, 0, &worker);
    worker.stop();
    let mut kinds = vec![];
    while kinds.last() != Some(&Kind::ThreadDead) {
        let message = super::bench::next(&bench.scx);
        assert_eq!(message.thread, task);
        kinds.push(message.kind);
        if bench.state(task) == State::Parked {
            bench.commit(task, 0);
        }
    }
    assert_eq!(bench.state(task), State::Free);
    assert!(!bench.scx.join(worker.tid).unwrap(), "it is gone");
}

#[test]
fn a_thread_of_no_enclave_is_run_without_an_agent() {
    let Some(bench) = Bench::new("stranger", &[1]) else { return };
    let worker = Worker::spinning();
    let ext = Scheduling { class: Class::Ext, priority: 0, reset_on_fork: false };
    scheduling::set(worker.tid, ext).unwrap();
    for _ in 0..10 {
        worker.moves();
    }
    assert!(bench.scx.threads().is_empty());
    bench.is_silent();
    // And can be put into one later.
    let task = bench.join(&worker);
    assert!(worker.stands_still());
    bench.run(task, 0, &worker);
}

/// It is scheduled by the kernel's programs all the time, but for a moment; to come in it must come anew.
#[test]
fn a_thread_that_opts_in_all_the_time_is_in_the_enclave_that_it_is_put_into() {
    let Some(bench) = Bench::new("eager", &[1]) else { return };
    let ext = Scheduling { class: Class::Ext, priority: 0, reset_on_fork: false };
    let worker = Worker::doing(move || scheduling::set(heddle_sys::thread::id(), ext).unwrap());
    worker.moves();
    assert!(bench.scx.threads().is_empty());
    assert!(bench.scx.join(worker.tid).unwrap());
    assert!(bench.scx.has(worker.tid));
    until("it is parked", || {
        let task = bench.scx.threads()[0];
        bench.state(task) == State::Parked
    });
    // Nothing waits for the next who has its number, or for itself.
    scheduling::set(worker.tid, Scheduling::ORDINARY).unwrap();
    worker.moves();
    assert!(bench.scx.threads().is_empty());
}

/// They need nobody's leave to opt in, and one that waits for half a minute would end the scheduler for everybody.
#[test]
fn threads_of_no_enclave_are_made_ordinary_and_members_are_not() {
    let Some(bench) = Bench::new("strangers", &[1]) else { return };
    let (stranger, member) = (Worker::spinning(), Worker::spinning());
    let task = bench.join(&member);
    let ext = Scheduling { class: Class::Ext, priority: 0, reset_on_fork: false };
    let class = |worker: &Worker| scheduling::of(worker.tid).unwrap().class;
    for _ in 0..2 {
        scheduling::set(stranger.tid, ext).unwrap();
        assert_eq!(bench.scx.release_unmanaged(), 0, "it may be coming in");
        assert_eq!(bench.scx.release_unmanaged(), 1);
        assert_eq!(class(&stranger), Class::Other);
        assert_eq!(bench.scx.release_unmanaged(), 0);
    }
    stranger.moves();
    assert_eq!(class(&member), Class::Ext);
    bench.run(task, 0, &member);
}

#[test]
fn a_member_that_executes_a_program_is_no_stranger() {
    let Some(bench) = Bench::new("execstays", &[1]) else { return };
    let mut fifo = Fifo::default();
    let (mut child, file) = between_numbers(&bench, &mut fifo);
    let worker = Worker::spinning();
    let ext = Scheduling { class: Class::Ext, priority: 0, reset_on_fork: false };
    // Somebody for whom all are looked at.
    scheduling::set(worker.tid, ext).unwrap();
    assert_eq!(bench.scx.release_unmanaged(), 0);
    assert_eq!(bench.scx.release_unmanaged(), 1);
    assert_eq!(scheduling::of(worker.tid).unwrap().class, Class::Other);
    assert_eq!(bench.scx.threads().len(), 1);
    file.go_on();
    fifo.run(&bench, "the program ends", || child.is_done());
}

#[test]
fn a_member_that_waits_outside_for_long_is_given_back() {
    let Some(bench) = Bench::new("starved", &[1]) else { return };
    let worker = Worker::spinning();
    let task = bench.join(&worker);
    let holder = Holder::realtime(3);
    worker.pin(3);
    until("it waits there", || bench.state(task) == State::Parked);
    until("it is made ordinary", || bench.scx.release_unmanaged() == 1);
    assert_eq!(scheduling::of(worker.tid).unwrap().class, Class::Other);
    assert_eq!(bench.scx.thread(task).state, State::Free);
    drop(holder);
    worker.moves();
}

/// Any member may go where no agent can commit it. That is not the agent's fault, nor may it cost the others their enclave.
#[test]
fn a_thread_that_goes_to_other_cpus_runs_there_and_ends_nobodys_enclave() {
    let patience = Ns::from_ms(300);
    let Some(bench) = Bench::with_patience("outside", &[1, 2], Some(patience)) else { return };
    let stays = || {
        std::thread::sleep(std::time::Duration::from_millis(1200));
        assert_eq!(bench.scx.enclave().phase, Phase::Active);
    };
    let worker = Worker::spinning();
    worker.pin(3);
    let task = bench.join(&worker);
    worker.moves();
    stays();
    worker.moves();
    let holder = Holder::ordinary(3);
    until("it has lost the CPU to somebody above", || bench.state(task) == State::Parked);
    stays();
    drop(holder);
    worker.moves();
    worker.pin(1);
    // Its agent can do something now, and does not.
    until("patience ends", || bench.scx.enclave().phase == Phase::Orphan);
}

#[test]
fn a_committed_thread_that_goes_to_other_cpus_runs_there_and_can_come_back() {
    let Some(bench) = Bench::new("leaves", &[1, 2]) else { return };
    let worker = Worker::spinning();
    let task = bench.join(&worker);
    bench.run(task, 0, &worker);
    worker.pin(3);
    worker.moves();
    until("it is elsewhere", || bench.scx.thread(task).os_cpu == 3);
    assert_eq!(bench.scx.cpu(heddle_core::CpuId(0)).current, None);
    worker.moves();
    worker.pin(2);
    until("it is parked", || bench.state(task) == State::Parked && worker.stands_still());
    while bench.scx.next(bench.scx.default_queue()).is_some() {}
    bench.run(task, 1, &worker);
}

#[test]
fn threads_go_on_when_their_enclave_is_removed() {
    if !works() {
        return;
    }
    let _alone = super::bench::alone();
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
