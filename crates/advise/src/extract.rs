//! From a recording to a model.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use heddle_core::Ns;
use heddle_observe::{Group, Protocol, Recording, Socket, Span, ThreadUse};

use crate::classes;
use crate::model::{ClassOfRequests, Model, Neighbour, Queue, Request, Worker, WorkerKind};

/// The share of a thread's requests that overlap from which on it is an event loop.
const OVERLAPS: f64 = 0.05;
/// The share of a thread's requests that follow others on their connection from which on its connections are bound to
/// it: what waits in them waits for this thread.
const FOLLOWS: f64 = 0.5;

/// Returns the model of what came to `port`; of the busiest port if `None`. Requests from the demand `edge` on are
/// long; it is found if `None`.
pub fn model(recording: &Recording, port: Option<u16>, edge: Option<Ns>) -> Model {
    let port = busiest_port(recording, port);
    let spans: Vec<&Span> = in_order(recording, port);
    let sockets: Vec<&Socket> =
        recording.service.sockets.iter().filter(|s| s.port == port).collect();
    let protocol = sockets.first().map_or_else(Protocol::default, |socket| socket.protocol);
    let runtime = recording.service.runtime.clone();
    let mut places = match runtime {
        Some(_) => Places::with_one_queue(&spans, WorkerKind::EventLoop),
        None if recording.service.event_queue.is_some() => {
            Places::with_one_queue(&spans, WorkerKind::Sync)
        }
        None => Places::of(&sockets, &spans, protocol),
    };
    let start = spans.first().map_or(Ns::ZERO, |span| span.arrived);
    let turns = Turns::of(&spans);
    let mut connections = HashMap::new();
    let mut requests: Vec<Request> = Vec::with_capacity(spans.len());
    for span in &spans {
        let number = connections.len() as u32;
        // Datagrams of unknown peers are taken as flows of their own.
        let flow =
            if span.connection == 0 { u64::MAX - u64::from(number) } else { span.connection };
        let connection = *connections.entry(flow).or_insert(number);
        let worker = places.threads[&span.reader];
        requests.push(Request {
            connection,
            worker: worker as u32,
            queue: places.workers[worker].queue as u32,
            ..request(span, start, places.workers[worker].kind, turns.meanwhile(span))
        });
    }
    let (edge, classes) = classify(&mut requests, edge);
    let Delays { wake, wake_on_cpu, turnaround } = delays(&spans);
    for worker in &mut places.workers {
        let thread = recording.threads.iter().find(|thread| thread.thread == worker.thread);
        worker.nice = thread.map_or(0, |thread| thread.nice);
        worker.cpus = thread.map_or_else(String::new, |thread| thread.cpus.clone());
    }
    Model {
        host: recording.host.clone(),
        service: recording.service.name.clone(),
        protocol,
        port,
        queues: places.queues,
        workers: places.workers,
        runtime,
        edge,
        classes,
        requests,
        wake,
        wake_on_cpu,
        turnaround,
        run_queue: run_queue(recording),
        group: own_group(recording),
        neighbours: neighbours(recording),
    }
}

/// Returns `port`, or the port to which most requests came; 0 if none came.
#[must_use]
pub fn busiest_port(recording: &Recording, port: Option<u16>) -> u16 {
    let mut counts: BTreeMap<u16, usize> = BTreeMap::new();
    recording.spans.iter().for_each(|span| *counts.entry(span.port).or_default() += 1);
    let busiest = counts.into_iter().max_by_key(|(_, count)| *count).map(|(port, _)| port);
    port.or(busiest).unwrap_or_default()
}

/// Returns the requests to `port` that can be placed in time, in order of arrival.
fn in_order(recording: &Recording, port: u16) -> Vec<&Span> {
    let sane = |span: &&Span| span.arrived <= span.received && span.received <= span.answered;
    let mut spans: Vec<&Span> =
        recording.spans.iter().filter(|s| s.port == port).filter(sane).collect();
    spans.sort_by_key(|span| span.arrived);
    spans
}

/// What threads did on requests, in the order of their answers.
struct Turns(BTreeMap<u32, Vec<(Ns, Ns)>>);

impl Turns {
    fn of(spans: &[&Span]) -> Turns {
        let mut turns: BTreeMap<u32, Vec<(Ns, Ns)>> = BTreeMap::new();
        let mut by_answer: Vec<&&Span> = spans.iter().collect();
        by_answer.sort_by_key(|span| span.answered);
        for span in by_answer {
            let done = turns.entry(span.reader).or_default();
            let sum = done.last().map_or(Ns::ZERO, |(_, sum)| *sum);
            done.push((span.answered, sum + span.cpu + span.run_queue + span.off.total()));
        }
        Turns(turns)
    }

