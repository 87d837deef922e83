//! Requests in streams, end to end. Needs BPF and the kernel's types; otherwise skips, and says so.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use heddle_steer::hook::stream::{
    ByteOrder, Connections, Framing, Request, Requests, StreamScheduler, worker_socket,
};
use heddle_steer::policy::{Object, compile, pairs, read, set_params, shipped};
use heddle_test_support::PATIENCE;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

/// `[length of the payload: 4][tag: 8][payload]`, and of the payload `[type][client][number: 4]...`.
const FRAMING: Framing = Framing::length_prefix(4).with_header(12).with_tag(4);
const HEADER: usize = 12;
const GET: u8 = 1;
const SCAN: u8 = 3;
const BOTH: [&str; 2] = ["127.0.0.1:0", "[::1]:0"];

fn policy(name: &str, parameters: &str) -> Object {
    let mut object = read(shipped(name).expect("it is shipped")).expect("readable");
    set_params(&mut object, &pairs(parameters).expect("pairs")).expect("its parameters");
    object
}

fn sita() -> Object {
    policy("sita", "type-offset=0,scan=3")
}

/// Returns whether programs can be loaded here; prints why not.
fn may_load() -> bool {
    let has = capabilities(None).expect("readable").effective;
    let may = has.contains(CapabilitySet::SYS_ADMIN)
        || has.contains(CapabilitySet::BPF | CapabilitySet::NET_ADMIN | CapabilitySet::PERFMON);
    if !may {
        eprintln!("skipped: loading BPF programs takes privileges");
    }
    may
}

fn message(kind: u8, client: u8, number: u32, filling: usize) -> Vec<u8> {
    let mut payload = vec![kind, client];
    payload.extend(number.to_be_bytes());
    payload.resize(6 + filling, 0xee);
    // A forged tag.
    let mut message = u32::try_from(payload.len()).expect("short").to_be_bytes().to_vec();
    message.extend([0xff; 8]);
    message.extend(payload);
    message
}

/// A server: an acceptor that also closes ended connections, and workers that answer `[worker][payload's
/// first six bytes]`.
struct Server {
    scheduler: Option<StreamScheduler>,
    connections: Arc<Connections>,
    listener: TcpListener,
    /// The far ends of the workers' sockets: closing one ends its worker.
    ends: Vec<OwnedFd>,
    workers: Vec<JoinHandle<usize>>,
    closer: Option<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

impl Server {
    fn new(policy: &Object, workers: u32, at: &str) -> Self {
        let connections = Arc::new(Connections::new(PATIENCE).expect("an epoll"));
        let stop = Arc::new(AtomicBool::new(false));
        let closer = thread::spawn({
            let (connections, stop) = (connections.clone(), stop.clone());
            move || {
                while !stop.load(SeqCst) {
                    connections.close_ended(Duration::from_millis(10)).expect("polled");
                }
            }
        });
        let scheduler = StreamScheduler::new(policy, FRAMING).expect("loaded");
        let mut this = Self {
            scheduler: Some(scheduler),
            connections,
            listener: TcpListener::bind(at).expect("a listener"),
            ends: Vec::new(),
            workers: Vec::new(),
            closer: Some(closer),
            stop,
        };
        (0..workers).for_each(|_| this.add_worker(None));
        this
    }

    fn scheduler(&mut self) -> &mut StreamScheduler {
        self.scheduler.as_mut().expect("it is there until the end")
    }

    fn add_worker(&mut self, at: Option<u32>) {
        let (ours, far) = worker_socket().expect("a pair");
        let index = match at {
            Some(index) => self.scheduler().put_worker(index, ours.as_fd()).map(|()| index),
            None => self.scheduler().add_worker(ours.as_fd()),
        };
        let (index, connections) = (index.expect("a worker"), self.connections.clone());
        self.ends.push(far);
        self.workers.push(thread::spawn(move || serve(ours, index, &connections)));
    }

    fn client(&mut self) -> TcpStream {
        let client = TcpStream::connect(self.listener.local_addr().expect("bound"));
        let client = client.expect("connected");
        client.set_nodelay(true).expect("set");
        client.set_read_timeout(Some(PATIENCE)).expect("set");
        client
    }

