//! How late a short periodic thread runs beside three threads that always want the same CPU: under the default
//! scheduler, and under a minimal agent, which sleeps on that CPU or on another.
//!
//! `cargo run --release -p heddle-agent --example rt_delay -- [SECONDS [CPU [OTHER CPU]]]`, as root, on a quiet
//! machine.

use heddle_agent::model::{Group, Kind, State, Transaction};
use heddle_agent::rt::Rt;
use heddle_agent::{Backend, EnclaveSpec};
use heddle_core::{CpuId, Ns, TaskId};
use heddle_sys::clock::{cpu_time_of, now};
use heddle_sys::scheduling::{self, Scheduling};
use heddle_sys::thread;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::channel;

const PERIOD: Ns = Ns::from_us(2_000);
const WORK: Ns = Ns::from_us(50);
const SLICE: Ns = Ns::from_ms(4);
const HOGS: usize = 3;
/// Above the threads that it schedules, below the kernel's own.
const AGENT_PRIORITY: u32 = 50;

struct Outcome {
    delays: Vec<Ns>,
    shares: Vec<Ns>,
}

fn main() {
    let number =
        |at, default| std::env::args().nth(at).map_or(default, |a| a.parse().expect("a number"));
    let (seconds, cpu, other) = (number(1, 4), number(2, 1) as u32, number(3, 0) as u32);
    println!("case            n     p50_us   p90_us   p99_us   max_us   hogs_ms");
    for _ in 0..2 {
        report("default", run(seconds, cpu, None));
        report("agent-same-cpu", run(seconds, cpu, Some(cpu)));
        report("agent-other-cpu", run(seconds, cpu, Some(other)));
    }
}

fn report(case: &str, mut outcome: Outcome) {
    outcome.delays.sort_unstable();
    let n = outcome.delays.len();
    let at = |share: f64| outcome.delays[((n as f64 * share) as usize).min(n - 1)].as_us_f64();
    let hogs: Vec<u64> = outcome.shares.iter().map(|share| share.0 / 1_000_000).collect();
    let (p50, p90, p99, max) = (at(0.5), at(0.9), at(0.99), at(1.0));
    println!("{case:15} {n:5} {p50:8.1} {p90:8.1} {p99:8.1} {max:8.1}   {hogs:?}");
}

fn run(seconds: u64, cpu: u32, agent_on: Option<u32>) -> Outcome {
    let (stop, (report, reports)) = (AtomicBool::new(false), channel());
    std::thread::scope(|scope| {
        for _ in 0..HOGS {
            let (stop, report) = (&stop, report.clone());
            scope.spawn(move || hog(stop, cpu, &report));
        }
        let hogs: Vec<u32> = reports.iter().take(HOGS).collect();
        let periodic = {
            let stop = &stop;
            scope.spawn(move || periodic(stop, cpu, &report))
        };
        let lc = reports.recv().expect("the periodic thread reports its number");
        let rt = agent_on.map(|_| Arc::new(enclave(cpu, lc, &hogs)));
        let agent = rt.clone().zip(agent_on).map(|(rt, on)| {
            let stop = &stop;
            scope.spawn(move || agent(&rt, stop, lc, on))
        });
        let before: Vec<Ns> = hogs.iter().map(|hog| cpu_time_of(*hog)).collect();
        thread::sleep(Ns::from_secs(seconds));
        let after = hogs.iter().map(|hog| cpu_time_of(*hog));
        let shares = after.zip(before).map(|(after, before)| after - before).collect();
        stop.store(true, Relaxed);
        if let (Some(rt), Some(agent)) = (&rt, agent) {
            rt.wake(rt.default_queue());
            agent.join().expect("the agent");
        }
        drop(rt);
        Outcome { delays: periodic.join().expect("the periodic thread"), shares }
    })
}

fn hog(stop: &AtomicBool, cpu: u32, report: &std::sync::mpsc::Sender<u32>) {
    thread::pin(&[cpu]).expect("the CPU is there");
    report.send(thread::id()).expect("the receiver is there");
    while !stop.load(Relaxed) {
        std::hint::spin_loop();
    }
}

fn periodic(stop: &AtomicBool, cpu: u32, report: &std::sync::mpsc::Sender<u32>) -> Vec<Ns> {
    thread::pin(&[cpu]).expect("the CPU is there");
    report.send(thread::id()).expect("the receiver is there");
    let (mut delays, mut due) = (Vec::new(), now() + PERIOD);
    while !stop.load(Relaxed) {
        thread::sleep(Ns(due.0.saturating_sub(now().0)));
        let woken = now();
        delays.push(woken - due.min(woken));
        while now() - woken < WORK {
            std::hint::spin_loop();
        }
        due = (due + PERIOD).max(now());
    }
    delays
}

fn enclave(cpu: u32, lc: u32, hogs: &[u32]) -> Rt {
    let name = format!("rt-delay-{}", std::process::id());
    let rt = Rt::create(&EnclaveSpec::new(name, &[cpu])).expect("an enclave");
    rt.attach().expect("no other agent is attached");
    for tid in hogs.iter().chain([&lc]) {
        rt.join(*tid).expect("it can be managed");
    }
    rt
}

/// The periodic thread runs whenever it wants, the others take turns.
fn agent(rt: &Rt, stop: &AtomicBool, lc: u32, on: u32) {
    thread::pin(&[on]).expect("the CPU is there");
    scheduling::set(0, Scheduling::fifo(AGENT_PRIORITY)).expect("real-time priority");
    let (queue, mut waiting) = (rt.default_queue(), VecDeque::new());
    let mut ends = rt.now();
    while !stop.load(Relaxed) {
        rt.wait(queue, Some(ends));
        while let Some(message) = rt.next(queue) {
            let is_lc = message.tid == lc;
            match message.kind {
                Kind::ThreadWakeup if is_lc => drop(commit(rt, message.thread)),
                Kind::ThreadCreated if !is_lc => waiting.push_back(message.thread),
                // It was interrupted: back to the front.
                Kind::ThreadPreempted if !is_lc && rt.now() < ends => {
                    waiting.push_front(message.thread);
                }
                Kind::ThreadPreempted if !is_lc => waiting.push_back(message.thread),
                _ => {}
            }
        }
        let word = rt.cpu(CpuId(0));
        let holder = word.current.or(word.latched);
        let lc_has_it = holder.is_some_and(|thread| rt.thread(thread).tid == lc);
        if rt.now() >= ends {
            ends = rt.now() + SLICE;
            if lc_has_it {
                // Its turn passed while it was interrupted.
                waiting.rotate_left(usize::from(!waiting.is_empty()));
                continue;
            }
        } else if holder.is_some() {
            continue;
        }
        if let Some(thread) = waiting.pop_front()
            && !commit(rt, thread)
        {
            waiting.push_back(thread);
        }
    }
}

fn commit(rt: &Rt, thread: TaskId) -> bool {
    let word = rt.thread(thread);
    if word.state != State::Parked {
        return false;
    }
    let mut one = [Transaction::new(thread, word.tid, CpuId(0), word.tseq)];
    rt.commit(&mut one, Group::Each) == 1
}
