//! Requests as found at sockets, compared one by one with what the server logged.

mod support;

use std::collections::VecDeque;
use std::io::Write as _;
use std::net::{TcpStream, UdpSocket};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use heddle_core::Ns;
use heddle_observe::Options;
use heddle_sys::thread;
use rustix::event::epoll;
use support::{
    Entry, Log, burn, check, cookie, listen, pair, read_answer, read_request, request, timed,
    watch, write_answer,
};

/// Accepts, reads, computes, sleeps, answers, closes.
#[test]
fn a_synchronous_server() {
    const REQUESTS: u64 = 300;
    let (listener, address) = listen();
    let log = Log::default();
    for _ in 0..3 {
        let (listener, log) = (listener.try_clone().unwrap(), log.clone());
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let mut entry = Entry::default();
                assert!(read_request(&stream, &mut entry));
                burn(Duration::from_micros(100));
                std::thread::sleep(Duration::from_millis(1));
                write_answer(&stream, &mut entry);
                log.add(entry);
            }
        });
    }
    let clients = || {
        std::thread::scope(|scope| {
            for client in 0..4 {
                scope.spawn(move || {
                    for id in (0..REQUESTS).filter(|id| id % 4 == client) {
                        request(&TcpStream::connect(address).unwrap(), id);
                    }
                });
            }
        });
    };
    let Some(recording) = watch(&[address.port()], &Options::default(), clients) else { return };
    let entries = log.entries();
    assert_eq!(entries.len() as u64, REQUESTS);
    assert_eq!(recording.spans.len() as u64, REQUESTS, "{:?}", recording.lost);
    assert_eq!((recording.windows.len(), recording.lost.records), (1, 0));
    let mut slept = 0;
    for (entry, span) in pair(&entries, &recording.spans, |span| span.connection) {
        check(&entry, &span);
        let sum = span.cpu + span.run_queue + span.off.total();
        assert_eq!(sum, span.answered - span.received, "every moment has a cause: {span:#?}");
        assert!(span.cpu > Ns::ZERO, "{span:#?}");
        slept += u64::from(span.off.sleep > Ns::ZERO);
        assert!(span.first && !span.overlapped && !span.unconfirmed);
        assert_eq!((span.reads, span.writes, span.bytes_in, span.bytes_out), (1, 1, 8, 8));
    }
    // Seen once, unexplained: a sleep counted as CPU time, on a loaded machine. The timer may have fired before its
    // thread left the CPU, or no program ran at two switches in a row.
    assert!(slept >= REQUESTS - REQUESTS / 50, "{slept} of {REQUESTS}");
}

/// Four connections stay open, one thread serves them by epoll. `batch`: it reads all that are ready before it answers
/// any of them, as redis does.
fn event_loop(batch: bool) {
    const CLIENTS: u64 = 4;
    const REQUESTS: u64 = 100;
    let (listener, address) = listen();
    let log = Log::default();
    let own = log.clone();
    std::thread::spawn(move || {
        let streams: Vec<TcpStream> = (0..CLIENTS).map(|_| listener.accept().unwrap().0).collect();
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        for (at, stream) in streams.iter().enumerate() {
            let data = epoll::EventData::new_u64(at as u64);
            epoll::add(&poll, stream, data, epoll::EventFlags::IN).unwrap();
        }
        let mut events = Vec::with_capacity(16);
        let answer = |(at, mut entry): (usize, Entry)| {
            burn(Duration::from_micros(20));
            write_answer(&streams[at], &mut entry);
            own.add(entry);
        };
        loop {
            events.clear();
            epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), None).unwrap();
            let mut work = Vec::new();
            for event in &events {
                let (at, mut entry) = (event.data.u64() as usize, Entry::default());
                if !read_request(&streams[at], &mut entry) {
                    return;
                }
                burn(Duration::from_micros(30));
                if batch { work.push((at, entry)) } else { answer((at, entry)) }
            }
            work.into_iter().for_each(answer);
        }
    });
    let streams: Vec<TcpStream> =
        (0..CLIENTS).map(|_| TcpStream::connect(address).unwrap()).collect();
    let clients = || {
        for id in 0..REQUESTS {
            for mut stream in &streams {
                stream.write_all(&id.to_le_bytes()).unwrap();
            }
            streams.iter().for_each(|stream| read_answer(stream, id));
        }
    };
    let Some(recording) = watch(&[address.port()], &Options::default(), clients) else { return };
    let entries = log.entries();
    assert_eq!(recording.spans.len() as u64, CLIENTS * REQUESTS, "{:?}", recording.lost);
    let mut overlapped = 0;
    for (entry, span) in pair(&entries, &recording.spans, |span| span.connection) {
        check(&entry, &span);
        let read_meanwhile =
            |other: &Entry| entry.read.1 < other.read.0 && other.read.1 < entry.write.0;
        assert_eq!(span.overlapped, entries.iter().any(read_meanwhile), "{span:#?}");
        assert!(!span.first && !span.unconfirmed && span.arrived == span.ready);
        assert!(span.cpu + span.run_queue > Ns::ZERO, "{span:#?}");
        overlapped += u32::from(span.overlapped);
    }
    assert!(batch || overlapped == 0);
}

