//! What the broker says when it is asked how things are.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;

use heddle_core::Ns;
use heddle_share::handover::State;
use heddle_share::{Kind, Slot};
use heddle_sys::clock;
use heddle_sys::memory::{reopen_for_reading, sealed_file};

use crate::member::Member;
use crate::realtime;
use crate::report::{AppReport, CoreReport, CpuReport};

/// Describes a member.
pub fn app(number: usize, member: &Member, cpus: &[u32], now: Ns) -> AppReport {
    let time_of = |tid| realtime::time_of(member.pid, tid);
    let on_cpu =
        |(index, &cpu): (usize, &u32)| on_cpu(cpu, &member.memory.snapshot(index), time_of, now);
    AppReport {
        app: number as u32,
        pid: member.pid,
        name: member.name.clone(),
        class: class(member.kind).into(),
        user: member.uid,
        rank: member.rank,
        weight: member.weight,
        ready: member.is_ready(),
        joined_ms_ago: (now - member.joined).0 / 1_000_000,
        demotions: member.demotions,
        cpu_time_ns: clock::process_cpu_time_of(member.pid).0,
        cpus: cpus.iter().enumerate().map(on_cpu).collect(),
    }
}

fn class(kind: Kind) -> &'static str {
    match kind {
        Kind::Critical => "lc",
        Kind::BestEffort => "be",
    }
}

fn on_cpu(cpu: u32, slot: &Slot, time_of: impl Fn(u32) -> Option<Ns>, now: Ns) -> CpuReport {
    // Whatever the member wrote: a time to come is now.
    let since = if slot.since == 0 { 0 } else { now.0.saturating_sub(slot.since) };
    let running = match (slot.state, slot.cpu_time_then) {
        (State::Active, 0) => since,
        (State::Active, then) => {
            let ran = time_of(slot.tid).map_or(since, |time| time.0.saturating_sub(then));
            ran.min(since)
        }
        _ => 0,
    };
    let state = match slot.state {
        State::Idle => "idle",
        State::Wanting => "wanting",
        State::Active => "active",
    };
    CpuReport {
        cpu,
        state: state.into(),
        since_ns_ago: since,
        active_ns: slot.active_ns.saturating_add(running),
        waited_ns: slot.waited_ns,
        longest_wait_ns: slot.longest_wait_ns,
        switches: slot.switches,
        broken: slot.broken,
        asked: slot.asked,
        made_way: slot.made_way,
        stood_in: slot.stood_in,
    }
}

/// Marks the applications that a better one preempts: they are active, as far as they know.
pub fn mark_preempted(apps: &mut [AppReport]) {
    let active = |app: &AppReport, at: usize| app.ready && app.cpus[at].state == "active";
    let cpus = apps.first().map_or(0, |app| app.cpus.len());
    for at in 0..cpus {
        let best = apps.iter().filter(|app| active(app, at)).map(|app| app.rank).min();
        let worse = apps.iter_mut().filter(|app| active(app, at) && Some(app.rank) != best);
        worse.for_each(|app| app.cpus[at].state = "preempted".into());
    }
}

/// Says who has the CPU with this index, by what the applications say.
pub fn core(index: usize, cpu: u32, apps: &[AppReport]) -> CoreReport {
    let in_state = |state: &'static str| {
        apps.iter().filter(move |app| app.ready && app.cpus[index].state == state)
    };
    // One that stands in for another has it, and began later.
    let active = in_state("active").min_by_key(|app| app.cpus[index].since_ns_ago);
    let waiting: Vec<&AppReport> = in_state("wanting").collect();
    CoreReport {
        cpu,
        active: active.map(|app| app.app),
        why: why(active, &waiting),
        waiting: waiting.iter().map(|app| app.app).collect(),
    }
}

