//! Everything at once, at random, under every policy. `HEDDLE_STRESS` is the number of seconds for all of it (default
//! 2), `HEDDLE_SEED` repeats a choice of operations.

mod common;

use common::{policies, two_workers};
use heddle_rt::net::{TcpListener, TcpStream};
use heddle_rt::sync::{Mutex, RwLock, Semaphore, mpsc};
use heddle_rt::{blocking, no_preempt, now, sleep, spawn, yield_now};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// A small generator: what it yields depends on the seed alone.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (x ^ (x >> 27)) % n
    }
}

struct World {
    counter: Mutex<u64>,
    pair: RwLock<(u64, u64)>,
    permits: Semaphore,
    inside: AtomicU64,
    counted: AtomicU64,
    to: mpsc::SyncSender<u64>,
    sent: AtomicU64,
    server: SocketAddr,
    stop: AtomicBool,
}

fn spin(rounds: u64) {
    (0..rounds).for_each(|_| std::hint::spin_loop());
}

/// One random operation; each checks itself.
fn step(world: &World, dice: &mut Dice, stream: &mut TcpStream) {
    match dice.below(12) {
        0 => yield_now(),
        1 => spin(dice.below(20_000)),
        2 => sleep(Duration::from_micros(dice.below(200))),
        3 => {
            let n = dice.below(1000);
            let task = spawn(move || {
                yield_now();
                n
            });
            assert_eq!(task.join().unwrap(), n);
        }
        4 => {
            let mut counter = world.counter.lock();
            spin(dice.below(200));
            *counter += 1;
            world.counted.fetch_add(1, Ordering::Relaxed);
        }
        5 => {
            let mut pair = world.pair.write();
            pair.0 += 1;
            spin(dice.below(200));
            pair.1 += 1;
        }
        6 => {
            let pair = world.pair.read();
            assert_eq!(pair.0, pair.1);
        }
        7 => {
            let _permit = world.permits.acquire();
            assert!(world.inside.fetch_add(1, Ordering::SeqCst) < 3);
            spin(dice.below(500));
            world.inside.fetch_sub(1, Ordering::SeqCst);
        }
        8 => {
            let value = dice.below(100);
            world.sent.fetch_add(value, Ordering::Relaxed);
            world.to.send(value).unwrap();
        }
        9 => talk(stream, dice.below(1 << 40)),
        10 => blocking(|| std::thread::sleep(Duration::from_micros(dice.below(100)))),
        _ => no_preempt(|| spin(dice.below(2_000))),
    }
}

fn talk(stream: &mut TcpStream, value: u64) {
    let mut back = [0; 8];
    stream.write_all(&value.to_le_bytes()).unwrap();
    stream.read_exact(&mut back).unwrap();
    assert_eq!(u64::from_le_bytes(back), value);
}

fn echo(mut stream: TcpStream) {
    let mut buf = [0; 64];
    while let Ok(n @ 1..) = stream.read(&mut buf) {
        if stream.write_all(&buf[..n]).is_err() {
            return;
        }
    }
}

fn echo_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            drop(spawn(move || echo(stream)));
        }
    });
    addr
}

/// Steps until the world stops.
fn live(world: Arc<World>, seed: u64) -> u64 {
    let mut dice = Dice(seed);
    let mut stream = TcpStream::connect(world.server).unwrap();
    let mut steps = 0;
    while !world.stop.load(Ordering::Relaxed) {
        step(&world, &mut dice, &mut stream);
        steps += 1;
    }
    steps
}

fn stress(seed: u64, time: Duration) -> u64 {
    let (to, from) = mpsc::sync_channel(16);
    let received = spawn(move || from.iter().sum::<u64>());
    let world = Arc::new(World {
        counter: Mutex::new(0),
        pair: RwLock::default(),
        permits: Semaphore::new(3),
        inside: AtomicU64::new(0),
        counted: AtomicU64::new(0),
        to,
        sent: AtomicU64::new(0),
        server: echo_server(),
        stop: AtomicBool::new(false),
    });
    let task = |i: u64| {
        let world = world.clone();
        spawn(move || live(world, seed.wrapping_add(i << 32)))
    };
    let tasks: Vec<_> = (0..16).map(task).collect();
    let end = now() + time.into();
    while now() < end {
        sleep(Duration::from_millis(5));
    }
    world.stop.store(true, Ordering::Relaxed);
    let steps = tasks.into_iter().map(|t| t.join().unwrap()).sum();
    assert_eq!(*world.counter.lock(), world.counted.load(Ordering::Relaxed));
    let world = Arc::into_inner(world).expect("every task has ended");
    drop(world.to);
    assert_eq!(received.join().unwrap(), world.sent.into_inner());
    steps
}

#[test]
fn everything_at_once_under_every_policy() {
    let seconds = std::env::var("HEDDLE_STRESS").map_or(2.0, |s| s.parse::<f64>().unwrap());
    let random = || heddle_sys::clock::now().0;
    let seed = std::env::var("HEDDLE_SEED").map_or_else(|_| random(), |s| s.parse().unwrap());
    println!("HEDDLE_SEED={seed}");
    let each = Duration::from_secs_f64(seconds / policies().len() as f64);
    for policy in &policies() {
        let rt = two_workers(policy);
        let steps = rt.run(|| stress(seed, each));
        println!("{policy}: {steps} steps, {:?}", rt.stats());
        assert!(steps > 0);
    }
}
