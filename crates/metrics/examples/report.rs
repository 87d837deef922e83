//! Writes a sample report with made-up numbers: `cargo run -p heddle-metrics --example report -- x.html`.

use heddle_metrics::{BarChart, Collector, LinePlot, Report, Results, Run, tables};

/// Deterministic pseudo-noise: the same numbers every time.
fn wobble(seed: u64) -> f64 {
    let n = seed
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .rotate_left(31)
        .wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (n >> 40) as f64 / (1u64 << 24) as f64 - 0.5
}

const SYSTEMS: [&str; 5] =
    ["heddle two-queue", "heddle run-to-completion", "tokio", "thread pool", "go"];

fn operations(collect: &mut Collector) {
    let systems = ["heddle", "pthread", "tokio", "may", "boost-fiber", "go"];
    let cases = [
        ("yield", [23.7, 671.0, 96.0, 48.0, 80.0, 118.0]),
        ("spawn_join", [69.0, 10803.0, 340.0, 1149.0, 393.0, 500.0]),
        ("mutex", [15.3, 18.4, 51.0, 27.0, 35.0, 19.4]),
        ("condvar", [52.9, 2067.0, 106.0, 313.0, 186.0, 228.0]),
    ];
    for (case, values) in cases {
        for (at, (system, value)) in systems.into_iter().zip(values).enumerate() {
            for run in 0..5u64 {
                let noise = 1.0 + 0.08 * wobble(run * 31 + at as u64 * 7 + case.len() as u64);
                collect.add(system, case, "cpu_ns_per_op", "ns", Run::ok(value * noise));
            }
        }
    }
}

/// Queueing in a nutshell: the wait grows with 1 / (1 - utilisation); a scan ahead dominates the tail.
fn latency(system: usize, load: f64, tail: f64) -> f64 {
    let capacity = [41e3, 42e3, 36e3, 27e3, 38e3][system];
    let scan_ahead = [26e3, 2.1e6, 2.3e6, 340e3, 900e3][system];
    let utilisation = (load / capacity).min(0.995);
    6e3 + scan_ahead * tail * (0.12 + utilisation * 0.3 / (1.0 - utilisation))
}

fn curves(collect: &mut Collector) {
    for (step, load) in (1..=10u32).map(|n| (u64::from(n), f64::from(n) * 4e3)) {
        for (at, system) in SYSTEMS.iter().enumerate() {
            for (metric, tail) in [("p50", 0.02), ("p99", 0.6), ("p99.9", 1.0)] {
                for run in 0..3u64 {
                    let noise = 1.0 + 0.35 * wobble(run * 17 + step * 5 + at as u64);
                    let value = latency(at, load, tail) * noise;
                    let late = load > [39e3, 40e3, 34e3, 25e3, 37e3][at];
                    let run = if late {
                        Run::invalid(value, "3.1 % of sends late")
                    } else {
                        Run::ok(value)
                    };
                    collect.at_load(load).add(system, "get", metric, "ns", run);
                }
            }
        }
    }
}

fn main() -> Result<(), heddle_metrics::Error> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "report.html".into());
    let mut collect = Collector::new();
    operations(&mut collect);
    curves(&mut collect);
    let results = Results::here(collect.into_rows());
    let chart = BarChart::of(&results, "cpu_ns_per_op", "CPU time per operation, one worker");
    let targets = [("yield", 30.0), ("spawn_join", 100.0), ("mutex", 18.0), ("condvar", 70.0)];
    let chart = targets.into_iter().fold(chart, |chart, (case, value)| chart.target(case, value));
    let plot = |metric: &str| {
        let title = format!("GET {metric} against offered load, 95 % GET / 5 % SCAN");
        LinePlot::over_load(&results, "get", metric, &title).emphasise(SYSTEMS[0])
    };
    let mut report = Report::new("Heddle demo: RocksDB under four policies (made-up numbers)")
        .headline("At half the saturation load, preemption makes the p99.9 of short requests 24 times lower.")
        .findings(["It costs 2.4 % of the scans' throughput.".to_owned()])
        .section("Latency against load", "Open-loop Poisson arrivals; latency counts from the intended send time.")
        .plot(plot("p99.9").caption("Short requests only; scans take 2 ms."))
        .plot(plot("p99"))
        .section("Threads", "What a switch, a spawn, a lock and a signal cost.")
        .bars(chart)
        .section("Tables", "");
    for table in tables(&results) {
        report = report.table(table);
    }
    report
        .notes("Two cores, shared with others: ratios within this run count, absolute times only beside their peers.")
        .notes("Store: RocksDB 7.8.3. Quantum 100 us, mechanism signal.")
        .results(results)
        .write(path)
}