    fn accept(&mut self) -> u64 {
        let (connection, _) = self.listener.accept().expect("accepted");
        let connections = self.connections.clone();
        connections.adopt(self.scheduler(), connection).expect("adopted")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
        self.ends.clear();
        let ended: Vec<_> = self.workers.drain(..).map(JoinHandle::join).collect();
        let closed = self.closer.take().map(JoinHandle::join);
        if !thread::panicking() {
            assert!(ended.iter().all(Result::is_ok) && closed.is_some_and(|c| c.is_ok()));
        }
    }
}

fn serve(socket: OwnedFd, index: u32, connections: &Connections) -> usize {
    let (mut requests, mut served) = (Requests::new(socket, FRAMING), 0);
    while let Some(Request { tag, payload, .. }) = requests.receive().expect("read") {
        assert!(payload.len() >= 6, "a misframed request");
        assert!(payload[6..].iter().all(|byte| *byte == 0xee), "a misframed request");
        let mut answer = vec![u8::try_from(index).expect("small")];
        answer.extend(&payload[..6]);
        connections.answer(tag, &answer);
        served += 1;
    }
    served
}

/// One answer: worker, type, client, number.
fn answer(client: &mut TcpStream) -> io::Result<(u8, u8, u8, u32)> {
    let mut bytes = [0; 7];
    client.read_exact(&mut bytes)?;
    let number = u32::from_be_bytes(bytes[3..].try_into().expect("four bytes"));
    Ok((bytes[0], bytes[1], bytes[2], number))
}

/// How a client fragments its data.
fn pieces(bytes: &[u8], cut: usize) -> Vec<&[u8]> {
    match cut {
        // All in one, many requests a segment.
        0 => vec![bytes],
        // Byte by byte.
        1 => bytes.chunks(1).collect(),
        // In sizes unrelated to those of requests.
        n => bytes.chunks(n).collect(),
    }
}

/// Sends requests, a tenth of them SCANs, and reads the answers: each request is answered once, by a worker
/// that SITA may choose for it, to the client that sent it.
fn converse(mut client: TcpStream, name: u8, requests: u32, cut: usize) {
    let kind = |number: u32| if number.is_multiple_of(10) { SCAN } else { GET };
    let filling = |number: u32| (number as usize * 37) % 300;
    let all: Vec<u8> = (0..requests).flat_map(|n| message(kind(n), name, n, filling(n))).collect();
    let mut writer = client.try_clone().expect("a copy");
    let sender = thread::spawn(move || {
        pieces(&all, cut).into_iter().for_each(|piece| writer.write_all(piece).expect("sent"));
    });
    let mut numbers = Vec::new();
    for _ in 0..requests {
        let (worker, type_, of, number) = answer(&mut client).expect("answered");
        assert_eq!((of, type_), (name, kind(number)));
        assert_eq!(worker == 0, type_ == SCAN, "request {number} of client {name}");
        numbers.push(number);
    }
    sender.join().expect("no panic");
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..requests), "client {name}");
}

#[test]
fn all_requests_reach_the_worker_that_the_policy_chose() {
    if !may_load() {
        return;
    }
    for at in BOTH {
        let mut server = Server::new(&sita(), 3, at);
        let plans = [(0, 300), (1, 12), (7, 60), (100, 200), (1448, 300), (20_000, 300)];
        let mut talks = Vec::new();
        for (name, (cut, requests)) in (0..).zip(plans) {
            let client = server.client();
            // The first one is accepted after its requests arrived, the others before.
            if name == 0 {
                talks.push(thread::spawn(move || converse(client, name, requests, cut)));
                thread::sleep(Duration::from_millis(20));
                server.accept();
            } else {
                server.accept();
                talks.push(thread::spawn(move || converse(client, name, requests, cut)));
            }
        }
        talks.into_iter().for_each(|talk| talk.join().expect("no panic"));
        let counts = server.scheduler().counts().expect("counted");
        let sent: u64 = plans.iter().map(|(_, requests)| u64::from(*requests)).sum();
        assert_eq!(counts.selected.iter().sum::<u64>(), sent);
        assert_eq!(counts.failed.iter().sum::<u64>() + counts.passed + counts.dropped, 0);
    }
}

