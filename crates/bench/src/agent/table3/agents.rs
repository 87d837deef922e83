//! Costs of an agent's operations: a minimal agent that commits the one thread that wakes up.

use super::super::child::{LOAD, LoadSpec};
use super::super::launch::Launcher;
use super::super::running::Running;
use super::super::testbed::{Sleeper, Testbed};
use super::{Medians, Table3Options, since};
use heddle_agent::Takers;
use heddle_agent::guardian::Kind;
use heddle_agent::model::{Group, Kind as MessageKind, Message, Outcome, State, Transaction};
use heddle_core::{CpuId, Ns, TaskId};
use heddle_metrics::Histogram;
use heddle_sys::clock;
use std::io;
use std::thread;
use std::time::Duration;

/// Pause between two wakeups, so that the system is idle again.
const PAUSE: Duration = Duration::from_micros(200);
/// An enclave of one CPU.
const CPU: CpuId = CpuId(0);

/// Measures all, and returns the median of a wakeup under the central agent.
pub(super) fn measure(
    options: &Table3Options,
    kind: Kind,
    into: &mut Medians<'_>,
) -> io::Result<Ns> {
    local(options, kind, into)?;
    gaps(options, kind, into)?;
    remote(options, kind, into)
}

/// A thread that others wake, in an enclave of one CPU.
struct Subject {
    testbed: Testbed,
    sleeper: Sleeper,
    thread: TaskId,
}

impl Subject {
    fn new(options: &Table3Options, kind: Kind, run: Ns) -> io::Result<Subject> {
        let sleeper = Sleeper::start(options.sleeper(run))?;
        let testbed = Testbed::open(kind, &[options.thread_cpu])?;
        let thread = testbed.join(sleeper.pid())?;
        let thread = *thread.first().ok_or_else(|| io::Error::other("no thread"))?;
        testbed.until(thread, State::Blocked)?;
        testbed.drain();
        Ok(Subject { testbed, sleeper, thread })
    }

    /// Commits the thread of `message`; returns the start and end of the commit. `None` if there was a newer
    /// message about the thread: over rt it can run for an instant before its agent. It then sleeps again.
    fn commit(&self, message: &Message) -> io::Result<Option<(Ns, Ns)>> {
        let backend = self.testbed.backend();
        let mut one = [Transaction::new(self.thread, message.tid, CPU, message.tseq)];
        let begin = backend.now();
        backend.commit(&mut one, Group::Each);
        let end = backend.now();
        if one[0].outcome.is_committed() {
            return Ok(Some((begin, end)));
        }
        self.testbed.until(self.thread, State::Blocked)?;
        self.testbed.drain();
        Ok(None)
    }

    /// Runs the thread of `first`, then that of `second`. Returns the time from the first one's sleep until the
    /// second one had the CPU; `None` if something else took the CPU meanwhile.
    fn gap(&self, first: &Message, second: &Message, offers: bool) -> io::Result<Option<Ns>> {
        let backend = self.testbed.backend();
        let commit = |message: &Message| loop {
            let mut one = [Transaction::new(message.thread, message.tid, CPU, message.tseq)];
            backend.commit(&mut one, Group::Each);
            match one[0].outcome {
                Outcome::Committed => return Ok(()),
                // The kernel is just moving the thread.
                Outcome::Again => thread::yield_now(),
                failed => return Err(io::Error::other(format!("a commit failed: {failed:?}"))),
            }
        };
        commit(first)?;
        if offers && !backend.offer(second.thread, second.tseq, Takers::Cpu(CPU)) {
            return Err(io::Error::other("an offer failed"));
        }
        let (mut asleep, mut is_done, mut is_disturbed) = (None, false, false);
        while asleep.is_none() || !is_done {
            let (message, _) = self.testbed.poll_of(&[first.thread, second.thread])?;
            match message.kind {
                MessageKind::ThreadBlocked if message.thread == first.thread => {
                    asleep = Some(message.at);
                    if !offers {
                        commit(second)?;
                    }
                }
                MessageKind::ThreadBlocked => is_done = true,
                MessageKind::ThreadPreempted => {
                    is_disturbed = true;
                    commit(&message)?;
                }
                _ => {}
            }
        }
        let on_at = backend.thread(second.thread).on_at;
        Ok(asleep.filter(|_| !is_disturbed).map(|asleep| since(asleep, on_at)))
    }

    /// When the thread last got its CPU.
    fn on_at(&self) -> Ns {
        self.testbed.backend().thread(self.thread).on_at
    }
}