    /// Returns how long the reader of `span` worked on requests that it answered between reading and answering this.
    fn meanwhile(&self, span: &Span) -> Ns {
        let Some(done) = self.0.get(&span.reader) else { return Ns::ZERO };
        let until = |time: Ns| {
            let count = done.partition_point(|(answered, _)| *answered < time);
            count.checked_sub(1).map_or(Ns::ZERO, |last| done[last].1)
        };
        until(span.answered) - until(span.received)
    }
}

/// Converts a span. What no thread did on it passed in an `await`, or in another process: it is part of the wait of an
/// event loop's request, but for the time in which the loop served others (`meanwhile`): that is queueing, which a
/// replay finds itself. A sync worker that did nothing while it held a request waited, too.
fn request(span: &Span, start: Ns, kind: WorkerKind, meanwhile: Ns) -> Request {
    let held = span.answered - span.received;
    let known = span.cpu + span.run_queue + span.off.total();
    let unknown = held - known - if kind == WorkerKind::EventLoop { meanwhile } else { Ns::ZERO };
    // Locks are the service's own queueing: they go when it goes.
    let locks = match kind {
        WorkerKind::Sync => Ns::ZERO,
        WorkerKind::EventLoop => span.off.futex,
    };
    Request {
        arrived: span.arrived - start,
        cpu: span.cpu,
        sleep: span.off.total() - locks + unknown,
        run_queue: span.run_queue,
        response: span.response(),
        ..Request::default()
    }
}

/// Marks the long requests, if there are two classes.
fn classify(requests: &mut [Request], edge: Option<Ns>) -> (Option<Ns>, Vec<ClassOfRequests>) {
    let demands: Vec<Ns> = requests.iter().map(Request::demand).collect();
    let class = |name: &str, requests: &[Request], class| {
        let mut demands: Vec<Ns> =
            requests.iter().filter(|r| r.class == class).map(Request::demand).collect();
        ClassOfRequests {
            name: name.into(),
            requests: demands.len(),
            demand: crate::quantile(&mut demands, 0.5),
        }
    };
    let Some(edge) = edge.or_else(|| classes::split(&demands)) else {
        return (None, vec![class("all", requests, 0)]);
    };
    requests.iter_mut().for_each(|request| request.class = u8::from(request.demand() >= edge));
    (Some(edge), vec![class("short", requests, 0), class("long", requests, 1)])
}

/// Queues, workers, and the worker that each reading thread is.
struct Places {
    queues: Vec<Queue>,
    workers: Vec<Worker>,
    threads: BTreeMap<u32, usize>,
}

impl Places {
    fn of(sockets: &[&Socket], spans: &[&Span], protocol: Protocol) -> Places {
        let readers: BTreeMap<u32, u32> =
            spans.iter().map(|span| (span.reader, span.process)).collect();
        let processes: BTreeSet<u32> = readers.values().copied().collect();
        let loops = event_loops(spans);
        let mut places = Places { queues: vec![], workers: vec![], threads: BTreeMap::new() };
        let mut queue_of: HashMap<(u64, u32), usize> = HashMap::new();
        for (&thread, &process) in &readers {
            let kind =
                if loops.contains(&thread) { WorkerKind::EventLoop } else { WorkerKind::Sync };
            let socket = match protocol {
                Protocol::Udp => read_most(spans, thread).and_then(|cookie| {
                    sockets.iter().find(|socket| socket.cookie == cookie).copied()
                }),
                Protocol::Tcp => own(sockets, process, &processes),
            };
            // An event loop's connections wait in it, whichever socket they came from.
            let key = match (kind, socket) {
                (WorkerKind::EventLoop, _) => (0, thread),
                (WorkerKind::Sync, Some(socket)) => (socket.inode, 0),
                (WorkerKind::Sync, None) => (0, 0),
            };
            let queue = *queue_of.entry(key).or_insert_with(|| {
                let steerable = socket.is_some_and(|socket| socket.shares_port);
                places.queues.push(Queue { socket: socket.map_or(0, |s| s.inode), steerable });
                places.queues.len() - 1
            });
            places.threads.insert(thread, places.workers.len());
            places.workers.push(Worker { thread, process, queue, kind, ..Worker::default() });
        }
        places.add_idle(sockets);
        places
    }

    /// The workers of a runtime, where a request that waits holds none of them, or the threads of an event queue: any
    /// of them takes any request.
    fn with_one_queue(spans: &[&Span], kind: WorkerKind) -> Places {
        let readers: BTreeMap<u32, u32> =
            spans.iter().map(|span| (span.reader, span.process)).collect();
        let worker = |(&thread, &process): (&u32, &u32)| Worker {
            thread,
            process,
            kind,
            ..Worker::default()
        };
        Places {
            queues: vec![Queue::default()],
            threads: readers.keys().copied().zip(0..).collect(),
            workers: readers.iter().map(worker).collect(),
        }
    }

