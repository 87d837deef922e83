//! Replacing a policy under load: what is lost, and how soon the new one decides.

use std::fs;
use std::io;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use heddle_metrics::{Better, Cell, Collector, Progress, Row, Run, Table, human};
use heddle_steer::hook::observe::Observed;

use super::sockets::bind;
use super::source::{Handle, Workers};
use super::{Group, Sockets, wire};
use heddle_load::Op;

/// Options of this part.
#[derive(Clone, Copy, Debug)]
pub struct ReplaceOptions {
    /// Rounds.
    pub rounds: u32,
    /// Load time of each round.
    pub duration: Duration,
    /// Datagrams per second.
    pub rate: u32,
    /// Replacements per second.
    pub swaps: u32,
}

const CASE: &str = "replace";
/// Most time until sent datagrams are read.
const DRAIN: Duration = Duration::from_millis(500);
const POLICIES: [&str; 2] = ["round-robin", "sita"];

/// Threads that count their datagrams, one socket each.
struct Sink {
    received: Arc<AtomicU64>,
    _workers: Workers,
}

impl Sink {
    fn start(sockets: Vec<UdpSocket>) -> io::Result<Sink> {
        let received = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&received);
        let handle: Arc<Handle> = Arc::new(move |_, _, _, _| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        let workers = Workers::start(sockets, Sockets::Own, handle)?;
        Ok(Sink { received, _workers: workers })
    }