/// The agent sleeps on the CPU that it schedules.
fn local(options: &Table3Options, kind: Kind, into: &mut Medians<'_>) -> io::Result<()> {
    let mut subject = Subject::new(options, kind, Ns::ZERO)?;
    let queue = subject.testbed.backend().default_queue();
    subject.testbed.backend().configure_queue(queue, true).map_err(io::Error::other)?;
    heddle_sys::thread::pin(&[options.thread_cpu])?;
    let (mut delivery, mut schedule) = (Histogram::new(), Histogram::new());
    for _ in 0..options.samples {
        // From another CPU, so that the agent sleeps when the message arrives.
        let waker = options.agent_cpu;
        let wake = |sleeper: &mut Sleeper| {
            heddle_sys::thread::pin(&[waker])?;
            thread::sleep(PAUSE);
            sleeper.wake(clock::now())
        };
        let (message, read) = thread::scope(|scope| {
            let (testbed, thread, sleeper) =
                (&subject.testbed, subject.thread, &mut subject.sleeper);
            let waking = scope.spawn(move || wake(sleeper));
            let message = testbed.wait(thread, MessageKind::ThreadWakeup);
            waking.join().map_err(|_| io::Error::other("the waker panicked"))??;
            message
        })?;
        delivery.record(since(message.at, read));
        let Some((begin, _)) = subject.commit(&message)? else { continue };
        subject.testbed.wait(subject.thread, MessageKind::ThreadBlocked)?;
        schedule.record(since(begin, subject.on_at()));
    }
    into.add("delivery_local_ns", &delivery);
    into.add("local_schedule_ns", &schedule);
    Ok(())
}

/// The agent polls on another CPU.
fn remote(options: &Table3Options, kind: Kind, into: &mut Medians<'_>) -> io::Result<Ns> {
    let mut subject = Subject::new(options, kind, Ns::ZERO)?;
    let queue = subject.testbed.backend().default_queue();
    subject.testbed.backend().configure_queue(queue, false).map_err(io::Error::other)?;
    // Over rt a parked thread needs no agent while its CPU is idle: something else must occupy it.
    let _rival = match kind {
        Kind::Rt => Some(rival(&options.launcher, options.thread_cpu)?),
        Kind::Scx | Kind::Fair => None,
    };
    heddle_sys::thread::pin(&[options.agent_cpu])?;
    let [mut delivery, mut agent, mut target, mut total] = [(); 4].map(|()| Histogram::new());
    for _ in 0..options.samples {
        thread::sleep(PAUSE);
        subject.sleeper.wake(clock::now())?;
        let (message, read) = subject.testbed.poll(subject.thread, MessageKind::ThreadWakeup)?;
        delivery.record(since(message.at, read));
        let Some((begin, end)) = subject.commit(&message)? else { continue };
        subject.testbed.poll(subject.thread, MessageKind::ThreadBlocked)?;
        let on_at = subject.on_at();
        agent.record(since(begin, end));
        target.record(since(end, on_at));
        total.record(since(begin, on_at));
    }
    into.add("delivery_global_ns", &delivery);
    into.add("remote_agent_ns", &agent);
    into.add("remote_target_ns", &target);
    into.add("remote_total_ns", &total);
    let Subject { sleeper, testbed, .. } = subject;
    // The testbed is dropped first: the sleeper ends without an agent.
    drop(testbed);
    let wakeup = sleeper.finish()?;
    into.add("wakeup_ns", &wakeup);
    Ok(wakeup.p50())
}

/// How long the first of two threads runs before it sleeps: longer than an offer takes, even on an emulated CPU.
const RUN: Ns = Ns::from_us(500);

/// How long a CPU stands still between two threads, one of which sleeps: without and with an offer of the other.
fn gaps(options: &Table3Options, kind: Kind, into: &mut Medians<'_>) -> io::Result<()> {
    let mut next = Sleeper::start(options.sleeper(Ns::ZERO))?;
    let mut subject = Subject::new(options, kind, RUN)?;
    if !subject.testbed.backend().traits().offers {
        return Ok(());
    }
    let waits = *subject
        .testbed
        .join(next.pid())?
        .first()
        .ok_or_else(|| io::Error::other("no second thread"))?;
    subject.testbed.until(waits, State::Blocked)?;
    let queue = subject.testbed.backend().default_queue();
    subject.testbed.backend().configure_queue(queue, false).map_err(io::Error::other)?;
    heddle_sys::thread::pin(&[options.agent_cpu])?;
    for (metric, offers) in [("gap_commit_ns", false), ("gap_offer_ns", true)] {
        let mut gap = Histogram::new();
        for _ in 0..options.samples {
            thread::sleep(PAUSE);
            subject.testbed.drain();
            subject.sleeper.wake(Ns::ZERO)?;
            let (first, _) = subject.testbed.poll(subject.thread, MessageKind::ThreadWakeup)?;
            next.wake(Ns::ZERO)?;
            let (second, _) = subject.testbed.poll(waits, MessageKind::ThreadWakeup)?;
            if let Some(time) = subject.gap(&first, &second, offers)? {
                gap.record(time);
            }
        }
        into.add(metric, &gap);
    }
    Ok(())
}

/// An ordinary hog on the CPU, which ends by itself.
fn rival(launcher: &Launcher, cpu: u32) -> io::Result<Running> {
    let spec = LoadSpec {
        hogs: 1,
        cpus: vec![cpu],
        duration_ns: Ns::from_secs(60).0,
        ..LoadSpec::default()
    };
    Running::start(launcher.alone(&launcher.child(LOAD, &spec)))
}
