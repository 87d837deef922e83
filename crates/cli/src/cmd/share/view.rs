//! A broker's report as text.

use std::time::Duration;

use heddle_broker::{AppReport, CoreReport, CpuReport, Report, ShareReport};
use heddle_core::Ns;
use heddle_metrics::{Cell, Table, TextStyle, human};

use crate::out::printable;

/// Events that are shown.
const EVENTS: usize = 5;

/// Who has which CPU, and the applications.
pub fn status(report: &Report, style: TextStyle) -> String {
    let parts = [cores(report).to_text(style), apps(report).to_text(style)];
    let events = events(report);
    let events =
        if events.rows.is_empty() { String::new() } else { format!("\n{}", events.to_text(style)) };
    format!("{}\n{}{events}", head(&report.share), parts.join("\n"))
}

/// What part of the CPUs each application had between two reports, which are `elapsed` apart.
pub fn top(before: &Report, now: &Report, elapsed: Duration, style: TextStyle) -> String {
    let columns = ["application", "process", "class"].map(String::from).into_iter();
    let cpus = now.share.cpus.iter().map(|cpu| format!("CPU {cpu}"));
    let rest = ["all", "waits", "takes/s", "CPU time"].map(String::from);
    let mut table = Table::new("", columns.chain(cpus).chain(rest));
    for app in &now.apps {
        // One that has come meanwhile began with nothing.
        let same = |old: &&AppReport| (old.app, old.pid) == (app.app, app.pid);
        table.push(row(before.apps.iter().find(same), app, elapsed));
    }
    if now.apps.is_empty() {
        table.notes.push("no application".into());
    }
    format!("{}\n{}", head(&now.share), table.to_text(style))
}

fn row(before: Option<&AppReport>, now: &AppReport, elapsed: Duration) -> Vec<Cell> {
    let grown = |count: fn(&CpuReport) -> u64, at: usize| {
        let old = before.and_then(|app| app.cpus.get(at)).map_or(0, count);
        now.cpus.get(at).map_or(0, count).saturating_sub(old)
    };
    let cpus = 0..now.cpus.len();
    let sum = |count| cpus.clone().map(|at| grown(count, at)).fold(0, u64::saturating_add);
    let part = |ns: u64| Cell::number(percent(ns, elapsed));
    let mut cells = vec![
        Cell::text(printable(&now.name)),
        Cell::number(now.pid.to_string()),
        Cell::text(&now.class),
    ];
    cells.extend(cpus.clone().map(|at| part(grown(|cpu| cpu.active_ns, at))));
    cells.push(part(sum(|cpu| cpu.active_ns)));
    cells.push(part(sum(|cpu| cpu.waited_ns)));
    cells.push(Cell::number(rate(sum(|cpu| cpu.switches), elapsed)));
    cells.push(part(now.cpu_time_ns.saturating_sub(before.map_or(0, |app| app.cpu_time_ns))));
    cells
}

#[allow(clippy::cast_precision_loss, reason = "for people")]
fn percent(ns: u64, of: Duration) -> String {
    format!("{:.1} %", ns as f64 / 1e7 / of.as_secs_f64().max(1e-9))
}

#[allow(clippy::cast_precision_loss, reason = "for people")]
fn rate(count: u64, elapsed: Duration) -> String {
    format!("{:.0}", count as f64 / elapsed.as_secs_f64().max(1e-9))
}

fn head(share: &ShareReport) -> String {
    let ShareReport { file, cpus, policy, slice_ns, uptime_ms, .. } = share;
    let (cpus, slice, uptime) = (cpu_list(cpus), Ns(*slice_ns), ms(*uptime_ms));
    let threads = threads(share);
    printable(&format!("{file}: CPUs {cpus}, {policy}, slice {slice}, {threads}, for {uptime}"))
}

fn cores(report: &Report) -> Table {
    let mut table = Table::new("", ["CPU", "active", "since", "why", "waiting"]);
    for CoreReport { cpu, active, why, waiting } in &report.cores {
        let app = active.and_then(|app| find(report, app));
        let state = app.and_then(|app| app.cpus.iter().find(|on| on.cpu == *cpu));
        let waiting: Vec<String> =
            waiting.iter().filter_map(|&app| find(report, app)).map(name).collect();
        table.push(vec![
            Cell::number(cpu.to_string()),
            Cell::text(app.map_or_else(|| "-".into(), name)),
            Cell::number(state.map_or_else(String::new, |on| short(on.since_ns_ago))),
            Cell::text(printable(why)),
            Cell::text(waiting.join(", ")),
        ]);
    }
    table
}

