//! Edge-triggered events: each edge is delivered once, to one of the waiting threads, although its data stays
//! unread; none is lost.
//!
//! A thread may be several workers, so most tests need no second thread and do the same in every run.

use heddle_events::{EventId, EventOptions, EventQueue, Interest, Worker};
use proptest::prelude::*;
use std::io::{Read as _, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

const NOW: Option<Duration> = Some(Duration::ZERO);
const HANG: Duration = heddle_test_support::PATIENCE;
const POLICIES: [&str; 6] =
    ["hybrid", "best-of-two", "queue-affinity", "cpu-affinity", "work-stealing", "fifo"];

fn edge() -> EventOptions {
    EventOptions::default().edge()
}

fn tcp() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    there.set_nodelay(true).unwrap();
    (listener.accept().unwrap().0, there)
}

/// The two ends of a connection.
struct Ends {
    here: OwnedFd,
    there: Box<dyn Write>,
    written: u64,
}

impl Ends {
    fn new(here: impl Into<OwnedFd>, there: impl Write + 'static) -> Ends {
        Ends { here: here.into(), there: Box::new(there), written: 0 }
    }

    /// Makes one connection of each kind.
    fn kinds() -> [Ends; 3] {
        let (pipe, unix, tcp) = (std::io::pipe().unwrap(), UnixStream::pair().unwrap(), tcp());
        [Ends::new(pipe.0, pipe.1), Ends::new(unix.0, unix.1), Ends::new(tcp.0, tcp.1)]
    }

    /// Writes, and waits until the byte has arrived: TCP may wait for an acknowledgement first.
    fn write(&mut self) {
        self.there.write_all(b"x").unwrap();
        self.written += 1;
        let begin = Instant::now();
        while rustix::io::ioctl_fionread(&self.here).unwrap() < self.written {
            assert!(begin.elapsed() < HANG, "what was written does not arrive");
            std::thread::yield_now();
        }
    }
}

/// Has all workers wait in turn, often enough to get all there is. Returns the number of deliveries.
fn delivered(workers: &mut [Worker]) -> usize {
    (0..3).map(|_| workers.iter_mut().map(deliveries_to).sum::<usize>()).sum()
}

fn deliveries_to(worker: &mut Worker) -> usize {
    worker.wait(NOW).unwrap().count()
}

fn queue(policy: &str, workers: usize) -> (EventQueue, Vec<Worker>) {
    // Every descriptor is registered with all workers, whatever the policy says, because that is where most
    // can go wrong.
    let queue = EventQueue::builder().policy(policy).peers(8).build().unwrap();
    let workers = (0..workers).map(|_| queue.worker().unwrap()).collect();
    (queue, workers)
}

#[test]
fn an_edge_is_delivered_once_however_many_workers_wait() {
    for policy in POLICIES {
        for n in [1, 2, 4, 8] {
            for mut ends in Ends::kinds() {
                let (queue, mut workers) = queue(policy, n);
                let id = queue.register(&ends.here, Interest::READ, 1, edge()).unwrap();
                assert_eq!(delivered(&mut workers), 0);
                for round in 0..10 {
                    ends.write();
                    assert_eq!(delivered(&mut workers), 1, "{policy}, {n} workers, edge {round}");
                }
                queue.set_interest(id, Interest::READ).unwrap();
                assert_eq!(delivered(&mut workers), 1, "asked for anew");
            }
        }
    }
}

#[test]
fn a_writable_descriptor_is_delivered_once() {
    for n in [1, 2, 4, 8] {
        let (queue, mut workers) = queue("hybrid", n);
        for (_here, there) in [tcp(), tcp()] {
            queue.register(&there, Interest::BOTH, 1, edge()).unwrap();
            assert_eq!((delivered(&mut workers), delivered(&mut workers)), (1, 0), "{n} workers");
        }
    }
}

#[test]
fn an_edge_during_handling_is_delivered_once_afterwards() {
    for n in [2, 4, 8] {
        let (queue, mut workers) = queue("hybrid", n);
        let (here, mut there) = UnixStream::pair().unwrap();
        queue.register(&here, Interest::READ, 1, edge()).unwrap();
        there.write_all(b"x").unwrap();
        let holds = |worker: &mut Worker| !worker.wait_held(NOW).unwrap().is_empty();
        let holder = workers.iter_mut().position(holds).unwrap();
        there.write_all(b"y").unwrap();
        let holder = workers.swap_remove(holder);
        assert_eq!(delivered(&mut workers), 0, "it is held");
        workers.push(holder);
        assert_eq!(delivered(&mut workers), 1);
        // The same with guards.
        there.write_all(b"x").unwrap();
        let (first, rest) = workers.split_at_mut(1);
        let mut batch = first[0].wait(NOW).unwrap();
        if let Some(event) = batch.next() {
            there.write_all(b"y").unwrap();
            assert_eq!(delivered(rest), 0, "it is held");
            drop(event);
        } else {
            assert_eq!(delivered(rest), 1);
            there.write_all(b"y").unwrap();
        }
        assert_eq!(delivered(&mut workers), 1);
    }
}

