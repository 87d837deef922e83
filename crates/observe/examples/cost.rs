//! What observing costs: a switch, and a request.
//!
//!     cargo run --release -p heddle-observe --example cost
//!
//! 1. Two processes pass a byte through pipes on one CPU, with and without the program at every switch.
//! 2. An echo server at saturation, eight connections: its CPU time a request, with and without the span programs.
//!
//! Each figure is the median of rounds in turns with the others; nothing else should run. Needs root.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use heddle_core::Ns;
use heddle_observe::{ObserveError, Options, SwitchOptions, Switches, Target, Watch};
use heddle_sys::{clock, thread};

const ROUNDS: usize = 7;
const PASSES: u32 = 20_000;
const CONNECTIONS: usize = 8;
const TIME: Duration = Duration::from_millis(700);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    match std::env::args().nth(1).as_deref() {
        Some("pong") => pong(),
        Some("serve") => serve(),
        _ => {
            println!(
                "{}, Linux {}",
                processor(),
                rustix::system::uname().release().to_string_lossy()
            );
            switches()?;
            requests()
        }
    }
}

/// Starts this program in another role.
fn role(role: &str) -> std::io::Result<Child> {
    let program = std::env::current_exe()?;
    Command::new(program).arg(role).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
}

fn pong() -> Result<(), Box<dyn std::error::Error>> {
    thread::pin(&[0])?;
    let (mut input, mut output) = (std::io::stdin(), std::io::stdout());
    let mut byte = [0];
    while input.read(&mut byte)? == 1 {
        output.write_all(&byte)?;
        output.flush()?;
    }
    Ok(())
}

fn switches() -> Result<(), Box<dyn std::error::Error>> {
    let before = thread::SavedAffinity::save()?;
    thread::pin(&[0])?;
    let mut other = role("pong")?;
    let pid = other.id();
    let mut pass = || -> std::io::Result<f64> {
        let (input, output) = (other.stdin.as_mut(), other.stdout.as_mut());
        let (Some(input), Some(output)) = (input, output) else { return Ok(0.0) };
        // CPU time, because other programs may run meanwhile.
        let used = || clock::process_cpu_time() + clock::process_cpu_time_of(pid);
        let begin = used();
        for _ in 0..PASSES {
            input.write_all(&[1])?;
            input.flush()?;
            output.read_exact(&mut [0])?;
        }
        Ok((used() - begin).0 as f64 / f64::from(2 * PASSES))
    };
    let always = SwitchOptions::default();
    let threads = SwitchOptions { threads: true, bursts: true, ..always };
    let events = SwitchOptions { events: true, ..always };
    let kinds = [None, Some(always), Some(threads), Some(events)];
    let mut times = kinds.map(|_| Vec::new());
    for _ in 0..ROUNDS {
        for (kind, times) in kinds.iter().zip(&mut times) {
            let program = kind.map(Switches::start).transpose()?;
            times.push(pass()?);
            drop(program);
        }
    }
    drop(other.stdin.take());
    other.wait()?;
    drop(before);
    println!("ns of CPU time a switch, medians of {ROUNDS} rounds of {} switches", 2 * PASSES);
    let names = ["nothing attached", "histograms", "and threads, bursts", "histograms and events"];
    report(&names, &mut times);
    Ok(())
}

/// A thread for each connection.
fn serve() -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?.port());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut bytes = [0; 64];
                while stream.read_exact(&mut bytes).is_ok() && stream.write_all(&bytes).is_ok() {}
            });
        }
    });
    std::io::stdin().read_to_end(&mut Vec::new())?;
    std::process::exit(0)
}

/// Where the span programs watch.
#[derive(Clone, Copy, PartialEq)]
enum Watched {
    Nothing,
    OtherPort,
    Port,
}

fn requests() -> Result<(), Box<dyn std::error::Error>> {
    let mut server = role("serve")?;
    let mut line = String::new();
    let mut output = std::io::BufReader::new(server.stdout.take().ok_or("a pipe")?);
    std::io::BufRead::read_line(&mut output, &mut line)?;
    let port: u16 = line.trim().parse()?;
    let other = TcpListener::bind("127.0.0.1:0")?;
    let kinds = [Watched::Nothing, Watched::OtherPort, Watched::Port];
    let mut times = kinds.map(|_| Vec::new());
    for _ in 0..ROUNDS {
        for (kind, times) in kinds.iter().zip(&mut times) {
            let watch = match kind {
                Watched::Nothing => None,
                Watched::OtherPort => Some(start(std::process::id(), other.local_addr()?.port())?),
                Watched::Port => Some(start(server.id(), port)?),
            };
            times.push(saturate(port, server.id())?);
            if let (Some(watch), Watched::Port) = (watch, kind) {
                let recording = watch.finish()?;
                let lost = recording.lost;
                eprintln!("{} requests, {} records lost", recording.spans.len(), lost.records);
            }
        }
    }
    server.kill()?;
    server.wait()?;
    println!("ns of the server's CPU time a request, medians of {ROUNDS} rounds of {TIME:?}");
    report(&["nothing attached", "another port is watched", "its port is watched"], &mut times);
    Ok(())
}

fn start(process: u32, port: u16) -> Result<Watch, ObserveError> {
    let options = Options { budget: f64::INFINITY, ring_bytes: 1 << 26, ..Options::default() };
    Watch::start(&Target { processes: vec![process], ports: vec![port] }, &options)
}

/// Sends requests over all connections for [`TIME`], each after the last answer.
fn saturate(port: u16, server: u32) -> std::io::Result<f64> {
    let before = clock::process_cpu_time_of(server);
    let client = || -> std::io::Result<u64> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        let (mut count, end, mut bytes) = (0, Instant::now() + TIME, [0; 64]);
        while Instant::now() < end {
            stream.write_all(&bytes)?;
            stream.read_exact(&mut bytes)?;
            count += 1;
        }
        Ok(count)
    };
    let count: u64 = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(client)).collect();
        clients.into_iter().filter_map(|client| client.join().ok()?.ok()).sum()
    });
    let used: Ns = clock::process_cpu_time_of(server) - before;
    Ok(used.0 as f64 / count.max(1) as f64)
}

fn report(names: &[&str], times: &mut [Vec<f64>]) {
    let mut first = None;
    for (name, times) in names.iter().zip(times) {
        times.sort_by(f64::total_cmp);
        let (median, least) = (times[times.len() / 2], times[0]);
        let (nothing, least_nothing) = *first.get_or_insert((median, least));
        let (more, least_more) = (median - nothing, least - least_nothing);
        println!("  {name:26} {median:7.0} ({more:+.0}); minimum {least:7.0} ({least_more:+.0})");
    }
}

fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    name.map_or("unknown processor".into(), |(_, name)| name.into())
}
