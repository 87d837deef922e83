//! What it costs to record: ns for each yield of two tasks on one worker, without and while events are recorded, and ns
//! for each event alone. Arguments: a policy (`fifo`), and rounds (99). Build with `--release`.

use heddle_core::{CpuId, Event, EventKind, Layer, Ns};
use heddle_rt::{Runtime, RuntimeBuilder, scope, yield_now};
use heddle_telemetry::{Layout, Page};
use std::time::{Duration, Instant};

const YIELDS: u64 = 100_000;
const HOUR: Duration = Duration::from_secs(3600);

/// Returns the ns that `n` repetitions take, for each.
fn each(n: u64, run: impl FnOnce()) -> f64 {
    let begin = Instant::now();
    run();
    begin.elapsed().as_nanos() as f64 / n as f64
}

fn yields(runtime: &Runtime) -> f64 {
    let both = || {
        scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..YIELDS / 2).for_each(|_| yield_now()));
            }
        });
    };
    runtime.run(|| each(YIELDS, both))
}

fn events(page: &Page) -> f64 {
    const EVENTS: u64 = 1_000_000;
    let ring = page.ring(0);
    let record = |n: u64| {
        let event = || Event::task(Ns::ZERO, CpuId(0), n as u32, EventKind::Start);
        std::hint::black_box(&ring).record(|| event().of(Layer::Runtime));
    };
    each(EVENTS, || (0..EVENTS).for_each(record))
}

/// The median, and the least: what the machine's other work did not disturb.
fn of(mut times: Vec<f64>) -> String {
    times.sort_by(f64::total_cmp);
    format!("{:.2} ns (least {:.2})", times[times.len() / 2], times[0])
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let policy = arguments.next().unwrap_or("fifo".into());
    let rounds = arguments.next().map_or(99, |rounds| rounds.parse().expect("a number of rounds"));
    let build = || RuntimeBuilder::new().policy(&policy).workers(1).build().expect("a runtime");
    let (off, on) = (build(), build());
    on.record(HOUR);
    let layout = Layout { rings: &[("events", "")], ring_events: 8192, ..Layout::default() };
    let [silent, recorded] = [0, 1].map(|_| Page::create(&layout).expect("a page"));
    recorded.record(HOUR.into());
    let round = |_| [yields(&off), yields(&on), events(&silent), events(&recorded)];
    let all: Vec<[f64; 4]> = (0..rounds).map(round).collect();
    let [off, on, silent, recorded] =
        [0, 1, 2, 3].map(|at| of(all.iter().map(|round| round[at]).collect()));
    println!("yield {off}, recorded {on}; event off {silent}, on {recorded}");
}
