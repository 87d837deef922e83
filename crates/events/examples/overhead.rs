//! What the queue costs (SKQ, figure 8): `cargo run --release -p heddle-events --example overhead [ROUNDS
//! [one|two]]`.
//!
//! - One thread, 24 pipes that write to themselves again, no work: ticks of the time stamp counter per event,
//!   for an epoll of the thread's own, one that is rearmed after each event, and the queue.
//! - Two threads, 5 us of work per event, never idle: events per second of CPU time, for an epoll per thread
//!   and the queue.
//!
//! `STATS=1` prints the queues' statistics at the end of each round.
//!
//! The systems take turns in short rounds, and the results are medians. On a busy machine trust only ratios.

use heddle_events::{EventOptions, EventQueue, Interest};
use heddle_sys::clock;
use rustix::event::epoll;
use std::hint::black_box;
use std::io::{PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const PIPES: usize = 24;
/// How many events an epoll returns at once, here as in the queue.
const AT_ONCE: usize = 32;
/// Events per round with one thread: about a millisecond, so that most rounds are not interrupted.
const EVENTS: u64 = 480;
/// How long a round with two threads lasts. The first half is not counted: the queue needs it to see that no
/// worker is idle.
const ROUND: Duration = Duration::from_millis(300);

struct Pipe(PipeReader, PipeWriter);

impl Pipe {
    fn full() -> Pipe {
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        rustix::io::ioctl_fionbio(&reader, true).expect("non-blocking");
        writer.write_all(b"x").expect("room for a byte");
        Pipe(reader, writer)
    }

    /// Reads a byte and writes it back. Returns whether there was one.
    fn turn(&self) -> bool {
        let mut byte = [0];
        (&self.0).read(&mut byte).is_ok_and(|n| n == 1) && (&self.1).write_all(&byte).is_ok()
    }
}

fn pipes() -> Vec<Pipe> {
    (0..PIPES).map(|_| Pipe::full()).collect()
}

/// A thread's side of a system: waits once, handles what there is, and returns how much that was.
type Turn<'a> = Box<dyn FnMut(&dyn Fn(usize) -> bool) -> u64 + 'a>;

fn own_epoll(pipes: &[Pipe], mine: impl Fn(usize) -> bool, flags: epoll::EventFlags) -> OwnedFd {
    let fd = epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll");
    for (i, pipe) in pipes.iter().enumerate().filter(|&(i, _)| mine(i)) {
        epoll::add(&fd, &pipe.0, epoll::EventData::new_u64(i as u64), flags).expect("added");
    }
    fd
}

fn wait(fd: &OwnedFd, events: &mut Vec<epoll::Event>, most: usize) {
    events.clear();
    events.reserve(most);
    epoll::wait(fd, rustix::buffer::spare_capacity(events), None).expect("events");
}

fn level<'a>(fd: OwnedFd) -> Turn<'a> {
    let mut events = Vec::with_capacity(AT_ONCE);
    Box::new(move |handle| {
        wait(&fd, &mut events, AT_ONCE);
        events.iter().map(|event| u64::from(handle(event.data.u64() as usize))).sum()
    })
}

fn one_shot(fd: OwnedFd, pipes: &[Pipe]) -> Turn<'_> {
    let flags = epoll::EventFlags::IN | epoll::EventFlags::ONESHOT;
    let mut events = Vec::with_capacity(1);
    Box::new(move |handle| {
        wait(&fd, &mut events, 1);
        let mut handled = 0;
        for event in &events {
            let (data, i) = (event.data, event.data.u64() as usize);
            handled += u64::from(handle(i));
            epoll::modify(&fd, &pipes[i].0, data, flags).expect("armed anew");
        }
        handled
    })
}

fn queue_of(pipes: &[Pipe], policy: &str, options: EventOptions) -> EventQueue {
    let queue = EventQueue::builder().capacity(1024).policy(policy).build().expect("a queue");
    register(&queue, pipes, options);
    queue
}

fn register(queue: &EventQueue, pipes: &[Pipe], options: EventOptions) {
    for (i, pipe) in pipes.iter().enumerate() {
        queue.register(&pipe.0, Interest::READ, i as u64, options).expect("registered");
    }
}

fn shared<'a>(queue: &EventQueue) -> Turn<'a> {
    let mut worker = queue.worker().expect("a worker");
    Box::new(move |handle| {
        // At the end of a round the other thread may have everything.
        let batch = worker.wait(Some(Duration::from_millis(10))).expect("events");
        batch.map(|event| u64::from(handle(event.token() as usize))).sum()
    })
}

/// Returns the median and the first decile.
fn median(mut values: Vec<f64>) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[values.len() / 10])
}

fn per_event(turn: &mut Turn<'_>, pipes: &[Pipe]) -> f64 {
    let (begin, mut events) = (clock::ticks(), 0);
    while events < EVENTS {
        events += turn(&|i| pipes[i].turn());
    }
    (clock::ticks() - begin) as f64 / events as f64
}

