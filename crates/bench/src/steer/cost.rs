//! The cost of a decision, from the program attached to the socket's group to the selected socket (Syrup, Table 2).

use std::io;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use heddle_bpf::{ProgramInfo, count_run_time};
use heddle_metrics::{Cell, Collector, Mark, Progress, Row, Run, Table, human};
use heddle_steer::hook::observe::Observed;
use heddle_steer::policy::{shipped_names, shipped_source};

use super::sockets::bind;
use super::source::Workers;
use super::{Group, Sockets, wire};
use heddle_load::Op;

/// Options of this part.
#[derive(Clone, Copy, Debug)]
pub struct CostOptions {
    /// Turns of each policy.
    pub rounds: u32,
    /// Datagrams per turn.
    pub datagrams: u32,
}

/// Datagrams arrive in bursts, as from a card's driver, and the threads sleep again before the next: the
/// first decision of a burst finds cold caches, the later ones do not.
const BURST: u32 = 4;
const GAP: Duration = Duration::from_micros(200);

/// Syrup's Table 2, on a 2.3 GHz Xeon: policy, lines, x86 instructions, cycles.
const PAPER: [(&str, u32, u32, u32); 4] = [
    ("round-robin", 6, 56, 1563),
    ("scan-avoid", 21, 311, 1709),
    ("sita", 16, 81, 1699),
    ("token", 45, 106, 1582),
];
const PAPER_GHZ: f64 = 2.3;

/// Most that a decision can cost, in ns (issue 4).
const TARGETS: [(&str, f64); 5] = [
    ("round-robin", 250.0),
    ("sita", 250.0),
    ("scan-avoid", 400.0),
    ("token", 400.0),
    ("jiq", 600.0),
];

const CASE: &str = "decision";
const METRIC: &str = "decision_ns";

/// A policy on sockets with sleeping threads.
struct Testbed {
    name: &'static str,
    group: Group,
    client: UdpSocket,
    _workers: Workers,
}

impl Testbed {
    fn new(name: &'static str) -> io::Result<Testbed> {
        let sockets = bind(Sockets::Own)?;
        let group = Group::attach(name, &sockets, Observed::Datagrams)?;
        give_tokens(&group)?;
        let client = UdpSocket::bind("127.0.0.1:0")?;
        client.connect(sockets[0].local_addr()?)?;
        let workers = Workers::start(sockets, Sockets::Own, Arc::new(|_, _, _, _| {}))?;
        Ok(Testbed { name, group, client, _workers: workers })
    }

    /// The mean of `datagrams` decisions, ns.
    fn turn(&self, datagrams: u32) -> io::Result<Run> {
        let before = self.group.root_info()?;
        for id in 0..datagrams {
            let op = if id % 200 == 199 { Op::Scan } else { Op::Get };
            self.client.send(&wire::request(op, id.into()))?;
            if id % BURST == BURST - 1 {
                thread::sleep(GAP);
            }
        }
        let after = self.group.root_info()?;
        let runs = after.runs - before.runs;
        if runs < u64::from(datagrams) {
            return Ok(Run::invalid(
                f64::NAN,
                format!("{runs} decisions of {datagrams} datagrams"),
            ));
        }
        Ok(Run::ok((after.run_time - before.run_time) as f64 / runs as f64))
    }
}

/// A token policy has more tokens than needed.
fn give_tokens(group: &Group) -> io::Result<()> {
    let Some(users) = group.maps().get(heddle_steer::tokens::USERS) else { return Ok(()) };
    let view = heddle_bpf::MapView::new(users)?;
    view.word(0, 0).store(u64::from(u32::MAX), Ordering::Relaxed);
    Ok(())
}