#[test]
fn an_event_loop_on_connections_that_stay_open() {
    event_loop(false);
}

#[test]
fn an_event_loop_that_reads_all_before_it_answers() {
    event_loop(true);
}

/// One thread accepts and reads, four others answer.
#[test]
fn a_pool_of_threads_behind_a_reader() {
    const REQUESTS: u64 = 200;
    let (listener, address) = listen();
    let log = Log::default();
    type Queue = Mutex<VecDeque<(TcpStream, Entry)>>;
    let queue: Arc<(Queue, Condvar)> = Arc::default();
    for _ in 0..4 {
        let (queue, log) = (queue.clone(), log.clone());
        std::thread::spawn(move || {
            loop {
                let mut pending = queue.0.lock().unwrap();
                let (stream, mut entry) = loop {
                    match pending.pop_front() {
                        Some(work) => break work,
                        None => pending = queue.1.wait(pending).unwrap(),
                    }
                };
                drop(pending);
                burn(Duration::from_micros(100));
                write_answer(&stream, &mut entry);
                log.add(entry);
            }
        });
    }
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let mut entry = Entry::default();
            assert!(read_request(&stream, &mut entry));
            queue.0.lock().unwrap().push_back((stream, entry));
            queue.1.notify_one();
        }
    });
    let client = || (0..REQUESTS).for_each(|id| request(&TcpStream::connect(address).unwrap(), id));
    let Some(recording) = watch(&[address.port()], &Options::default(), client) else { return };
    assert_eq!(recording.spans.len() as u64, REQUESTS, "{:?}", recording.lost);
    let mut confirmed = 0;
    for (entry, span) in pair(&log.entries(), &recording.spans, |span| span.connection) {
        check(&entry, &span);
        assert!(span.reader != span.writer && span.first && !span.overlapped, "{span:#?}");
        confirmed += u64::from(!span.unconfirmed);
        if !span.unconfirmed {
            assert!(span.cpu > Ns::ZERO, "{span:#?}");
        }
    }
    // A worker that has just answered may take the next from the queue before the worker that was woken for it.
    assert!(confirmed * 2 >= REQUESTS, "{confirmed} of {REQUESTS}");
}

/// Three requests are sent at once; the server reads and answers one after another.
#[test]
fn pipelined_requests() {
    const ROUNDS: u64 = 50;
    let (listener, address) = listen();
    let log = Log::default();
    let own = log.clone();
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut entry = Entry::default();
        while read_request(&stream, &mut entry) {
            write_answer(&stream, &mut entry);
            own.add(entry);
        }
    });
    let client = || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        for round in 0..ROUNDS {
            let ids = [round * 3, round * 3 + 1, round * 3 + 2];
            stream.write_all(&ids.map(u64::to_le_bytes).concat()).unwrap();
            ids.iter().for_each(|id| read_answer(&stream, *id));
        }
    };
    let Some(recording) = watch(&[address.port()], &Options::default(), client) else { return };
    assert_eq!(recording.spans.len() as u64, ROUNDS * 3, "{:?}", recording.lost);
    for (entry, span) in pair(&log.entries(), &recording.spans, |span| span.connection) {
        check(&entry, &span);
        assert_eq!(span.overlapped, entry.id % 3 != 0, "{span:#?}");
        assert_eq!(span.first, entry.id == 0);
    }
}

