//! Writes a small trace to the named file, and prints what is in it, a line each: for `scripts/test-perfetto`, which
//! reads the trace by the official messages.

use std::env;
use std::fs::File;
use std::io::{self, BufWriter};

use heddle_core::{CpuId, Event, EventKind, Layer, Ns};
use heddle_export::perfetto::{Clocks, Source, Trace};

const CLOCKS: Clocks = Clocks { monotonic: 1_000_000, boottime: 3_000_000 };

fn main() -> io::Result<()> {
    let path = env::args_os().nth(1).ok_or(io::Error::other("usage: trace FILE"))?;
    let mut trace = Trace::new(BufWriter::new(File::create(path)?), CLOCKS)?;
    trace.kernel("6.18.0")?;
    trace.process(100, "server")?;
    for tid in 100..104 {
        trace.thread(100, tid, &format!("thread {tid}"), Some(120))?;
    }
    let server = Source { name: "server", process: Some(100), shares_requests: true };
    let server = trace.source(&server)?;
    for n in 0..40_000_u64 {
        let (at, cpu) = (CLOCKS.monotonic + 1_000 * n, CpuId((n % 3) as u16));
        let (who, by) = (100 + (n / 3 % 4) as u32, 100 + ((n / 3 + 3) % 4) as u32);
        let event = Event::task(Ns(at), cpu, who, EventKind::Start).of(Layer::Kernel);
        trace.event(server, &Event { by, arg: 1, request: 10, ..event })?;
        say(&format!("switch\t{}\t{}\t{who}\tthread {who}", at + 2_000_000, cpu.0));
    }
    for n in 0..1_000_u64 {
        let (at, cpu, task) = (CLOCKS.monotonic + 500 + n * 1_000, CpuId(0), (n % 10) as u32);
        let start = Event::task(Ns(at), cpu, task, EventKind::Start).of(Layer::Runtime);
        trace.event(server, &start)?;
        trace.event(server, &Event { at: Ns(at + 400), kind: EventKind::Block, ..start })?;
        say(&format!("begin\t{at}\tworker 0\ttask {task}\t"));
        say(&format!("end\t{}\tworker 0\t\t", at + 400));
    }
    for n in 1..500_u64 {
        let take = Event::task(Ns(n * 2_000 + 2_000_000), CpuId(0), 7, EventKind::Take);
        let take = Event { request: n, layer: Layer::Events, ..take };
        trace.event(server, &take)?;
        let answer = Ns(take.at.0 + 999);
        trace.event(server, &Event { at: answer, kind: EventKind::Answer, ..take })?;
        say(&format!("begin\t{}\tevents: executor 7\trequest\t{n}", take.at.0));
        say(&format!("end\t{}\tevents: executor 7\t\t{n}", answer.0));
    }
    trace.finish().map(|_| ())
}

#[allow(clippy::print_stdout, reason = "the script reads it")]
fn say(line: &str) {
    println!("{line}");
}
