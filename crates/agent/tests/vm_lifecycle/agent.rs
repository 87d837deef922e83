//! Processes that are agents and guardians: this test program again, with its role in an environment variable.

use crate::testbed::HANG;
use heddle_agent::model::{
    CpuWord, EnclaveWord, Group, Message, QueueId, QueueWord, Seq, ThreadWord, Transaction,
};
use heddle_agent::policy::{Scheduler, Settings};
use heddle_agent::scx::Scx;
use heddle_agent::{Backend, BackendError, EnclaveSpec, Takers, Traits};
use heddle_core::{Class, CpuId, CpuInfo, CpuSet, Ns, TaskId};
use heddle_policies::Shinjuku;
use rustix::process::{Signal, getpid, kill_process};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::sleep;
use std::time::{Duration, Instant};

const ROLE: &str = "HEDDLE_TEST_ROLE";
/// The prefix of a process's messages, as the test harness prints lines too.
const SAYS: &str = "says: ";

/// Where an agent kills itself, or hangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Never,
    BeforeAttach,
    AfterAttach,
    /// When it has read this many messages.
    Message(u32),
    BeforeCommit(u32),
    AfterCommit(u32),
    BeforeDetach,
    /// After this many commits it sleeps forever.
    Hang(u32),
    /// One of its threads ends.
    ThreadEnds,
}

impl Step {
    fn parse(text: &str) -> Step {
        let (name, count) = text.split_once('(').unwrap_or((text, "0)"));
        let count = count.trim_end_matches(')').parse().unwrap();
        match name {
            "Never" => Step::Never,
            "BeforeAttach" => Step::BeforeAttach,
            "AfterAttach" => Step::AfterAttach,
            "Message" => Step::Message(count),
            "BeforeCommit" => Step::BeforeCommit(count),
            "AfterCommit" => Step::AfterCommit(count),
            "BeforeDetach" => Step::BeforeDetach,
            "Hang" => Step::Hang(count),
            "ThreadEnds" => Step::ThreadEnds,
            other => panic!("no step {other}"),
        }
    }
}

/// A process that this test has started. It ends with this.
pub struct Process {
    child: std::cell::RefCell<Child>,
    input: std::cell::RefCell<Option<ChildStdin>>,
    said: Receiver<String>,
    step: Step,
}

impl Process {
    pub fn agent(enclave: &str, step: Step) -> Process {
        Process::start(&format!("agent {enclave} {step:?}"), step)
    }

    /// Starts the guardian of a new enclave of one CPU, which puts these threads into it and has no agent.
    pub fn guardian(enclave: &str, cpu: u32, tids: &[u32]) -> Process {
        let tids: Vec<String> = tids.iter().map(u32::to_string).collect();
        Process::start(&format!("guardian {enclave} {cpu} {}", tids.join(",")), Step::Never)
    }

    fn start(role: &str, step: Step) -> Process {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "a_process_of_these_tests", "--nocapture"]).env(ROLE, role);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (output, input) = (child.stdout.take().unwrap(), child.stdin.take());
        let (send, said) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if let Some((_, what)) = line.split_once(SAYS) {
                    let _ = send.send(what.to_owned());
                }
            }
        });
        Process { child: child.into(), input: input.into(), said, step }
    }

    /// Waits for the message `what`.
    pub fn wait_for(&self, what: &str) {
        loop {
            match self.said.recv_timeout(HANG) {
                Ok(said) if said == what => return,
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => panic!("the process does not say: {what}"),
                Err(RecvTimeoutError::Disconnected) => panic!("the process ended before: {what}"),
            }
        }
    }

    /// Waits until it has died at its step. Returns when that was.
    pub fn wait_until_killed(self) -> Instant {
        if self.step == Step::BeforeDetach {
            self.wait_for("attached");
            sleep(Duration::from_millis(100));
            self.say("leave");
        }
        let end = Instant::now() + HANG;
        loop {
            if let Some(status) = self.child.borrow_mut().try_wait().unwrap() {
                use std::os::unix::process::ExitStatusExt as _;
                assert_eq!(status.signal(), Some(9), "it died otherwise");
                return Instant::now();
            }
            assert!(Instant::now() < end, "it does not die at {:?}", self.step);
            sleep(Duration::from_millis(1));
        }
    }

    /// Kills it. Returns when that was.
    pub fn kill(self) -> Instant {
        let killed = Instant::now();
        self.child.borrow_mut().kill().unwrap();
        self.child.borrow_mut().wait().unwrap();
        killed
    }

    /// Orders an agent to detach, and waits until it has.
    pub fn leave(self) {
        self.say("leave");
        let status = self.child.borrow_mut().wait().unwrap();
        assert!(status.success(), "{status}");
    }

    fn say(&self, what: &str) {
        let mut input = self.input.borrow_mut();
        writeln!(input.as_mut().expect("its input"), "{what}").unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.borrow_mut().kill();
        let _ = self.child.borrow_mut().wait();
    }
}

fn say(what: &str) {
    println!("{SAYS}{what}");
    let _ = std::io::stdout().flush();
}

fn die() -> ! {
    let _ = kill_process(getpid(), Signal::KILL);
    unreachable!("killed");
}

/// Plays the role that the environment names.
pub fn be_what_was_asked() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let parts: Vec<&str> = role.split(' ').collect();
    match parts[..] {
        ["agent", enclave, step] => be_agent(enclave, Step::parse(step)),
        ["guardian", enclave, cpu, tids] => be_guardian(enclave, cpu, tids),
        _ => panic!("no role {role}"),
    }
}

