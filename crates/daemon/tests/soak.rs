//! Tenants that come and go, malicious clients, and random kills, for any length of time: heddled's use of
//! the machine stays constant.

mod common;

use std::fs;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::time::{Duration, Instant};

use common::{
    Daemon, able, as_nobody, attach, compiled, copy, deployment, group, shipped,
    steering_of_nobody, traffic, until,
};
use libbpf_rs::query::{MapInfoIter, ProgInfoIter, ProgInfoQueryOptions};

/// The resources heddled uses.
#[derive(Clone, Copy, Debug)]
struct Footprint {
    resident_kib: u64,
    descriptors: usize,
    threads: usize,
    pins: usize,
    maps: usize,
    programs: usize,
}

impl Footprint {
    fn by(daemon: &Daemon) -> Self {
        let of = |what: &str| format!("/proc/{}/{what}", daemon.id());
        let count = |folder: String| fs::read_dir(folder).map_or(0, Iterator::count);
        let status = fs::read_to_string(of("status")).unwrap_or_default();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let resident = resident.and_then(|text| text.trim().split(' ').next()?.parse().ok());
        let pins = fs::read_dir(daemon.pins()).into_iter().flatten().flatten();
        Self {
            resident_kib: resident.unwrap_or(0),
            descriptors: count(of("fd")),
            threads: count(of("task")),
            pins: pins.map(|entry| count(entry.path().display().to_string())).sum(),
            maps: MapInfoIter::default().count(),
            programs: ProgInfoIter::with_query_opts(ProgInfoQueryOptions::default()).count(),
        }
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % most
    }
}

const PARTS: [&str; 3] =
    ["nobody_is_a_tenant", "nobody_keeps_what_he_gets", "nobody_talks_nonsense"];

/// `scripts/soak`: `HEDDLE_SOAK_MINUTES` of it.
#[test]
#[ignore = "takes an hour: scripts/soak"]
fn heddleds_resource_usage_stays_constant() {
    let minutes = std::env::var("HEDDLE_SOAK_MINUTES").ok().and_then(|text| text.parse().ok());
    let length = Duration::from_secs_f64(60.0 * minutes.unwrap_or(1.0));
    if !able() {
        return;
    }
    let mut daemon = Daemon::start(&["--everyone", "--watch-ms", "100", "--sample-ms", "10"]);
    let sockets = group(3, "127.0.0.1:0");
    let roots = attach(&daemon.steering(), "round-robin", &sockets).expect("attached").id;
    let before = Footprint::by(&daemon);
    println!("{:>8}  {before:?}", "begin");
    let start =
        |daemon: &Daemon, n: usize| as_nobody(PARTS[n % PARTS.len()], &daemon.socket(), &[]);
    let mut parts: Vec<Child> = (0..6).map(|n| start(&daemon, n)).collect();
    let (mut random, begin, mut shown) = (Random(1), Instant::now(), Instant::now());
    let (mut kills, mut restarts) = (0, 0);
    while begin.elapsed() < length {
        std::thread::sleep(Duration::from_millis(50 + random.below(500)));
        let n = usize::try_from(random.below(6)).expect("small");
        parts[n].kill().expect("killed");
        parts[n].wait().expect("ended");
        parts[n] = start(&daemon, n);
        kills += 1;
        // The second half belongs to one heddled, so that its use can be seen to stay constant.
        if random.below(40) == 0 && begin.elapsed() < length / 2 {
            daemon.kill();
            daemon.again();
            restarts += 1;
        }
        assert_eq!(traffic(&sockets, 9), [3, 3, 3], "root's server is steered all the time");
        if shown.elapsed() > length.div_f64(20.0) {
            println!("{:>7.0}s  {:?}", begin.elapsed().as_secs_f64(), Footprint::by(&daemon));
            shown = Instant::now();
        }
    }
    for mut part in parts {
        part.kill().expect("killed");
        part.wait().expect("ended");
    }
    let steering = daemon.steering();
    until("all tenants are gone", || {
        let list = steering.list().expect("listed");
        list.len() == 1 && list[0].id == roots
    });
    // The kernel frees maps and programs after a while.
    let mut last = String::new();
    until("nothing is left of them", || {
        let now = Footprint::by(&daemon);
        // Printed, so that a failure shows what is left.
        let text = format!("{now:?}");
        if text != last {
            println!("{:>8}  {text}", "after");
            last = text;
        }
        // Maps and programs are counted machine-wide: others' may have gone meanwhile.
        now.pins == before.pins
            && now.maps <= before.maps
            && now.programs <= before.programs
            && now.descriptors <= before.descriptors
            && now.threads <= before.threads
    });
    // Requests are not retained; an allocator's reserve is not a leak.
    let now = Footprint::by(&daemon);
    assert!(now.resident_kib < 2 * before.resident_kib + (16 << 10), "{now:?}, {before:?} before");
    println!("{:>8}  {:?}; {kills} tenants killed, {restarts} times heddled", "end", now);
}

#[test]
#[ignore = "run by another test, unprivileged"]
fn nobody_is_a_tenant() {
    let Some(steering) = steering_of_nobody() else { return };
    let names = ["hash", "round-robin", "jiq", "sita", "jsq"];
    for n in 0.. {
        let sockets = group(1 + n % 4, "127.0.0.1:0");
        // heddled may be starting, full, or killed: the next attempt may succeed.
        let Ok(attached) = attach(&steering, names[n % 5], &sockets) else { continue };
        traffic(&sockets, 5);
        let _ = steering.replace(attached.id, shipped(names[(n + 1) % 5]));
        let _ = steering.stats(attached.id, 1);
        if n % 2 == 0 {
            let _ = steering.detach(attached.id, vec![copy(&sockets[0])]);
        }
    }
}

#[test]
#[ignore = "run by another test, unprivileged"]
fn nobody_keeps_what_he_gets() {
    let Some(steering) = steering_of_nobody() else { return };
    let source = "HD_TABLE(big, u64, 20000);\nstatic u32 schedule(struct hd_in *in) \
        { u64 *n = hd_at(big, in->hash % 20000); return n ? *n : 0; }";
    let big = compiled(source);
    let mut kept = Vec::new();
    loop {
        let sockets = group(2, "127.0.0.1:0");
        if let Ok(attached) = steering.attach(deployment(big.clone(), &sockets)) {
            kept.extend(steering.maps(attached.id));
        }
        if kept.len() > 100 {
            kept.clear();
        }
    }
}

#[test]
#[ignore = "run by another test, unprivileged"]
fn nobody_talks_nonsense() {
    let Some(path) = std::env::var_os(common::SOCKET) else { return };
    let mut random = Random(u64::from(std::process::id()));
    let mut held = Vec::new();
    loop {
        if let Ok(mut client) = UnixStream::connect(&path) {
            let length = u8::try_from(random.below(64)).expect("a byte");
            let nonsense: Vec<u8> =
                (0..length).map(|_| u8::try_from(random.below(256)).expect("a byte")).collect();
            let _ = client.write_all(b"HDS\x02");
            let _ = client.write_all(&[length, 0, 0, 0][..1 + usize::from(length) % 4]);
            let _ = client.write_all(&nonsense);
            held.push(client);
        }
        if held.len() > 20 {
            held.clear();
        }
        std::thread::sleep(Duration::from_millis(random.below(20)));
    }
}
