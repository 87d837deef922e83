//! Many connections at once, each with a task of its own that reads under a time limit.
//!
//! `HEDDLE_CONNECTIONS=100000` makes it as many as that; each takes a descriptor in two processes.

mod common;

use common::{alone, assert_success, child, two_workers};
use heddle_rt::net::{TcpListener, TcpStream};
use heddle_rt::{Builder, spawn};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Connections, unless the environment says otherwise or descriptors do not suffice.
const CONNECTIONS: usize = 20_000;

/// Connections to one address: each takes a port of the system's range, which has 28,000 by default.
const PER_ADDRESS: usize = 20_000;

/// Descriptors that a process needs besides.
const SPARE: u64 = 100;

const PATIENCE: Option<Duration> = Some(Duration::from_secs(120));

/// Raises the limit on descriptors as far as that is allowed, up to `wanted`; what it is then.
fn raise_limit(wanted: u64) -> u64 {
    let set = |soft, hard| {
        let limit = libc::rlimit { rlim_cur: soft, rlim_max: hard };
        // SAFETY: a valid limit.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) == 0 }
    };
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a valid place for the answer.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) }, 0);
    if limit.rlim_cur >= wanted {
        return limit.rlim_cur;
    }
    // Above the hard limit only root may go.
    if set(wanted, limit.rlim_max.max(wanted)) {
        return wanted;
    }
    set(limit.rlim_max, limit.rlim_max);
    limit.rlim_max
}

/// How many connections there shall be, and can be. Their other ends are another process's.
fn connections() -> usize {
    let wanted = std::env::var("HEDDLE_CONNECTIONS").map_or(CONNECTIONS, |n| n.parse().unwrap());
    let fit = raise_limit(wanted as u64 + SPARE) - SPARE;
    if fit < wanted as u64 {
        println!(
            "\nmeasured: no more than {fit} connections of {wanted}: RLIMIT_NOFILE is too low"
        );
    }
    wanted.min(fit as usize)
}

/// Echoes until the end; counts those who have seen it.
fn serve(mut stream: TcpStream, ended: &AtomicUsize) {
    stream.set_read_timeout(PATIENCE).unwrap();
    let mut buf = [0; 8];
    while stream.read_exact(&mut buf).is_ok() {
        stream.write_all(&buf).unwrap();
    }
    ended.fetch_add(1, Ordering::Release);
}

/// A server; its port.
fn start(ended: &Arc<AtomicUsize>) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let ended = ended.clone();
    spawn(move || {
        loop {
            let (stream, _) = listener.accept().unwrap();
            let ended = ended.clone();
            let task = Builder::new().stack_size(64 << 10);
            drop(task.spawn(move || serve(stream, &ended)).unwrap());
        }
    });
    port
}

/// The client: has all connections at once, says something on each and hears it again, twice.
fn talk(port: u16, count: usize) {
    raise_limit(count as u64 + SPARE);
    let connect = |i: usize| {
        let addr = SocketAddr::from(([127, 0, 0, 1 + (i / PER_ADDRESS) as u8], port));
        let stream = std::net::TcpStream::connect(addr).unwrap();
        stream.set_read_timeout(PATIENCE).unwrap();
        stream
    };
    let mut streams: Vec<_> = (0..count).map(connect).collect();
    for round in 0..2u32 {
        let say = |i: usize| [round, i as u32].map(u32::to_le_bytes).concat();
        for (i, stream) in streams.iter_mut().enumerate() {
            stream.write_all(&say(i)).unwrap();
        }
        for (i, stream) in streams.iter_mut().enumerate() {
            let mut back = [0; 8];
            stream.read_exact(&mut back).unwrap();
            assert_eq!(back[..], say(i), "its own words");
        }
    }
}

/// Tells the client where to connect: port and number.
const CLIENT: &str = "HEDDLE_TEST_CLIENT";

#[test]
fn many_connections_are_served_under_read_time_limits() {
    let test = "many_connections_are_served_under_read_time_limits";
    if let Ok(words) = std::env::var(CLIENT) {
        let (port, count) = words.split_once(' ').unwrap();
        return talk(port.parse().unwrap(), count.parse().unwrap());
    }
    let body = || {
        let count = connections();
        assert!(count >= 100, "a limit of {count} connections: raise RLIMIT_NOFILE");
        let ended = Arc::new(AtomicUsize::new(0));
        let rt = two_workers("work-stealing");
        let port = rt.run(|| start(&ended));
        let mut client = child(test);
        assert_success(client.env(CLIENT, format!("{port} {count}")).output().unwrap());
        common::wait_until(|| ended.load(Ordering::Acquire) == count);
        println!("\nmeasured: {count} connections");
    };
    alone(test, body, assert_success);
}