fn be_guardian(enclave: &str, cpu: &str, tids: &str) {
    let spec = EnclaveSpec::new(enclave, &[cpu.parse().unwrap()]);
    let scx = Scx::create(&spec).unwrap();
    for tid in tids.split(',') {
        scx.join(tid.parse().unwrap()).unwrap();
    }
    say("guards");
    sleep(HANG * 10);
}

fn be_agent(enclave: &str, step: Step) {
    let mortal = Mortal::new(Scx::open(enclave).unwrap(), step);
    mortal.attach().unwrap();
    say("attached");
    if step == Step::ThreadEnds {
        std::thread::spawn(|| ()).join().unwrap();
        say("a thread has ended");
    }
    let asked = asked_to_leave();
    let policy = heddle_policies::build::<Shinjuku>("shinjuku:quantum=5ms").unwrap();
    let mut scheduler = Scheduler::new(policy, &mortal, Settings::default());
    scheduler.adopt();
    while asked.try_recv().is_err() {
        let round = scheduler.round();
        let soon = mortal.now() + Ns::from_ms(2);
        let next = round.next.map_or(soon, |next| next.min(soon));
        if !round.is_unfinished {
            mortal.wait(mortal.default_queue(), Some(next));
        }
    }
    mortal.detach();
}

fn asked_to_leave() -> Receiver<()> {
    let (send, asked) = channel();
    std::thread::spawn(move || {
        if std::io::stdin().lines().next().is_some() {
            let _ = send.send(());
        }
    });
    asked
}

/// A backend whose user dies at a step of using it.
struct Mortal {
    scx: Scx,
    step: Step,
    messages: AtomicU32,
    commits: AtomicU32,
}

impl Mortal {
    fn new(scx: Scx, step: Step) -> Mortal {
        Mortal { scx, step, messages: AtomicU32::new(0), commits: AtomicU32::new(0) }
    }

    fn die_at(&self, step: Step) {
        if self.step == step {
            die();
        }
    }

    fn count(counter: &AtomicU32) -> u32 {
        counter.fetch_add(1, Relaxed) + 1
    }
}

impl Backend for Mortal {
    fn attach(&self) -> Result<(), BackendError> {
        self.die_at(Step::BeforeAttach);
        self.scx.attach()?;
        self.die_at(Step::AfterAttach);
        Ok(())
    }

    fn detach(&self) {
        self.die_at(Step::BeforeDetach);
        self.scx.detach();
    }

    fn next(&self, queue: QueueId) -> Option<Message> {
        let message = self.scx.next(queue)?;
        self.die_at(Step::Message(Mortal::count(&self.messages)));
        Some(message)
    }

    fn commit(&self, transactions: &mut [Transaction], how: Group) -> usize {
        let count = Mortal::count(&self.commits);
        self.die_at(Step::BeforeCommit(count));
        let done = self.scx.commit(transactions, how);
        self.die_at(Step::AfterCommit(count));
        if self.step == Step::Hang(count) {
            say("hangs");
            sleep(HANG * 10);
        }
        done
    }

    fn traits(&self) -> Traits {
        self.scx.traits()
    }
    fn cpus(&self) -> &[CpuInfo] {
        self.scx.cpus()
    }
    fn now(&self) -> Ns {
        self.scx.now()
    }
    fn wait(&self, queue: QueueId, until: Option<Ns>) {
        self.scx.wait(queue, until);
    }
    fn wake(&self, queue: QueueId) {
        self.scx.wake(queue);
    }
    fn queue(&self, queue: QueueId) -> QueueWord {
        self.scx.queue(queue)
    }
    fn default_queue(&self) -> QueueId {
        self.scx.default_queue()
    }
    fn create_queue(&self, wakes: bool) -> Result<QueueId, BackendError> {
        self.scx.create_queue(wakes)
    }
    fn configure_queue(&self, queue: QueueId, wakes: bool) -> Result<(), BackendError> {
        self.scx.configure_queue(queue, wakes)
    }
    fn destroy_queue(&self, queue: QueueId) -> Result<(), BackendError> {
        self.scx.destroy_queue(queue)
    }
    fn associate(&self, thread: TaskId, queue: QueueId) -> Result<(), BackendError> {
        self.scx.associate(thread, queue)
    }
    fn associate_cpu(&self, cpu: CpuId, queue: QueueId) -> Result<(), BackendError> {
        self.scx.associate_cpu(cpu, queue)
    }
    fn threads(&self) -> Vec<TaskId> {
        self.scx.threads()
    }
    fn thread(&self, thread: TaskId) -> ThreadWord {
        self.scx.thread(thread)
    }
    fn affinity(&self, thread: TaskId) -> CpuSet {
        self.scx.affinity(thread)
    }
    fn cpu(&self, cpu: CpuId) -> CpuWord {
        self.scx.cpu(cpu)
    }
    fn enclave(&self) -> EnclaveWord {
        self.scx.enclave()
    }
    fn recall(&self, cpu: CpuId) -> Option<TaskId> {
        self.scx.recall(cpu)
    }
    fn preempt(&self, cpu: CpuId) -> bool {
        self.scx.preempt(cpu)
    }
    fn describe(&self, thread: TaskId, class: Class, hint: u64) {
        self.scx.describe(thread, class, hint);
    }
    fn offer(&self, thread: TaskId, tseq: Seq, takers: Takers) -> bool {
        self.scx.offer(thread, tseq, takers)
    }
    fn revoke(&self, thread: TaskId) -> bool {
        self.scx.revoke(thread)
    }
}