#[test]
fn an_impossible_length_ends_only_its_connection() {
    if !may_load() {
        return;
    }
    let mut server = Server::new(&sita(), 2, BOTH[0]);
    let mut honest = server.client();
    server.accept();
    for length in [u32::MAX, 1 << 31, Framing::MOST] {
        let mut hostile = server.client();
        server.accept();
        let mut bytes = message(GET, 9, 1, 10);
        hostile.write_all(&bytes).expect("sent");
        assert_eq!(answer(&mut hostile).expect("answered").3, 1);
        bytes[..4].copy_from_slice(&length.to_be_bytes());
        hostile.write_all(&bytes).expect("sent");
        let end = hostile.read(&mut [0; 8]);
        assert!(
            matches!(&end, Ok(0))
                || end.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::ConnectionReset),
            "length {length:#x}: {end:?}"
        );
        honest.write_all(&message(GET, 1, length, 5)).expect("sent");
        assert_eq!(answer(&mut honest).expect("answered"), (1, GET, 1, length));
    }
    let counts = server.scheduler().counts().expect("counted");
    assert_eq!(counts.selected.iter().sum::<u64>(), 6);
}

#[test]
fn a_client_that_closes_mid_request_affects_no_other() {
    if !may_load() {
        return;
    }
    let mut server = Server::new(&sita(), 2, BOTH[1]);
    let mut stays = server.client();
    server.accept();
    for cut in [1, 4, HEADER, HEADER + 3] {
        let mut goes = server.client();
        let tag = server.accept();
        goes.write_all(&message(GET, 2, 0, 0)).expect("sent");
        answer(&mut goes).expect("answered");
        goes.write_all(&message(GET, 2, 1, 50)[..cut]).expect("sent");
        drop(goes);
        stays.write_all(&message(SCAN, 1, 7, 0)).expect("sent");
        assert_eq!(answer(&mut stays).expect("answered"), (0, SCAN, 1, 7));
        server.connections.close(tag);
        assert!(!server.connections.answer(tag, b"x"), "it is gone");
    }
    assert_eq!(server.connections.len(), 1);
}

#[test]
fn a_departed_worker_can_be_replaced() {
    if !may_load() {
        return;
    }
    let mut server = Server::new(&sita(), 2, BOTH[0]);
    let mut client = server.client();
    server.accept();
    client.write_all(&message(SCAN, 1, 0, 0)).expect("sent");
    assert_eq!(answer(&mut client).expect("answered").0, 0);
    assert!(server.scheduler().remove_worker(0).expect("removed"));
    assert!(!server.scheduler().remove_worker(0).expect("asked"), "it was");
    server.ends.remove(0);
    assert_eq!(server.workers.remove(0).join().expect("no panic"), 1);
    // The other continues; requests for the departed one are counted, and stay with their connection.
    client.write_all(&message(SCAN, 1, 1, 0)).expect("sent");
    client.write_all(&message(GET, 1, 2, 0)).expect("sent");
    assert_eq!(answer(&mut client).expect("answered"), (1, GET, 1, 2));
    assert_eq!(server.scheduler().counts().expect("counted").failed[0], 1);
    server.add_worker(Some(0));
    client.write_all(&message(SCAN, 1, 3, 0)).expect("sent");
    assert_eq!(answer(&mut client).expect("answered"), (0, SCAN, 1, 3));
}

#[test]
fn a_policy_is_replaced_while_requests_arrive() {
    if !may_load() {
        return;
    }
    let mut server = Server::new(&policy("round-robin", ""), 2, BOTH[0]);
    let mut client = server.client();
    server.accept();
    let mut writer = client.try_clone().expect("a copy");
    let (go, may) = std::sync::mpsc::sync_channel(500);
    let sender = thread::spawn(move || {
        for n in 0..2000 {
            // Never more in flight than a worker's backlog holds.
            go.send(()).expect("answers are read");
            writer.write_all(&message(GET, 1, n, 20)).expect("sent");
        }
    });
    for n in 0..2000 {
        may.recv().expect("it sends");
        answer(&mut client).expect("answered");
        match n {
            500 => server.scheduler().replace(&sita()).expect("replaced"),
            1000 => server.scheduler().replace(&policy("hash", "")).expect("replaced"),
            _ => {}
        }
    }
    sender.join().expect("no panic");
    let counts = server.scheduler().counts().expect("counted");
    assert_eq!(counts.selected.iter().sum::<u64>(), 2000);
    assert_eq!(counts.passed + counts.failed.iter().sum::<u64>(), 0);
}

