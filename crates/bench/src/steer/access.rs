//! The cost of map access for a program: by system call, and in its own memory (Syrup, Table 3).

use std::hint::black_box;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use heddle_bpf::{Map, MapKind, MapSpec, MapView};
use heddle_core::Rng;
use heddle_metrics::{Cell, Collector, Progress, Row, Run, Table, human};

/// Options of this part.
#[derive(Clone, Copy, Debug)]
pub struct AccessOptions {
    /// Turns of each access.
    pub rounds: u32,
    /// Accesses per turn by system call; mapped, a hundred times as many.
    pub accesses: u32,
}

/// As in the paper.
const ENTRIES: u32 = 1_000_000;
/// The paper's host figures, ns: get, update; each alone and contended.
const PAPER: [(&str, f64, f64); 2] = [("get", 986.0, 1009.0), ("update", 1009.0, 1041.0)];
const METRIC: &str = "access_ns";
/// The accesses: system, case.
const ACCESSES: [(&str, &str); 7] = [
    ("hash-syscall", "get"),
    ("hash-syscall", "update"),
    ("array-syscall", "get"),
    ("array-syscall", "update"),
    ("mapped", "get"),
    ("mapped", "update"),
    ("mapped", "add"),
];

struct Maps {
    hash: Map,
    array: Map,
    view: MapView,
}

impl Maps {
    fn new() -> io::Result<Maps> {
        let make = |name: &str, kind| {
            Map::create(&MapSpec {
                name: name.into(),
                kind,
                key_size: 4,
                value_size: 8,
                entries: ENTRIES,
                read_only: false,
            })
        };
        let (hash, array) =
            (make("bench_hash", MapKind::Hash)?, make("bench_array", MapKind::Array)?);
        for key in 0..ENTRIES {
            hash.update(&key.to_ne_bytes(), &[0; 8])?;
        }
        let view = MapView::new(&array)?;
        // Touches every page once: the first access faults.
        (0..ENTRIES as usize).for_each(|at| view.word(at, 0).store(1, Ordering::Relaxed));
        Ok(Maps { hash, array, view })
    }

    /// One access; the value is used, so that the read happens.
    fn access(&self, system: &str, case: &str, keys: &[u32]) -> io::Result<()> {
        let map = if system == "hash-syscall" { &self.hash } else { &self.array };
        match (system, case) {
            ("mapped", "get") => keys.iter().for_each(|at| {
                black_box(self.view.word(*at as usize, 0).load(Ordering::Relaxed));
            }),
            ("mapped", "update") => keys.iter().for_each(|at| {
                self.view.word(*at as usize, 0).store(7, Ordering::Relaxed);
            }),
            ("mapped", _) => keys.iter().for_each(|at| {
                self.view.word(*at as usize, 0).fetch_add(1, Ordering::Relaxed);
            }),
            (_, "get") => {
                for key in keys {
                    black_box(map.lookup(&key.to_ne_bytes())?);
                }
            }
            _ => {
                for key in keys {
                    map.update(&key.to_ne_bytes(), &7_u64.to_ne_bytes())?;
                }
            }
        }
        Ok(())
    }

    fn time(&self, system: &str, case: &str, keys: &[u32], times: u32) -> io::Result<f64> {
        let begin = Instant::now();
        for _ in 0..times {
            self.access(system, case, keys)?;
        }
        Ok(begin.elapsed().as_nanos() as f64 / (f64::from(times) * keys.len() as f64))
    }

    /// The same while another thread accesses the same entries.
    fn contended(&self, system: &str, case: &str, keys: &[u32], times: u32) -> io::Result<f64> {
        let (done, started) = (AtomicBool::new(false), AtomicBool::new(false));
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    self.access(system, case, keys)?;
                    started.store(true, Ordering::Relaxed);
                }
                Ok::<(), io::Error>(())
            });
            while !started.load(Ordering::Relaxed) && !other.is_finished() {
                thread::yield_now();
            }
            let time = self.time(system, case, keys, times);
            done.store(true, Ordering::Relaxed);
            other.join().unwrap_or_else(|_| Err(io::Error::other("the second thread panicked")))?;
            time
        })
    }
}

/// Measures all accesses in turn, alone and contended by a second thread.
///
/// # Errors
/// System errors.
pub fn run(
    options: &AccessOptions,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<Vec<Row>> {
    progress.step("map access: a million entries");
    let maps = Maps::new()?;
    let rng = Rng::new(3);
    let mut collect = Collector::new();
    for _ in 0..options.rounds {
        for (system, case) in ACCESSES {
            if stop.load(Ordering::Relaxed) {
                return Ok(collect.into_rows());
            }
            // Close together, like a policy's lines; the map still holds the whole table.
            let start = rng.below(ENTRIES as usize - 1000) as u32;
            let keys: Vec<u32> = (0..1000).map(|_| start + rng.below(1000) as u32).collect();
            let mapped = if system == "mapped" { 100 } else { 1 };
            let times = (options.accesses / 1000).max(1) * mapped;
            let alone = maps.time(system, case, &keys, times)?;
            collect.add(system, case, METRIC, "ns", Run::ok(alone));
            let contended = maps.contended(system, case, &keys, times)?;
            collect.add(system, &format!("{case}-contended"), METRIC, "ns", Run::ok(contended));
        }
    }
    Ok(collect.into_rows())
}

/// The accesses as a table, next to the paper's.
#[must_use]
pub fn table(rows: &[Row]) -> Option<Table> {
    let find = |system: &str, case: &str| {
        rows.iter().find(|r| r.system == system && r.case == case && r.metric == METRIC)
    };
    let head = ["map", "access", "ns", "rounds", "contended", "the paper's", "contended"];
    let mut table = Table::new("Access to a map of a million entries (Table 3)", head);
    for (system, case) in ACCESSES {
        let Some(alone) = find(system, case) else { continue };
        let contended = find(system, &format!("{case}-contended"));
        let paper = PAPER.iter().find(|(of, ..)| system == "hash-syscall" && *of == case);
        let ns = |value: f64| Cell::number(human(value, "ns"));
        table.push(vec![
            Cell::text(system),
            Cell::text(case),
            ns(alone.value),
            Cell::number(format!("{}..{}", human(alone.min, "ns"), human(alone.max, "ns"))),
            contended.map_or_else(|| Cell::number("-"), |row| ns(row.value)),
            paper.map_or_else(|| Cell::number("-"), |(_, alone, _)| ns(*alone)),
            paper.map_or_else(|| Cell::number("-"), |(_, _, both)| ns(*both)),
        ]);
    }
    table.notes.push(
        "mapped: the array in the program's own memory, no system call; a thousand entries close \
        together, like the lines of a policy"
            .into(),
    );
    (!table.rows.is_empty()).then_some(table)
}

/// One sentence on the targets.
#[must_use]
pub fn verdict(rows: &[Row]) -> Option<String> {
    let find = |system: &str, case: &str| {
        rows.iter().find(|r| r.system == system && r.case == case && r.metric == METRIC)
    };
    let (read, write) = (find("mapped", "get")?, find("mapped", "update")?);
    let slowest = read.value.max(write.value);
    let calls = find("array-syscall", "get")?.value.min(find("array-syscall", "update")?.value);
    let hash = find("hash-syscall", "get")?.value.min(find("hash-syscall", "update")?.value);
    Some(format!(
        "A mapped access costs {:.1} ns to read, {:.1} ns to write (at most 10): {:.0} times under a system \
         call on the same array (at least 50), {:.0} times under one on a hash.",
        read.value,
        write.value,
        calls / slowest,
        hash / slowest
    ))
}