fn why(active: Option<&AppReport>, waiting: &[&AppReport]) -> String {
    let best = waiting.iter().min_by_key(|app| app.rank);
    match (active, best) {
        (None, None) => "no application has work".into(),
        (None, Some(best)) => format!("on its way to {}", best.name),
        (Some(active), Some(best)) if best.rank < active.rank => {
            format!("makes way for {}", best.name)
        }
        (Some(active), Some(best)) if best.rank == active.rank => "its turn among equals".into(),
        (Some(active), _) if active.class == "be" => "best-effort, no latency-critical work".into(),
        (Some(_), _) => "latency-critical".into(),
    }
}

/// Puts an answer into a file that its receiver reads.
///
/// # Errors
/// The system's: out of memory or descriptors.
pub fn in_file(text: &str) -> io::Result<OwnedFd> {
    let mut file = File::from(sealed_file(c"heddle-answer", text.len())?);
    file.write_all(text.as_bytes())?;
    reopen_for_reading(&file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn app(number: u32, class: &str, state: &str, since: u64) -> AppReport {
        let cpu = CpuReport {
            cpu: 3,
            state: state.into(),
            since_ns_ago: since,
            active_ns: 0,
            waited_ns: 0,
            longest_wait_ns: 0,
            switches: 0,
            broken: 0,
            asked: 0,
            made_way: 0,
            stood_in: 0,
        };
        AppReport {
            app: number,
            pid: number,
            name: format!("app{number}"),
            class: class.into(),
            user: 0,
            rank: u32::from(class == "be"),
            weight: 1024,
            ready: true,
            joined_ms_ago: 0,
            demotions: 0,
            cpu_time_ns: 0,
            cpus: vec![cpu],
        }
    }

    #[test]
    fn a_core_says_who_has_it_and_why() {
        let cases: [(&[AppReport], _, &str, &[u32]); 7] = [
            (&[], None, "no application has work", &[]),
            (&[app(1, "lc", "idle", 9)], None, "no application has work", &[]),
            (&[app(1, "lc", "wanting", 9)], None, "on its way to app1", &[1]),
            (&[app(1, "lc", "active", 9)], Some(1), "latency-critical", &[]),
            (
                &[app(1, "be", "active", 9), app(2, "lc", "wanting", 1)],
                Some(1),
                "makes way for app2",
                &[2],
            ),
            (
                &[app(1, "be", "active", 9), app(2, "be", "wanting", 1)],
                Some(1),
                "its turn among equals",
                &[2],
            ),
            (
                &[app(1, "be", "active", 9), app(2, "lc", "active", 1)],
                Some(2),
                "latency-critical",
                &[],
            ),
        ];
        for (apps, active, why, waiting) in cases {
            let core = core(0, 3, apps);
            assert_eq!(
                (core.cpu, core.active, &*core.why, &*core.waiting),
                (3, active, why, waiting)
            );
        }
    }

    #[test]
    fn an_active_one_beside_a_better_one_is_preempted() {
        let mut apps =
            [app(1, "be", "active", 9), app(2, "lc", "active", 1), app(3, "be", "wanting", 1)];
        mark_preempted(&mut apps);
        assert_eq!(
            apps.each_ref().map(|app| &*app.cpus[0].state),
            ["preempted", "active", "wanting"]
        );
        assert_eq!(core(0, 3, &apps).active, Some(2));
    }

    #[test]
    fn times_that_make_no_sense_are_bounded() {
        let memory = heddle_share::AppMemory::new(1).unwrap();
        let idle = memory.snapshot(0);
        let odd = Slot { since: u64::MAX, state: State::Active, active_ns: u64::MAX, ..idle };
        let time_of = |_| Some(Ns(7));
        let report = on_cpu(1, &odd, time_of, Ns(5));
        assert_eq!((report.since_ns_ago, report.active_ns), (0, u64::MAX));
        let running = Slot { since: 3, state: State::Active, active_ns: 10, ..idle };
        assert_eq!(on_cpu(1, &running, time_of, Ns(5)).active_ns, 12);
        for (then, active_ns) in [(6, 11), (1, 12), (9, 10)] {
            let preempted = Slot { cpu_time_then: then, ..running };
            assert_eq!(on_cpu(1, &preempted, time_of, Ns(5)).active_ns, active_ns, "{then}");
        }
    }
}