fn apps(report: &Report) -> Table {
    let head = [
        "application",
        "process",
        "user",
        "class",
        "weight",
        "for",
        "active",
        "longest wait",
        "made way",
        "demoted",
    ];
    let mut table = Table::new("", head);
    for app in &report.apps {
        let sum =
            |count: fn(&CpuReport) -> u64| app.cpus.iter().map(count).fold(0, u64::saturating_add);
        let longest = app.cpus.iter().map(|cpu| cpu.longest_wait_ns).max().unwrap_or(0);
        table.push(vec![
            Cell::text(printable(&app.name)),
            Cell::number(app.pid.to_string()),
            Cell::number(app.user.to_string()),
            Cell::text(&app.class),
            Cell::number(app.weight.to_string()),
            Cell::number(ms(app.joined_ms_ago)),
            Cell::number(short(sum(|cpu| cpu.active_ns))),
            Cell::number(short(longest)),
            Cell::number(sum(|cpu| cpu.made_way).to_string()),
            Cell::number(app.demotions.to_string()),
        ]);
    }
    if report.apps.is_empty() {
        table.notes.push("no application".into());
    }
    table
}

fn events(report: &Report) -> Table {
    let mut table = Table::new("", ["ago", "application", "event", "why"]);
    let events = &report.events;
    for event in &events[events.len().saturating_sub(EVENTS)..] {
        table.push(vec![
            Cell::number(ms(event.ms_ago)),
            Cell::text(format!("{} ({})", printable(&event.name), event.pid)),
            Cell::text(&event.event),
            Cell::text(printable(&event.why)),
        ]);
    }
    table
}

fn find(report: &Report, app: u32) -> Option<&AppReport> {
    report.apps.iter().find(|it| it.app == app)
}

fn name(app: &AppReport) -> String {
    printable(&format!("{} ({})", app.name, app.pid))
}

/// What the workers of a share are.
pub fn threads(share: &ShareReport) -> String {
    match share.priority {
        0 => "ordinary threads".into(),
        priority => format!("real-time priority {priority}"),
    }
}

/// CPUs as a list.
pub fn cpu_list(cpus: &[u32]) -> String {
    heddle_sys::cpu_list::format(cpus)
}

/// A time that is shown in seconds and longer units.
pub fn ms(ms: u64) -> String {
    match ms / 1000 {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds @ 7200..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} d", seconds / 86400),
    }
}

/// A time in the unit that fits.
#[allow(clippy::cast_precision_loss, reason = "for people")]
fn short(ns: u64) -> String {
    match ns {
        0..120_000_000_000 => human(ns as f64, "ns"),
        _ => ms(ns / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn app(number: u32, name: &str, active_ns: u64) -> AppReport {
        let json = serde_json::json!({
            "app": number, "pid": 10 + number, "name": name, "class": "lc", "user": 0, "rank": 0, "weight": 1024,
            "ready": true, "joined_ms_ago": 3000, "demotions": 0, "cpu_time_ns": active_ns,
            "cpus": [{
                "cpu": 2, "state": "active", "since_ns_ago": 1500, "active_ns": active_ns, "waited_ns": 0,
                "longest_wait_ns": 30_000, "switches": 4, "broken": 0, "asked": 0, "made_way": 2, "stood_in": 0,
            }],
        });
        serde_json::from_value(json).unwrap()
    }

    fn report(apps: Vec<AppReport>) -> Report {
        let share = serde_json::json!({
            "socket": "/s", "file": "/f.toml", "pid": 1, "cpus": [2], "policy": "priority", "realtime": true,
            "priority": 10, "slice_ns": 3_000_000, "uptime_ms": 5000,
        });
        let core = CoreReport {
            cpu: 2,
            active: Some(0),
            why: "latency-critical".into(),
            waiting: vec![1],
        };
        let share = serde_json::from_value(share).unwrap();
        Report { schema: 1, share, apps, cores: vec![core], events: Vec::new() }
    }

    #[test]
    fn the_status_names_who_has_a_cpu_and_who_waits() {
        let text = status(&report(vec![app(0, "a\x1b", 9), app(1, "b", 0)]), TextStyle::PLAIN);
        let expected = "\
/f.toml: CPUs 2, priority, slice 3ms, real-time priority 10, for 5 s
CPU  active        since  why               waiting
  2  a\\u{1b} (10)  1.50 us  latency-critical  b (11)";
        for (line, wanted) in text.lines().zip(expected.lines()) {
            let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(words(line), words(wanted), "{text}");
        }
        assert!(text.contains("longest wait") && text.contains("30.0 us"), "{text}");
    }

    #[test]
    fn the_top_shows_parts_of_the_interval() {
        let (before, now) =
            (report(vec![app(0, "a", 0)]), report(vec![app(0, "a", 500_000_000), app(1, "b", 0)]));
        let text = top(&before, &now, Duration::from_secs(1), TextStyle::PLAIN);
        let row = text.lines().find(|line| line.starts_with('a') && line.contains("lc")).unwrap();
        assert!(row.matches("50.0 %").count() == 3, "{text}");
        assert!(text.lines().any(|line| line.starts_with('b')), "{text}");
    }

    #[test]
    fn times_have_the_unit_that_fits() {
        let shown = [1, 20_000, 30_000_000, 200_000_000_000].map(short);
        assert_eq!(shown, ["1.00 ns", "20.0 us", "30.0 ms", "3 min"]);
    }
}