#[test]
fn without_a_policy_requests_stay_with_their_connection() {
    if !may_load() {
        return;
    }
    let scheduler = StreamScheduler::new(&sita(), FRAMING).expect("loaded");
    assert!(scheduler.take_policy().expect("taken"));
    let listener = TcpListener::bind(BOTH[1]).expect("a listener");
    let mut client = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
    let (mut connection, _) = listener.accept().expect("accepted");
    connection.set_read_timeout(Some(PATIENCE)).expect("set");
    let cookie = scheduler.add_connection(connection.as_fd()).expect("added");
    let sent = message(GET, 1, 5, 0);
    client.write_all(&sent).expect("sent");
    let mut got = vec![0; sent.len()];
    connection.read_exact(&mut got).expect("read");
    assert_eq!(got, sent, "and untouched");
    assert!(scheduler.remove_connection(cookie).expect("removed"));
    assert!(!scheduler.remove_connection(cookie).expect("asked"));
    client.write_all(b"no message").expect("sent");
    connection.read_exact(&mut got[..10]).expect("read");
    assert_eq!(&got[..10], b"no message");
}

/// A connection to `scheduler`; the client's end, and ours, which must stay open.
fn connect(scheduler: &StreamScheduler) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(BOTH[0]).expect("a listener");
    let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
    let (connection, _) = listener.accept().expect("accepted");
    scheduler.add_connection(connection.as_fd()).expect("added");
    (client, connection)
}

fn selected(scheduler: &StreamScheduler) -> Vec<u64> {
    scheduler.counts().expect("counted").selected
}

/// Sends one request and waits until it has been decided.
fn decide(scheduler: &StreamScheduler, client: &mut TcpStream) {
    let before: u64 = selected(scheduler).iter().sum();
    client.write_all(&message(GET, 1, 0, 0)).expect("sent");
    while selected(scheduler).iter().sum::<u64>() == before {
        thread::yield_now();
    }
}

#[test]
fn a_policy_sees_queue_lengths_and_sleeping_workers() {
    if !may_load() {
        return;
    }
    let mut scheduler = StreamScheduler::new(&policy("jiq", ""), FRAMING).expect("loaded");
    let pairs = [(); 2].map(|()| worker_socket().expect("a pair"));
    for (worker, _) in &pairs {
        scheduler.add_worker(worker.as_fd()).expect("added");
    }
    let (mut client, _connection) = connect(&scheduler);
    // No worker reads: the shorter queue gets the next one.
    (0..6).for_each(|_| decide(&scheduler, &mut client));
    assert_eq!(&selected(&scheduler)[..2], [3, 3]);

    let file = tempfile::NamedTempFile::with_suffix(".c").expect("a file");
    let source = "static u32 schedule(struct hd_in *in) { return hd_idle(1) ? 1 : 0; }";
    std::fs::write(&file, format!("#include <heddle.h>\n{source}\n")).expect("written");
    let object = read(&compile(file.path()).expect("compiled")).expect("readable");
    scheduler.replace(&object).expect("replaced");
    (0..3).for_each(|_| decide(&scheduler, &mut client));
    assert_eq!(&selected(&scheduler)[..2], [6, 3], "no thread sleeps on worker 1");
    let [_keep, (worker, far)] = pairs;
    let (say, got) = std::sync::mpsc::channel();
    let reader = thread::spawn(move || {
        let mut requests = Requests::new(worker, FRAMING);
        while requests.receive().expect("read").is_some() {
            say.send(()).expect("the test listens");
        }
    });
    for _ in 0..10_000 {
        decide(&scheduler, &mut client);
        if selected(&scheduler)[1] > 3 {
            break;
        }
        thread::sleep(Duration::from_millis(1));
    }
    assert!(selected(&scheduler)[1] > 3, "it sleeps");
    (0..selected(&scheduler)[1]).for_each(|_| got.recv_timeout(PATIENCE).expect("moved"));
    drop(far);
    reader.join().expect("no panic");
}