#[test]
fn changing_workers_and_policies_repeat_no_edge() {
    for mut ends in Ends::kinds() {
        let (queue, mut workers) = queue("hybrid", 0);
        queue.register(&ends.here, Interest::READ, 1, edge()).unwrap();
        ends.write();
        workers.push(queue.worker().unwrap());
        assert_eq!(delivered(&mut workers), 1);
        for round in 0..60 {
            match round % 4 {
                0 | 1 => workers.push(queue.worker().unwrap()),
                2 => queue.set_policy(POLICIES[round / 4 % POLICIES.len()]).unwrap(),
                _ => drop(workers.remove(round % workers.len())),
            }
            assert_eq!(delivered(&mut workers), 0, "round {round}");
            ends.write();
            assert_eq!(delivered(&mut workers), 1, "round {round}");
        }
        // All leave, and others join.
        workers.clear();
        workers.push(queue.worker().unwrap());
        assert_eq!(delivered(&mut workers), 0);
        workers.clear();
        ends.write();
        workers.push(queue.worker().unwrap());
        assert_eq!(delivered(&mut workers), 1);
    }
}

/// Descriptors that stay in the epolls of departed workers let these be closed in the end.
#[test]
fn epolls_of_departed_workers_are_closed_when_unused() {
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let (queue, mut workers) = queue("hybrid", 1);
    let pairs: Vec<_> = (0..10).map(|_| UnixStream::pair().unwrap()).collect();
    for (here, _) in &pairs {
        here.set_nonblocking(true).unwrap();
        queue.register(here, Interest::READ, 1, edge()).unwrap();
    }
    // Other tests open and close descriptors at the same time: many more workers leave than those tests have
    // descriptors.
    let before = open();
    for _ in 0..2_000 {
        pairs.iter().for_each(|(_, there)| (&*there).write_all(b"x").unwrap());
        workers.push(queue.worker().unwrap());
        assert_eq!(delivered(&mut workers), pairs.len());
        workers.swap_remove(0);
        assert_eq!(delivered(&mut workers), 0);
        for (here, _) in &pairs {
            while (&*here).read(&mut [0; 64]).is_ok() {}
        }
    }
    assert!(open() < before + 1_500, "{before} before, {} after", open());
}

#[test]
fn user_events_and_timers_are_delivered_once_per_occurrence() {
    for n in [1, 2, 4, 8] {
        let (queue, mut workers) = queue("hybrid", n);
        let user = queue.register_user(1, edge()).unwrap();
        for _ in 0..20 {
            queue.trigger(user).unwrap();
            queue.trigger(user).unwrap();
            assert_eq!((delivered(&mut workers), delivered(&mut workers)), (1, 0));
        }
        let timer = queue.register_timer(Instant::now(), None, 2, edge()).unwrap();
        for _ in 0..20 {
            let begin = Instant::now();
            while delivered(&mut workers) == 0 {
                assert!(begin.elapsed() < HANG, "the timer is lost");
            }
            assert_eq!(delivered(&mut workers), 0);
            queue.set_timer(timer, Instant::now(), None).unwrap();
        }
    }
}

/// What is known of an event's edges that were not delivered. Several that come before a delivery may be
/// delivered as one.
#[derive(Clone, Copy, Debug, Default)]
struct Edges {
    pending: usize,
    /// The last edge was not delivered and is not over.
    is_due: bool,
}

impl Edges {
    fn comes(&mut self) {
        *self = Edges { pending: self.pending + 1, is_due: true };
    }

    fn delivered(&mut self) {
        assert!(self.pending > 0, "an edge is delivered again");
        *self = Edges { pending: self.pending - 1, is_due: false };
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write,
    Read,
    Wait(usize),
    Join,
    Leave(usize),
    Policy(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Write),
        2 => Just(Step::Read),
        8 => (0..8usize).prop_map(Step::Wait),
        2 => Just(Step::Join),
        1 => (0..8usize).prop_map(Step::Leave),
        1 => (0..POLICIES.len()).prop_map(Step::Policy),
    ]
}

struct Model {
    queue: EventQueue,
    workers: Vec<Worker>,
    pair: (UnixStream, UnixStream),
    read: EventId,
    reads: Edges,
    /// Of the other end, which can always be written to, and is delivered once for that.
    writes: Edges,
}

impl Model {
    fn new() -> Model {
        let (queue, workers) = queue("hybrid", 0);
        let pair = UnixStream::pair().unwrap();
        pair.0.set_nonblocking(true).unwrap();
        let read = queue.register(&pair.0, Interest::READ, 1, edge()).unwrap();
        queue.register(&pair.1, Interest::WRITE, 2, edge()).unwrap();
        let writes = Edges { pending: 1, is_due: true };
        Model { queue, workers, pair, read, reads: Edges::default(), writes }
    }

