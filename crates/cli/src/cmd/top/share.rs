//! The row of a share of CPUs.

use std::path::Path;

use heddle_broker::{AppReport, CpuReport, Report};

use super::reading::{Counts, Kind, Part, Service};

/// Returns a share as a service. Its parts are the applications.
pub fn service(report: &Report) -> Service {
    let Report { share, apps, cores, .. } = report;
    let file = Path::new(&share.file).file_stem().and_then(|stem| stem.to_str());
    let parts: Vec<Part> = apps.iter().map(part).collect();
    let all = parts.iter().fold(Counts::default(), |sum, part| sum.and(&part.counts));
    let waiting: usize = cores.iter().map(|core| core.waiting.len()).sum();
    Service {
        id: format!("share {}", share.socket),
        name: format!(
            "{} CPUs {}",
            file.unwrap_or("share"),
            heddle_sys::cpu_list::format(&share.cpus)
        ),
        kind: Kind::Share,
        policy: share.policy.clone(),
        pids: apps.iter().map(|app| app.pid).collect(),
        counts: Counts { waiting: Some(waiting as u64), ..all },
        parts,
    }
}

/// Its inputs are the CPUs that come to it from others, and its delays the waits for them.
fn part(app: &AppReport) -> Part {
    let sum =
        |count: fn(&CpuReport) -> u64| app.cpus.iter().map(count).fold(0, u64::saturating_add);
    let takes = sum(|cpu| cpu.switches);
    let wanting = app.cpus.iter().filter(|cpu| app.ready && cpu.state == "wanting").count();
    let counts = Counts {
        cpu_ns: Some(app.cpu_time_ns),
        inputs: Some(takes),
        waiting: Some(wanting as u64),
        delays: Some((sum(|cpu| cpu.waited_ns), takes)),
        preempted: Some(sum(|cpu| cpu.made_way).saturating_add(app.demotions)),
        ..Counts::default()
    };
    Part { name: format!("{} {} {}", app.class, app.name, app.pid), counts }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_broker::{CoreReport, ShareReport};

    fn app(pid: u32, class: &str, states: [&str; 2]) -> AppReport {
        let cpu = |(cpu, state): (usize, &str)| CpuReport {
            cpu: cpu as u32,
            state: state.into(),
            since_ns_ago: 0,
            active_ns: 0,
            waited_ns: 3_000,
            longest_wait_ns: 0,
            switches: 10,
            broken: 0,
            asked: 0,
            made_way: 4,
            stood_in: 0,
        };
        AppReport {
            app: pid,
            pid,
            name: format!("app{pid}"),
            class: class.into(),
            user: 0,
            rank: 0,
            weight: 1024,
            ready: true,
            joined_ms_ago: 0,
            demotions: 1,
            cpu_time_ns: 500,
            cpus: states.into_iter().enumerate().map(cpu).collect(),
        }
    }

    #[test]
    fn a_share_is_a_service_of_its_applications() {
        let share = ShareReport {
            socket: "/run/a.sock".into(),
            file: "/etc/servers.toml".into(),
            pid: 1,
            cpus: vec![2, 3],
            policy: "priority".into(),
            realtime: false,
            priority: 0,
            slice_ns: 0,
            uptime_ms: 0,
        };
        let apps = vec![app(7, "lc", ["active", "idle"]), app(8, "be", ["wanting", "wanting"])];
        let core = |cpu| CoreReport { cpu, active: None, why: String::new(), waiting: vec![8] };
        let cores = vec![core(2), core(3)];
        let report = Report { schema: 1, share, apps, cores, events: Vec::new() };
        let Service { id, name, kind, policy, pids, counts, parts } = service(&report);
        assert_eq!((&id[..], &name[..]), ("share /run/a.sock", "servers CPUs 2-3"));
        assert_eq!((kind, &policy[..], pids), (Kind::Share, "priority", vec![7, 8]));
        let expected = Counts {
            cpu_ns: Some(1_000),
            inputs: Some(40),
            waiting: Some(2),
            delays: Some((12_000, 40)),
            preempted: Some(18),
            ..Counts::default()
        };
        assert_eq!(counts, expected);
        assert_eq!(parts[1].name, "be app8 8");
        assert_eq!((parts[0].counts.waiting, parts[1].counts.waiting), (Some(0), Some(2)));
    }
}