#[test]
fn a_worker_that_does_not_read_blocks_no_other_and_takes_no_memory() {
    if !may_load() {
        return;
    }
    const MOST: usize = 16 << 20;
    let mut server = Server::new(&sita(), 2, BOTH[0]);
    // Replaces worker 0 by a socket from which no thread reads.
    let (stuck, _far) = worker_socket().expect("a pair");
    assert!(server.scheduler().remove_worker(0).expect("removed"));
    server.scheduler().put_worker(0, stuck.as_fd()).expect("put");
    let (mut floods, mut client) = (server.client(), server.client());
    server.accept();
    server.accept();
    let scan = message(SCAN, 1, 0, 1000);
    let sent = MOST / scan.len();
    (0..sent).for_each(|_| floods.write_all(&scan).expect("sent"));
    for n in 0..50 {
        client.write_all(&message(GET, 2, n, 10)).expect("sent");
        assert_eq!(answer(&mut client).expect("answered"), (1, GET, 2, n));
    }
    let counts = loop {
        let counts = server.scheduler().counts().expect("counted");
        if counts.selected[0] + counts.failed[0] == sent as u64 {
            break counts;
        }
        thread::yield_now();
    };
    // Its backlog, and what its receive buffer holds.
    assert!((1024..2048).contains(&counts.selected[0]), "{}", counts.selected[0]);
}

/// Every size and order of the number, with and without the header in it, and a header around it.
#[test]
fn all_framings_are_understood() {
    if !may_load() {
        return;
    }
    for size in [1_u32, 2, 4, 8] {
        for (order, counts_header) in
            [(ByteOrder::Big, false), (ByteOrder::Little, true), (ByteOrder::Big, true)]
        {
            let header = size + 5;
            let framing = Framing {
                length_offset: 2,
                order,
                counts_header,
                ..Framing::length_prefix(size).with_header(header)
            };
            let mut scheduler = StreamScheduler::new(&sita(), framing).expect("loaded");
            let (worker, _far) = worker_socket().expect("a pair");
            scheduler.add_worker(worker.as_fd()).expect("added");
            let listener = TcpListener::bind(BOTH[0]).expect("a listener");
            let to = listener.local_addr().expect("bound");
            let mut client = TcpStream::connect(to).expect("connected");
            let (connection, _) = listener.accept().expect("accepted");
            scheduler.add_connection(connection.as_fd()).expect("added");
            let mut sent = Vec::new();
            for payload in [1_usize, 60, 3] {
                let number = payload as u64 + if counts_header { u64::from(header) } else { 0 };
                let bytes = number.to_be_bytes();
                let mut number = bytes[8 - size as usize..].to_vec();
                if order == ByteOrder::Little {
                    number.reverse();
                }
                sent.extend([7, 7]);
                sent.extend(number);
                sent.extend([8; 3]);
                sent.extend(vec![GET; payload]);
            }
            client.write_all(&sent).expect("sent");
            let mut requests = Requests::new(worker, framing);
            let mut got = Vec::new();
            for payload in [1, 60, 3] {
                let request = requests.receive().expect("read").expect("not the end");
                assert_eq!((request.tag, request.payload.len()), (0, payload), "{framing:?}");
                got.extend([request.header, request.payload].concat());
            }
            assert_eq!(got, sent, "{framing:?}");
            assert_eq!(scheduler.counts().expect("counted").selected[0], 3, "{framing:?}");
        }
    }
}

#[test]
fn without_privileges_the_error_names_what_is_required() {
    let refused = thread::spawn(|| {
        let none = CapabilitySet::empty();
        let mut sets = capabilities(None).expect("readable");
        (sets.effective, sets.permitted, sets.inheritable) = (none, none, none);
        // Affects only the calling thread.
        set_capabilities(None, sets).expect("dropped");
        StreamScheduler::new(&sita(), FRAMING).map(drop).unwrap_err().to_string()
    });
    let text = refused.join().expect("no panic");
    assert!(text.contains("CAP_BPF") && text.contains("socket-select"), "{text}");
}