    fn wait(&mut self, at: usize) {
        let n = self.workers.len().max(1);
        let Some(worker) = self.workers.get_mut(at % n) else { return };
        for event in worker.wait(NOW).unwrap() {
            let is_read = event.id() == self.read;
            if is_read { &mut self.reads } else { &mut self.writes }.delivered();
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Write => {
                self.pair.1.write_all(b"x").unwrap();
                self.reads.comes();
            }
            Step::Read => {
                while self.pair.0.read(&mut [0]).is_ok() {
                    // Reading makes room for the other end: an edge, for a socket of this kind.
                    self.writes.pending += 1;
                }
                self.reads.is_due = false;
            }
            Step::Wait(at) => self.wait(at),
            Step::Join if self.workers.len() < 8 => self.workers.push(self.queue.worker().unwrap()),
            Step::Join => {}
            Step::Leave(at) if !self.workers.is_empty() => {
                drop(self.workers.remove(at % self.workers.len()));
            }
            Step::Leave(_) => {}
            Step::Policy(at) => self.queue.set_policy(POLICIES[at]).unwrap(),
        }
    }

    fn end(mut self) {
        self.workers.push(self.queue.worker().unwrap());
        for _ in 0..3 {
            (0..self.workers.len()).for_each(|at| self.wait(at));
        }
        let (reads, writes) = (self.reads, self.writes);
        assert!(!reads.is_due && !writes.is_due, "an edge is lost: {reads:?}, {writes:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Any steps in any order.
    #[test]
    fn no_edge_is_repeated_or_lost(steps in proptest::collection::vec(step(), 1..80)) {
        let mut model = Model::new();
        steps.iter().for_each(|step| model.step(step));
        model.end();
    }
}

/// Workers wait, leave and join while edges come. Each edge is delivered once: the next comes only after
/// that.
#[test]
fn edges_are_delivered_once_while_workers_come_and_go() {
    const EDGES: u64 = 1_000;
    for policy in POLICIES {
        let (queue, _) = queue(policy, 0);
        // A Unix socket would not hold so many bytes.
        let (here, mut there) = std::io::pipe().unwrap();
        queue.register(&here, Interest::READ, 1, edge()).unwrap();
        let (delivered, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        let serve = |turns: usize| {
            while !is_over.load(SeqCst) {
                let mut worker = queue.worker().unwrap();
                for _ in 0..turns {
                    let Ok(batch) = worker.wait(Some(Duration::from_millis(5))) else { return };
                    delivered.fetch_add(batch.count() as u64, SeqCst);
                }
            }
        };
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let serve = &serve;
                scope.spawn(move || serve(if thread == 0 { usize::MAX } else { 20 * thread }));
            }
            for edge in 0..EDGES {
                there.write_all(b"x").unwrap();
                let begin = Instant::now();
                while delivered.load(SeqCst) <= edge && begin.elapsed() < HANG {
                    std::thread::yield_now();
                }
                if delivered.load(SeqCst) <= edge {
                    // Lost: the count below fails.
                    break;
                }
            }
            is_over.store(true, SeqCst);
            queue.close();
        });
        assert_eq!(delivered.into_inner(), EDGES, "{policy}");
    }
}

/// Two queues, each with two waiting threads: exclusive registrations of one must not hide the descriptor
/// from the other.
#[test]
fn two_queues_both_report_a_descriptor() {
    const EDGES: u64 = 50;
    let (here, mut there) = std::io::pipe().unwrap();
    let both = [EventQueue::new().unwrap(), EventQueue::new().unwrap()];
    let delivered = [AtomicU64::new(0), AtomicU64::new(0)];
    std::thread::scope(|scope| {
        for (queue, delivered) in both.iter().zip(&delivered).flat_map(|pair| [pair, pair]) {
            scope.spawn(move || {
                let mut worker = queue.worker().unwrap();
                while let Ok(batch) = worker.wait(None) {
                    delivered.fetch_add(batch.count() as u64, SeqCst);
                }
            });
        }
        let begin = Instant::now();
        while both.iter().any(|queue| queue.workers() < 2) && begin.elapsed() < HANG {
            std::thread::yield_now();
        }
        for queue in &both {
            queue.register(&here, Interest::READ, 1, edge()).unwrap();
        }
        for edge in 0..EDGES {
            there.write_all(b"x").unwrap();
            let begin = Instant::now();
            while delivered.iter().any(|delivered| delivered.load(SeqCst) <= edge)
                && begin.elapsed() < HANG
            {
                std::thread::yield_now();
            }
            if begin.elapsed() >= HANG {
                break;
            }
        }
        both.iter().for_each(EventQueue::close);
    });
    assert_eq!(delivered.map(AtomicU64::into_inner), [EDGES, EDGES]);
}