fn one_thread(rounds: usize) {
    let input = epoll::EventFlags::IN;
    let sets: Vec<Vec<Pipe>> = (0..6).map(|_| pipes()).collect();
    let edge = EventOptions::default().edge();
    let mut systems: Vec<(&str, Turn<'_>)> = vec![
        ("epoll-per-thread", level(own_epoll(&sets[0], |_| true, input))),
        (
            "epoll-shared",
            one_shot(own_epoll(&sets[1], |_| true, input | epoll::EventFlags::ONESHOT), &sets[1]),
        ),
        ("queue-affinity, edge", shared(&queue_of(&sets[2], "queue-affinity", edge))),
        (
            "queue-affinity, level",
            shared(&queue_of(&sets[3], "queue-affinity", EventOptions::default())),
        ),
        ("hybrid, edge", shared(&queue_of(&sets[4], "hybrid", edge))),
        (
            "epoll-per-thread, edge",
            level(own_epoll(&sets[5], |_| true, input | epoll::EventFlags::ET)),
        ),
    ];
    let mut costs = vec![Vec::new(); systems.len()];
    for _ in 0..rounds {
        for (i, (_, turn)) in systems.iter_mut().enumerate() {
            costs[i].push(per_event(turn, &sets[i]));
        }
    }
    println!("one thread, {PIPES} pipes, no work: ticks per event");
    let first = costs[0].clone();
    for ((name, _), costs) in systems.iter().zip(costs) {
        let more = costs.iter().zip(&first).map(|(mine, first)| mine - first).collect();
        let ((median, lowest), (more, _)) = (self::median(costs), self::median(more));
        println!(
            "  {name:24} median {median:6.0}  first decile {lowest:6.0}  more, paired {more:+6.0}"
        );
    }
}

/// Returns how many steps take about 5 us. Work is counted in steps, not time: what other programs take from
/// this one is not work.
fn steps() -> u64 {
    let of = |steps: u64| {
        let begin = Instant::now();
        work(steps);
        begin.elapsed().as_nanos() as f64 / steps as f64
    };
    (5_000.0 / (0..50).map(|_| of(20_000)).fold(f64::MAX, f64::min)) as u64
}

fn work(steps: u64) {
    (0..steps).fold(1u64, |x, _| black_box(x.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 7));
}

/// Returns how many events per second of CPU time two threads handle, each with the turn that `make` gives
/// it. `look` is called when both have one, and at the end (true).
fn saturated<'a>(
    pipes: &[Pipe],
    steps: u64,
    make: &(dyn Fn(usize) -> Turn<'a> + Sync),
    look: &(dyn Fn(bool) + Sync),
) -> f64 {
    let (events, cpu, gate) = (AtomicU64::new(0), AtomicU64::new(0), Barrier::new(2));
    let handle = |i: usize| {
        work(steps);
        pipes[i].turn()
    };
    let thread = |number: usize| {
        let mut turn = make(number);
        if gate.wait().is_leader() {
            look(false);
        }
        let begin = Instant::now();
        while begin.elapsed() < ROUND / 2 {
            turn(&handle);
        }
        let (before, mut count) = (clock::thread_cpu_time(), 0);
        while begin.elapsed() < ROUND {
            count += turn(&handle);
        }
        events.fetch_add(count, Ordering::Relaxed);
        cpu.fetch_add((clock::thread_cpu_time() - before).0, Ordering::Relaxed);
        // No thread leaves before the other has counted.
        if gate.wait().is_leader() {
            look(true);
        }
        gate.wait();
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| thread(1));
        thread(0);
        other.join().expect("the other thread");
    });
    events.load(Ordering::Relaxed) as f64 * 2e9 / cpu.load(Ordering::Relaxed) as f64
}

fn own(steps: u64) -> f64 {
    let set = pipes();
    let make = |thread| level(own_epoll(&set, |i| i % 2 == thread, epoll::EventFlags::IN));
    saturated(&set, steps, &make, &|_| {})
}

/// The same for a queue. Also returns how many peers it had in the end.
fn queue(steps: u64, policy: &str, peers: Option<usize>) -> (f64, usize) {
    let set = pipes();
    let builder = EventQueue::builder().capacity(1024).policy(policy);
    let builder = peers.into_iter().fold(builder, heddle_events::EventQueueBuilder::peers);
    let queue = builder.build().expect("a queue");
    let look = |is_end: bool| match (is_end, std::env::var_os("STATS")) {
        (false, _) => register(&queue, &set, EventOptions::default().edge()),
        (true, Some(_)) => println!("{policy} {peers:?}\n{}", queue.stats()),
        (true, None) => {}
    };
    let rate = saturated(&set, steps, &|_| shared(&queue), &look);
    (rate, queue.stats().peers)
}

fn two_threads(rounds: usize) {
    const QUEUES: [(&str, Option<usize>); 5] = [
        ("queue-affinity", None),
        ("hybrid", None),
        ("hybrid", Some(0)),
        ("hybrid", Some(1)),
        ("hybrid:affinity=queue", None),
    ];
    let steps = steps();
    let (mut own_rates, mut rates) = (Vec::new(), vec![(Vec::new(), Vec::new(), 0); QUEUES.len()]);
    for _ in 0..rounds {
        let own = own(steps);
        own_rates.push(own);
        for ((policy, peers), (rates, ratios, level)) in QUEUES.into_iter().zip(&mut rates) {
            let (rate, peers) = queue(steps, policy, peers);
            rates.push(rate);
            ratios.push(rate / own);
            *level += peers;
        }
    }
    println!("two threads, {PIPES} pipes, 5 us of work, saturated: events per second of both CPUs");
    println!("  {:36} median {:9.0}", "epoll-per-thread", median(own_rates).0);
    for ((policy, peers), (rates, ratios, level)) in QUEUES.into_iter().zip(rates) {
        let name = peers.map_or(policy.to_owned(), |peers| format!("{policy}, peers {peers}"));
        let (rate, ratio) = (median(rates).0, (median(ratios).0 - 1.0) * 100.0);
        let level = level as f64 / rounds as f64;
        println!("  {name:36} median {rate:9.0}  ratio {ratio:+.1} %  peers {level:.2}");
    }
}

fn main() {
    let rounds = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(15);
    match std::env::args().nth(2).as_deref() {
        Some("two") => two_threads(rounds),
        Some("one") => one_thread(rounds),
        _ => {
            one_thread(rounds * 40);
            two_threads(rounds.div_ceil(3));
        }
    }
}
