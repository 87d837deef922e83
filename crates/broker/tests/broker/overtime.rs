//! Members that do not give CPUs back.

use heddle_broker::Options;
use heddle_sys::scheduling::{self, Class};
use heddle_test_support::until;

use crate::fixture::{Process, Share};

/// Returns a best-effort member that is active, and a better one that waits.
fn two(share: &Share) -> (Process, Process) {
    let (mut keeps, mut waits) = (share.member("keeps", 1), share.member("waits", 0));
    for member in [&mut keeps, &mut waits] {
        member.said("admitted");
        member.send("ready");
    }
    keeps.said("peer");
    waits.said("peer");
    keeps.send("active");
    waits.send("wanting");
    until("one waits", || share.report().cores[0].waiting.len() == 1);
    (keeps, waits)
}

/// Complains until the active member has been demoted.
fn complain(share: &Share, waits: &mut Process) {
    until("it is demoted", || {
        waits.send("alert");
        share.count("demoted") == 1
    });
    assert_eq!(share.app("keeps").demotions, 1);
}

#[test]
fn one_that_keeps_a_cpu_is_demoted_and_then_removed() {
    let share = Share::new();
    let (keeps, mut waits) = two(&share);
    let number = share.app("keeps").app;
    complain(&share, &mut waits);
    waits.said(&format!("left {number}"));
    assert!(keeps.said("removed ").contains("kept CPU"));
    let report = share.report();
    assert_eq!(report.apps.len(), 1);
    assert_eq!(report.events.last().unwrap().event, "removed");
    waits.send("members");
    waits.said(&format!("members {}", 1 << share.app("waits").app));
}

#[test]
fn one_that_lets_go_stays_a_member() {
    let share = Share::new();
    let (mut keeps, mut waits) = two(&share);
    complain(&share, &mut waits);
    keeps.send("class");
    assert_eq!(keeps.said("class "), "Other", "it must run to let go");
    keeps.send("idle");
    // Longer than one that goes on would stay.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert_eq!(share.report().apps.len(), 2);
    assert_eq!(share.count("removed"), 0);
}

#[test]
fn one_that_moves_on_is_left_alone() {
    let share = Share::new();
    let (mut keeps, mut waits) = two(&share);
    for _ in 0..20 {
        waits.send("alert");
        std::thread::sleep(std::time::Duration::from_millis(5));
        keeps.send("active");
        let word = share.app("keeps").cpus[0].state.clone();
        assert_eq!(word, "active");
    }
    assert_eq!(share.report().apps.len(), 2);
}

#[test]
fn a_real_time_member_is_demoted_and_has_its_priority_back_once_it_lets_go() {
    let share = Share::with("realtime = \"auto\"", Options::default());
    let is_permitted = share.report().share.realtime;
    let (mut keeps, mut waits) = two(&share);
    keeps.send("fifo");
    if !is_permitted {
        assert_eq!(share.report().share.priority, 0);
        eprintln!("skipped: no right to make threads real-time");
        return;
    }
    assert_eq!((keeps.said("fifo "), share.report().share.priority), ("true".into(), 10));
    let pid = keeps.running.pid();
    let class = || {
        let threads = heddle_sys::processes::threads(pid);
        let classes =
            threads.iter().filter_map(|thread| Some(scheduling::of(thread.pid).ok()?.class));
        classes.filter(|&class| class != Class::Other).collect::<Vec<_>>()
    };
    assert_eq!(class(), [Class::Fifo]);
    for _ in 0..10 {
        waits.send("alert");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(share.count("demoted"), 0, "it sleeps, and others can stand in for it");
    keeps.send("spin");
    complain(&share, &mut waits);
    until("it is idle, or was removed", || {
        class().contains(&Class::Idle) || share.report().apps.len() == 1
    });
    keeps.send("idle");
    until("it is real-time again, or was removed", || {
        class() == [Class::Fifo; 2] || share.count("removed") == 1
    });
}

#[test]
fn one_that_hangs_up_loses_its_priority() {
    let share = Share::with("realtime = \"auto\"", Options::default());
    if !share.report().share.realtime {
        eprintln!("skipped: no right to make threads real-time");
        return;
    }
    let mut member = share.member("one", 0);
    member.said("admitted");
    member.send("ready");
    member.send("fifo");
    assert_eq!(member.said("fifo "), "true");
    member.send("hang up");
    until("it has left", || share.count("left") == 1);
    member.send("class");
    assert_eq!(member.said("class "), "Other");
}