/// A request comes in two pieces, its answer goes in three, with a sleep between them.
#[test]
fn requests_and_answers_in_pieces() {
    const REQUESTS: u64 = 20;
    let (listener, address) = listen();
    let log = Log::default();
    let own = log.clone();
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let (mut first, mut second) = (Entry::default(), Entry::default());
        while read_request(&stream, &mut first) && read_request(&stream, &mut second) {
            write_answer(&stream, &mut first);
            std::thread::sleep(Duration::from_millis(1));
            write_answer(&stream, &mut first);
            write_answer(&stream, &mut first);
            own.add(first);
        }
    });
    let client = || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        for id in 0..REQUESTS {
            for _ in 0..2 {
                stream.write_all(&id.to_le_bytes()).unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
            (0..3).for_each(|_| read_answer(&stream, id));
        }
    };
    let Some(recording) = watch(&[address.port()], &Options::default(), client) else { return };
    assert_eq!(recording.spans.len() as u64, REQUESTS, "{:?}", recording.lost);
    for (entry, span) in pair(&log.entries(), &recording.spans, |span| span.connection) {
        check(&entry, &span);
        assert_eq!((span.reads, span.writes, span.bytes_in, span.bytes_out), (2, 3, 16, 24));
        let sum = span.cpu + span.run_queue + span.off.total();
        assert_eq!(sum, span.answered - span.received, "{span:#?}");
    }
}

/// Three datagram sockets with a thread each; datagrams come in bursts, so they wait in the sockets.
#[test]
fn datagrams_in_several_sockets() {
    const BURSTS: u64 = 10;
    const LENGTH: u64 = 20;
    let log = Log::default();
    let sockets = [(); 3].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    let addresses = sockets.each_ref().map(|socket| socket.local_addr().unwrap());
    for socket in sockets {
        let log = log.clone();
        std::thread::spawn(move || {
            loop {
                let (mut bytes, mut entry) = ([0; 8], Entry::default());
                let (read, from) = timed(|| socket.recv_from(&mut bytes).unwrap().1);
                burn(Duration::from_micros(50));
                let (write, _) = timed(|| socket.send_to(&bytes, from).unwrap());
                (entry.read, entry.write, entry.id) = (read, write, u64::from_le_bytes(bytes));
                (entry.reader, entry.writer) = (thread::id(), thread::id());
                entry.socket = cookie(&socket);
                log.add(entry);
            }
        });
    }
    let sent = Mutex::new(vec![Ns::ZERO; (3 * BURSTS * LENGTH) as usize]);
    let client = || {
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        for burst in 0..BURSTS {
            for number in 0..LENGTH {
                for (at, address) in addresses.iter().enumerate() {
                    let id = (burst * LENGTH + number) * 3 + at as u64;
                    let ((before, _), _) =
                        timed(|| client.send_to(&id.to_le_bytes(), address).unwrap());
                    sent.lock().unwrap()[id as usize] = before;
                }
            }
            for _ in 0..3 * LENGTH {
                client.recv_from(&mut [0; 8]).unwrap();
            }
        }
    };
    let ports = addresses.map(|address| address.port());
    let Some(recording) = watch(&ports, &Options::default(), client) else { return };
    assert_eq!(recording.spans.len() as u64, 3 * BURSTS * LENGTH, "{:?}", recording.lost);
    let sent = sent.into_inner().unwrap();
    for (entry, span) in pair(&log.entries(), &recording.spans, |span| span.queue) {
        check(&entry, &span);
        assert!(span.arrived >= sent[entry.id as usize], "another's arrival: {entry:?} {span:?}");
        let next = entry.id as usize + 3;
        // The next for the same socket was sent later.
        assert!(next >= sent.len() || span.arrived <= sent[next], "{entry:?} {span:?}");
        assert!(!span.overlapped && span.connection == 0);
    }
    let cookies: Vec<u64> = recording.service.sockets.iter().map(|socket| socket.cookie).collect();
    assert!(recording.spans.iter().all(|span| cookies.contains(&span.queue)), "{cookies:?}");
}

/// One listener for both families: clients of the older come with mapped addresses.
#[test]
fn both_families_of_addresses() {
    let Ok(listener) = std::net::TcpListener::bind("[::]:0") else {
        return eprintln!("skipped: no IPv6");
    };
    let port = listener.local_addr().unwrap().port();
    let log = Log::default();
    let own = log.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut entry = Entry::default();
            assert!(read_request(&stream, &mut entry));
            write_answer(&stream, &mut entry);
            own.add(entry);
        }
    });
    let clients = || {
        for id in 0..20 {
            let host = if id % 2 == 0 { "127.0.0.1" } else { "::1" };
            request(&TcpStream::connect((host, port)).unwrap(), id);
        }
    };
    let Some(recording) = watch(&[port], &Options::default(), clients) else { return };
    assert_eq!(recording.spans.len(), 20, "{:?}", recording.lost);
    for (entry, span) in pair(&log.entries(), &recording.spans, |span| span.connection) {
        check(&entry, &span);
        assert_eq!(span.port, port);
    }
}
