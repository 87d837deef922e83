//! A broker and its members, each of which is a process.

mod fixture;
mod hostile;
mod overtime;

use std::time::Duration;

use heddle_broker::{End, Options};
use heddle_test_support::{temp_dir, until};
use rustix::process::Signal;

use fixture::{Share, start};

/// No test: the processes that tests start as members.
#[test]
fn member_process() {
    fixture::member();
}

#[test]
fn two_members_learn_of_each_other_and_of_an_end() {
    let share = Share::new();
    let mut one = share.member("one", 0);
    assert_eq!(one.said("admitted "), "0");
    one.send("ready");
    until("it takes part", || share.app("one").ready);
    let mut other = share.member("other", 1);
    assert_eq!(other.said("admitted "), "1");
    assert!(!one.has_said("peer"), "one that is not ready is no peer");
    other.send("ready");
    assert_eq!((one.said("peer 1"), other.said("peer 0")), ("with 2".into(), "with 2".into()));
    until("both take part", || {
        one.send("members");
        one.has_said("members 3")
    });
    other.running.signal(Signal::KILL);
    one.said("left 1");
    one.send("members");
    one.said("members 1");
    let events = share.report().events;
    let last = events.last().unwrap();
    assert_eq!((&*last.event, &*last.name, last.pid), ("died", "other", other.running.pid()));
}

#[test]
fn the_report_says_who_has_the_cpu_and_why() {
    let share = Share::with("realtime = \"never\"\n[weights]\nbatch = 512", Options::default());
    assert_eq!(share.report().cores[0].why, "no application has work");
    let mut batch = share.member("batch", 1);
    batch.said("admitted");
    batch.send("ready");
    batch.send("active");
    until("it is active", || share.report().cores[0].active == Some(0));
    let mut lc = share.member("lc", 0);
    lc.said("admitted");
    lc.send("ready");
    lc.send("wanting");
    until("another waits", || share.report().cores[0].waiting == [1]);
    let report = share.report();
    assert_eq!((report.schema, &*report.cores[0].why), (1, "makes way for lc"));
    assert_eq!((report.share.cpus, report.share.realtime), (vec![share.cpu], false));
    let [batch, lc] = &report.apps[..] else { panic!("{:?}", report.apps) };
    assert_eq!((&*batch.class, batch.rank, batch.weight), ("be", 1, 512));
    assert_eq!((&*lc.class, lc.rank, lc.weight), ("lc", 0, 1024));
    assert_eq!((&*batch.cpus[0].state, &*lc.cpus[0].state), ("active", "wanting"));
    assert!(batch.cpu_time_ns > 0);
}

#[test]
fn a_member_that_hangs_up_is_one_no_more_and_may_come_back() {
    let share = Share::new();
    let (mut one, mut other) = (share.member("one", 0), share.member("other", 0));
    for member in [&mut one, &mut other] {
        member.said("admitted");
        member.send("ready");
    }
    one.said("peer");
    other.said("peer");
    let number = share.app("other").app;
    other.send("hang up");
    one.said(&format!("left {number}"));
    assert_eq!(share.report().apps.len(), 1);
    assert_eq!(share.count("left"), 1);
}

#[test]
fn numbers_are_limited_and_the_next_one_is_refused() {
    let share = Share::new();
    let members: Vec<_> = (0..32).map(|n| share.member(&format!("m{n}"), n % 2)).collect();
    for member in &members {
        member.said("admitted");
    }
    assert!(share.member("late", 0).said("refused ").contains("32 applications"));
    assert_eq!(share.report().apps.len(), 32);
}

#[test]
fn one_socket_has_one_broker_and_is_free_again_after_it() {
    let mut share = Share::new();
    let folder = temp_dir();
    let again = || {
        start(
            &folder.path().join("x.toml"),
            &share.socket,
            "realtime = \"never\"",
            Options::default(),
        )
    };
    let error = again().unwrap_err();
    assert!(error.contains("another broker runs at"), "{error}");
    let member = share.member("one", 0);
    member.said("admitted");
    assert_eq!(share.stop(), End::Stopped);
    member.said("alone");
    assert!(!share.socket.exists());
    let again = || {
        start(
            &folder.path().join("x.toml"),
            &share.socket,
            "realtime = \"never\"",
            Options::default(),
        )
    };
    assert!(again().is_ok());
}

#[test]
fn it_ends_by_itself_once_it_is_idle() {
    let until_idle = Some(Duration::from_millis(50));
    let mut share =
        Share::with("realtime = \"never\"", Options { until_idle, ..Options::default() });
    assert_eq!(share.ended(), End::Idle);
}

#[test]
fn it_does_not_end_while_it_has_a_member() {
    let until_idle = Some(Duration::from_secs(5));
    let mut share =
        Share::with("realtime = \"never\"", Options { until_idle, ..Options::default() });
    let mut member = share.member("one", 0);
    member.said("admitted");
    std::thread::sleep(Duration::from_secs(6));
    assert_eq!(share.report().apps.len(), 1);
    drop(member.running.child().stdin.take());
    assert_eq!(share.ended(), End::Idle);
}

#[test]
fn a_share_of_cpus_that_are_not_there_is_refused() {
    let folder = temp_dir();
    let (file, socket) = (folder.path().join("x.toml"), folder.path().join("x.sock"));
    std::fs::write(&file, format!("cpus = \"4000\"\nsocket = \"{}\"", socket.display())).unwrap();
    let config = heddle_broker::Config::read(&file).unwrap();
    let error = heddle_broker::Broker::start(config, &file, Options::default()).unwrap_err();
    assert!(error.to_string().contains("CPUs 4000 of the share are not online"), "{error}");
}

#[test]
fn real_time_on_all_cpus_is_refused_unless_it_is_wanted() {
    let folder = temp_dir();
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    let (file, socket) = (folder.path().join("x.toml"), folder.path().join("x.sock"));
    let text = format!("cpus = \"{}\"\nsocket = \"{}\"\n", online.trim(), socket.display());
    let start = |more: &str| {
        let config = heddle_broker::Config::parse(&format!("{text}{more}"), &file).unwrap();
        heddle_broker::Broker::start(config, &file, Options::default())
    };
    match start("whole_machine = true\n") {
        Ok(broker) if broker.priority() == Some(10) => {
            drop(broker);
            let error = start("").unwrap_err().to_string();
            assert!(error.contains("whole_machine = true"), "{error}");
        }
        Ok(broker) => {
            drop(broker);
            assert_eq!(start("").unwrap().priority(), None);
            let error =
                start("whole_machine = true\nrealtime = \"always\"").unwrap_err().to_string();
            assert!(error.contains("realtime = \"always\": the broker cannot"), "{error}");
        }
        // A cgroup without some of the CPUs.
        Err(error) => assert!(error.to_string().contains("may not run on CPUs"), "{error}"),
    }
    assert_eq!(start("realtime = \"never\"").map(|broker| broker.priority()).unwrap_or(None), None);
}