    fn count(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
}

/// Measures.
///
/// # Errors
/// System errors.
pub fn run(
    options: &ReplaceOptions,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<Vec<Row>> {
    progress.step("replacing a policy under load");
    let mut collect = Collector::new();
    for _ in 0..options.rounds {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        round(options, &mut collect)?;
    }
    let rows = collect.into_rows().into_iter();
    Ok(rows.map(|row| row.with_better(Better::Lower)).collect())
}

fn round(options: &ReplaceOptions, collect: &mut Collector) -> io::Result<()> {
    let sockets = bind(Sockets::Own)?;
    let address = sockets[0].local_addr()?;
    let begin = Instant::now();
    let mut group = Group::attach(POLICIES[0], &sockets, Observed::Datagrams)?;
    let attached = effect(&group, &sockets, begin)?;
    let programs = [group.load(POLICIES[0])?, group.load(POLICIES[1])?];
    let sink = Sink::start(sockets)?;
    // The datagram that showed the effect is still queued.
    let (before, failed_before) = (wait_for(&sink, 1), failed(&group)?);
    let done = AtomicBool::new(false);
    let (swaps, swap_ns, sent) = thread::scope(|scope| {
        let swapper = scope.spawn(|| swap(options, &group, &programs, &done));
        let sent = send(options, address);
        done.store(true, Ordering::Relaxed);
        let (swaps, ns) =
            swapper.join().map_err(|_| io::Error::other("the swapper panicked"))??;
        Ok::<_, io::Error>((swaps, ns, sent?))
    })?;
    let received = wait_for(&sink, before + sent) - before;
    // A full receive buffer means that a thread got no CPU; it would have been full without a swap too.
    let overflowed = overflowed(address.port())?;
    let mut add = |metric: &str, unit, value| collect.add(CASE, CASE, metric, unit, Run::ok(value));
    add("lost", "datagrams", (sent - received) as f64 - overflowed as f64);
    add("overflowed", "datagrams", overflowed as f64);
    add("failed_selects", "selects", (failed(&group)? - failed_before) as f64);
    add("sent", "datagrams", sent as f64);
    add("swaps", "swaps", swaps as f64);
    add("swap_ns", "ns", swap_ns);
    add("attach_to_effect_ns", "ns", attached.as_nanos() as f64);
    Ok(())
}

/// Time from the request to the first datagram steered by the new policy.
fn effect(group: &Group, sockets: &[UdpSocket], begin: Instant) -> io::Result<Duration> {
    let client = UdpSocket::bind("127.0.0.1:0")?;
    client.connect(sockets[0].local_addr()?)?;
    client.send(&wire::request(Op::Get, 0))?;
    match selected(group)? {
        0 => Err(io::Error::other("the policy was attached and did not decide")),
        _ => Ok(begin.elapsed()),
    }
}

/// The sum of one word of `struct hd_count` over all executors and CPUs.
fn counted(group: &Group, word: usize) -> io::Result<u64> {
    let counts = group.maps().get("hd_counts").ok_or_else(|| io::Error::other("no counters"))?;
    let mut sum = 0;
    for index in 0..counts.spec().entries - 1 {
        let values = counts.lookup(&index.to_ne_bytes())?.unwrap_or_default();
        let words = values.chunks_exact(8).map(|b| b.try_into().map_or(0, u64::from_ne_bytes));
        sum += words.skip(word).step_by(3).sum::<u64>();
    }
    Ok(sum)
}

fn selected(group: &Group) -> io::Result<u64> {
    counted(group, 0)
}

fn failed(group: &Group) -> io::Result<u64> {
    counted(group, 1)
}

/// Installs the policies in turn until `done`; returns the number of replacements and their mean time.
fn swap(
    options: &ReplaceOptions,
    group: &Group,
    programs: &[heddle_bpf::Program; 2],
    done: &AtomicBool,
) -> io::Result<(u64, f64)> {
    let (mut swaps, mut spent) = (0_u64, Duration::ZERO);
    let pause = Duration::from_secs(1) / options.swaps.max(1);
    while !done.load(Ordering::Relaxed) {
        let begin = Instant::now();
        group.replace(&programs[usize::from(swaps % 2 == 0)])?;
        spent += begin.elapsed();
        swaps += 1;
        thread::sleep(pause);
    }
    Ok((swaps, spent.as_nanos() as f64 / swaps.max(1) as f64))
}

/// Sends at the rate, in bursts that fit any receive buffer; returns the number sent.
fn send(options: &ReplaceOptions, to: std::net::SocketAddr) -> io::Result<u64> {
    let client = UdpSocket::bind("127.0.0.1:0")?;
    client.connect(to)?;
    let (begin, mut sent) = (Instant::now(), 0_u64);
    while begin.elapsed() < options.duration {
        let due = (begin.elapsed().as_secs_f64() * f64::from(options.rate)) as u64;
        for _ in 0..due.saturating_sub(sent).min(32) {
            let op = if sent % 10 == 0 { Op::Scan } else { Op::Get };
            client.send(&wire::request(op, sent))?;
            sent += 1;
        }
        thread::sleep(Duration::from_micros(200));
    }
    Ok(sent)
}

/// Datagrams that found the receive buffers of the port full, as the kernel counts them.
fn overflowed(port: u16) -> io::Result<u64> {
    let text = fs::read_to_string("/proc/net/udp")?;
    Ok(text.lines().filter_map(|line| drops(line, port)).sum())
}

/// The last column of a line about a socket of the port.
fn drops(line: &str, port: u16) -> Option<u64> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (_, at) = words.get(1)?.rsplit_once(':')?;
    (u16::from_str_radix(at, 16) == Ok(port)).then_some(words.last()?.parse().ok()?)
}

/// Waits until `wanted` datagrams have arrived, or no more do; returns how many have.
fn wait_for(sink: &Sink, expected: u64) -> u64 {
    let begin = Instant::now();
    while sink.count() < expected && begin.elapsed() < DRAIN {
        thread::sleep(Duration::from_millis(5));
    }
    sink.count()
}

/// Losses and times as a table.
#[must_use]
pub fn table(rows: &[Row]) -> Option<Table> {
    let find = |metric: &str| rows.iter().find(|r| r.case == CASE && r.metric == metric);
    let mut table = Table::new(
        "Replacing round-robin and sita under load",
        ["what", "median", "rounds", "target"],
    );
    let lines = [
        ("datagrams sent", "sent", ""),
        ("replacements meanwhile", "swaps", ""),
        ("lost to the swap", "lost", "0"),
        ("found a full buffer", "overflowed", ""),
        ("failed selects", "failed_selects", "0"),
        ("one replacement", "swap_ns", ""),
        ("attach to effect", "attach_to_effect_ns", "< 1 s"),
    ];
    for (name, metric, target) in lines {
        let Some(row) = find(metric) else { continue };
        let text = |value: f64| {
            if row.unit == "ns" { human(value, "ns") } else { format!("{value:.0}") }
        };
        let spread = format!("{}..{}", text(row.min), text(row.max));
        table.push(vec![
            Cell::text(name),
            Cell::number(text(row.value)),
            Cell::number(spread),
            Cell::number(target),
        ]);
    }
    table.notes.push(
        "attach to effect: from loading to the first datagram that the policy steered".into(),
    );
    (!table.rows.is_empty()).then_some(table)
}

/// One sentence on the targets.
#[must_use]
pub fn verdict(rows: &[Row]) -> Option<String> {
    let worst = |metric: &str| {
        rows.iter().find(|r| r.case == CASE && r.metric == metric).map(|row| row.max)
    };
    Some(format!(
        "Replaced {:.0} times under load: {:.0} datagrams lost to it, {:.0} failed selects (targets 0, 0); \
         attach to effect {}.",
        worst("swaps")?,
        worst("lost")?,
        worst("failed_selects")?,
        human(worst("attach_to_effect_ns")?, "ns"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_those_of_the_port() {
        let line = "  10: 0100007F:1F40 00000000:0000 07 00000000:00000000 00:00000000 00000000 0 0 12 2 00ff 7";
        assert_eq!(drops(line, 8000), Some(7));
        assert_eq!(drops(line, 8001), None);
        assert_eq!(drops("sl local_address rem_address st drops", 8000), None);
    }
}