    /// Adds the sockets to which nothing came: a policy may send requests there. Of the owners, the last process is
    /// the worker; the first started it.
    fn add_idle(&mut self, sockets: &[&Socket]) {
        for socket in sockets.iter().filter(|socket| socket.shares_port) {
            let taken = self.queues.iter().any(|queue| queue.socket == socket.inode);
            let served = |owner| self.workers.iter().any(|worker| worker.process == owner);
            if let Some(&process) =
                socket.owners.iter().max().filter(|owner| !taken && !served(**owner))
            {
                let (queue, kind) = (self.queues.len(), WorkerKind::Sync);
                self.queues.push(Queue { socket: socket.inode, steerable: true });
                self.workers.push(Worker {
                    thread: process,
                    process,
                    queue,
                    kind,
                    ..Worker::default()
                });
            }
        }
    }
}

/// Returns the socket from which only `process` of those that serve accepts.
fn own<'s>(sockets: &[&'s Socket], process: u32, processes: &BTreeSet<u32>) -> Option<&'s Socket> {
    let mine = |socket: &&&Socket| {
        let mut serving = socket.owners.iter().filter(|owner| processes.contains(owner));
        serving.next() == Some(&process) && serving.next().is_none()
    };
    let mut found = sockets.iter().filter(mine);
    found.next().copied().filter(|_| found.next().is_none())
}

fn read_most(spans: &[&Span], thread: u32) -> Option<u64> {
    let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
    let read = spans.iter().filter(|span| span.reader == thread);
    read.for_each(|span| *counts.entry(span.queue).or_default() += 1);
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(queue, _)| queue)
}

fn event_loops(spans: &[&Span]) -> BTreeSet<u32> {
    let mut counts: BTreeMap<u32, [usize; 3]> = BTreeMap::new();
    for span in spans {
        let [all, overlapped, follows] = counts.entry(span.reader).or_default();
        *all += 1;
        *overlapped += usize::from(span.overlapped);
        *follows += usize::from(span.connection != 0 && !span.first);
    }
    let is_loop = |[all, overlapped, follows]: [usize; 3]| {
        overlapped as f64 > OVERLAPS * all as f64 || follows as f64 > FOLLOWS * all as f64
    };
    counts.into_iter().filter(|(_, counts)| is_loop(*counts)).map(|(thread, _)| thread).collect()
}

/// See the fields of [`Model`] of these names.
#[derive(Default)]
struct Delays {
    wake: Vec<Ns>,
    wake_on_cpu: Vec<Ns>,
    turnaround: Vec<Ns>,
}

/// Returns how long idle workers took to begin, and busy ones to go on after an answer.
fn delays(spans: &[&Span]) -> Delays {
    let mut delays = Delays::default();
    let mut last_answer: HashMap<u32, Ns> = HashMap::new();
    let mut by_start: Vec<&&Span> = spans.iter().collect();
    by_start.sort_by_key(|span| span.received);
    for span in by_start {
        match last_answer.get(&span.reader) {
            // An event loop read it before it answered the one before: no delay of its own.
            Some(&answer) if answer > span.received => {}
            Some(&answer) if answer > span.arrived => {
                delays.turnaround.push(span.received - answer)
            }
            // The first of each worker may have waited for what was not seen.
            Some(_) => {
                delays.wake.push(span.wait());
                delays.wake_on_cpu.push(span.wait() - span.wake_delay);
            }
            None => {}
        }
        let last = last_answer.entry(span.reader).or_default();
        *last = (*last).max(span.answered);
    }
    delays
}

fn run_queue(recording: &Recording) -> Ns {
    let own = |thread: &&ThreadUse| recording.service.processes.contains(&thread.process);
    let times = recording.threads.iter().filter(own).map(|thread| thread.run_queue);
    times.fold(Ns::ZERO, |sum, time| sum + time)
}

fn own_group(recording: &Recording) -> Group {
    let own = recording
        .threads
        .iter()
        .find(|thread| recording.service.processes.contains(&thread.process));
    own.map_or_else(Group::default, |thread| thread.group.clone())
}

fn neighbours(recording: &Recording) -> Vec<Neighbour> {
    let service: BTreeSet<u32> = recording.service.processes.iter().copied().collect();
    let length = recording.watched().as_secs_f64().max(1e-9);
    let others =
        recording.threads.iter().filter(|t| !service.contains(&t.process) && t.cpu > Ns::ZERO);
    let mut found: Vec<Neighbour> = others
        .map(|thread| Neighbour {
            thread: thread.thread,
            process: thread.process,
            name: thread.name.clone(),
            nice: thread.nice,
            group: thread.group.clone(),
            cpus: thread.cpus.clone(),
            share: thread.cpu.as_secs_f64() / length,
            waiting: thread.run_queue.as_secs_f64() / length,
            delayed_service: thread.delayed_service,
            bursts: thread.bursts.clone(),
        })
        .collect();
    found.sort_by(|a, b| {
        b.delayed_service.cmp(&a.delayed_service).then(b.share.total_cmp(&a.share))
    });
    found
}