/// Measures all shipped policies in turn.
///
/// # Errors
/// System errors, with the policy's name.
pub fn run(
    options: &CostOptions,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<Vec<Row>> {
    progress.step("decisions: ten policies on six sockets each");
    let named = |name, error| io::Error::other(format!("{name}: {error}"));
    let mut collect = Collector::new();
    let mut testbeds = Vec::new();
    for name in shipped_names() {
        match Testbed::new(name) {
            Ok(testbed) => testbeds.push(testbed),
            Err(error) => {
                collect.add(name, CASE, METRIC, "ns", Run::invalid(f64::NAN, error.to_string()));
            }
        }
    }
    let _counting = count_run_time()?;
    // Round 0 fills caches and is not counted.
    for round in 0..=options.rounds {
        for testbed in &testbeds {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let run = testbed.turn(options.datagrams)?;
            if round > 0 {
                collect.add(testbed.name, CASE, METRIC, "ns", run);
            }
        }
    }
    for testbed in &testbeds {
        let info = testbed.group.policy_info().map_err(|error| named(testbed.name, error))?;
        sizes(&mut collect, testbed.name, &info);
    }
    Ok(collect.into_rows())
}

fn sizes(collect: &mut Collector, name: &str, info: &ProgramInfo) {
    let lines = lines_of(shipped_source(name).unwrap_or_default());
    let mut add = |metric, unit, value: f64| collect.add(name, CASE, metric, unit, Run::ok(value));
    add("lines", "lines", f64::from(lines));
    add("instructions", "insns", info.instructions.into());
    add("machine_bytes", "bytes", info.machine_bytes.into());
}

/// Lines of C without comments, empty lines and the one header.
fn lines_of(source: &str) -> u32 {
    let mut comment = false;
    let mut lines = 0;
    for line in source.lines().map(str::trim) {
        let begins = line.starts_with("/*");
        if !comment && !begins && !line.is_empty() && !line.starts_with("#include") {
            lines += 1;
        }
        comment = (comment || begins) && !line.ends_with("*/");
    }
    lines
}

/// The decisions as a table, next to the paper's.
#[must_use]
pub fn table(rows: &[Row]) -> Option<Table> {
    let find = |name: &str, metric: &str| {
        rows.iter().find(|r| r.case == CASE && r.system == name && r.metric == metric)
    };
    let head = [
        "policy",
        "lines",
        "insns",
        "bytes",
        "ns",
        "rounds",
        "target",
        "paper's lines",
        "insns",
        "cycles",
        "as ns",
    ];
    let mut table = Table::new("A decision, the select included (Table 2)", head);
    for name in shipped_names() {
        let Some(cost) = find(name, METRIC) else { continue };
        let plain =
            |metric| find(name, metric).map_or("-".into(), |row| format!("{:.0}", row.value));
        let target = TARGETS.iter().find(|(of, _)| *of == name).map(|(_, most)| *most);
        let mark = match target {
            _ if !cost.valid => Mark::Invalid,
            Some(most) if cost.value <= most => Mark::Good,
            Some(_) => Mark::Bad,
            None => Mark::Plain,
        };
        let mut cells = vec![Cell::text(name)];
        cells.extend(["lines", "instructions", "machine_bytes"].map(|m| Cell::number(plain(m))));
        cells.push(Cell::number(format!("{:.0}", cost.value)).marked(mark));
        cells.push(Cell::number(format!("{:.0}..{:.0}", cost.min, cost.max)));
        cells.push(Cell::number(target.map_or("-".into(), |most| format!("{most:.0}"))));
        let paper = PAPER.iter().find(|(of, ..)| *of == name);
        cells.extend(paper.map_or_else(
            || vec![Cell::number("-"); 4],
            |(_, lines, insns, cycles)| {
                let ns = f64::from(*cycles) / PAPER_GHZ;
                let cycle_ns = Cell::number(human(ns, "ns"));
                let numbers = [lines, insns, cycles].map(|n| Cell::number(n.to_string()));
                numbers.into_iter().chain([cycle_ns]).collect()
            },
        ));
        table.push(cells);
    }
    table.notes.push("insns: of BPF, Heddle's frame included; the paper's are of x86. Datagrams in bursts of \
        four. ns: run time that the kernel counts, its own clock and the tail call included, from the root \
        program on. The paper counts cycles at 2.3 GHz in another way: compare the order, not the figures".into());
    (!table.rows.is_empty()).then_some(table)
}

/// One sentence on the targets.
#[must_use]
pub fn verdict(rows: &[Row]) -> Option<String> {
    let find =
        |name: &str| rows.iter().find(|r| r.case == CASE && r.system == name && r.metric == METRIC);
    let said: Vec<String> = TARGETS
        .iter()
        .filter_map(|(name, most)| {
            let row = find(name)?;
            let missed = if row.value > *most { ", missed" } else { "" };
            Some(format!("{name} {:.0} ns (at most {most:.0}{missed})", row.value))
        })
        .collect();
    (!said.is_empty()).then(|| format!("A decision with its select costs: {}.", said.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_that_say_something() {
        let source = "/* A.\n * B. */\n#include <heddle.h>\n\nstatic u32 next;\n\n/* C */\nint f(void)\n{\n}\n";
        assert_eq!(lines_of(source), 4);
    }
}
