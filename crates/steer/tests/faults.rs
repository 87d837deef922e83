//! Failures half-way, and what other processes find then. Real sockets, the real kernel: needs root and BPF.

#[path = "common/engine.rs"]
mod common;

use std::fs;
use std::os::fd::{AsFd as _, OwnedFd};

use common::{Bench, ask, group, received};
use heddle_steer::request::{Answer, ErrorKind, Request, Status};
use heddle_test_support::until;

/// Returns whether the kernel chooses: one flow goes to one socket.
fn kernel_chooses(sockets: &[std::net::UdpSocket]) -> bool {
    ask(sockets, 20);
    received(sockets, 20).contains(&20)
}

/// Waits until it does: it empties a policy's slot a grace period after the last pin went.
fn until_kernel_chooses(sockets: &[std::net::UdpSocket]) {
    until("no unlisted policy decides", || kernel_chooses(sockets));
}

#[test]
fn a_record_that_cannot_be_written_undoes_the_attachment() {
    let Some(bench) = Bench::new("record") else { return };
    let sockets = group(2, "127.0.0.1:0");
    // A folder in place of the record: fails the rename as a full disk does, and for root too.
    fs::create_dir_all(bench.run.join("1.json/x")).expect("a folder");
    let error = bench.attach("round-robin", &sockets).expect_err("no record");
    assert!(error.text.contains("1.json"), "{error}");
    assert!(!bench.pins.join("1").exists() && !bench.run.join("1.new").exists());
    assert!(kernel_chooses(&sockets));
    fs::remove_dir_all(bench.run.join("1.json")).expect("removed");
    bench.attach("round-robin", &sockets).expect("as if nothing had been");
    assert!(!kernel_chooses(&sockets));
}

#[test]
fn pins_of_a_killed_process_are_removed_by_the_next() {
    let Some(bench) = Bench::new("killed") else { return };
    let sockets = group(2, "127.0.0.1:0");
    let first = bench.attach("round-robin", &sockets).expect("attached");
    // Between the pins and the record; and one whose record is damaged.
    fs::remove_file(bench.run.join(format!("{}.json", first.id))).expect("a record");
    let others = group(2, "[::1]:0");
    let second = bench.attach("round-robin", &others).expect("attached");
    assert_ne!(second.id, first.id, "nothing of the first is mistaken for the second's");
    until_kernel_chooses(&sockets);
    assert!(!kernel_chooses(&others));
    assert_eq!(bench.stats(second.id).decisions(), 20);

    fs::write(bench.run.join(format!("{}.json", second.id)), "{ no record").expect("written");
    assert_eq!(bench.list(), []);
    assert!(!bench.pins.join(second.id.to_string()).exists());
    until_kernel_chooses(&others);
}

#[test]
fn an_id_names_one_attachment_whichever_process_made_it() {
    let Some(mut bench) = Bench::new("numbers") else { return };
    let sockets = group(2, "127.0.0.1:0");
    let mut numbers = Vec::new();
    for _ in 0..3 {
        bench.restart();
        let id = bench.attach("round-robin", &sockets).expect("attached").id;
        bench.call(Request::Detach { id }, Vec::new()).expect("detached");
        numbers.push(id);
    }
    assert_eq!(numbers, [1, 2, 3]);
    let error = bench.call(Request::Detach { id: 1 }, Vec::new()).expect_err("it has ended");
    assert_eq!(error.kind, ErrorKind::NotFound);
    // An id that cannot be recorded is not assigned.
    fs::remove_file(bench.run.join("last-id")).expect("a number");
    fs::create_dir_all(bench.run.join("last-id/x")).expect("a folder");
    let error = bench.attach("round-robin", &sockets).expect_err("no number");
    assert!(error.text.contains("last-id"), "{error}");
    assert!(kernel_chooses(&sockets) && bench.list().is_empty());
}

#[test]
fn an_attachment_without_pins_ends_and_its_server_continues() {
    let Some(bench) = Bench::new("vanished") else { return };
    let sockets = group(2, "127.0.0.1:0");
    let id = bench.attach("round-robin", &sockets).expect("attached").id;
    fs::remove_file(bench.pins.join(id.to_string()).join("root")).expect("a pin");
    // A list removes it unless the lock is taken, which a process that another test is just making has, too.
    until("the attachment has ended", || bench.list().is_empty());
    until_kernel_chooses(&sockets);
    assert!(!bench.run.join(format!("{id}.json")).exists());
    bench.attach("round-robin", &sockets).expect("attached again");
    assert!(!kernel_chooses(&sockets));
}

#[test]
fn a_policy_the_kernel_refuses_leaves_the_old_one_and_its_maps() {
    let Some(bench) = Bench::new("refused") else { return };
    let sockets = group(2, "127.0.0.1:0");
    let id = bench.attach("round-robin", &sockets).expect("attached").id;
    let pins = || {
        let entries = fs::read_dir(bench.pins.join(id.to_string())).expect("pins");
        let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
        names.sort();
        names
    };
    let before = pins();
    let mut wrong = common::shipped("round-robin");
    wrong.object = Some(b"\x7fELF and no more".to_vec());
    let error =
        bench.call(Request::Replace { id, policy: wrong }, Vec::new()).expect_err("no policy");
    assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
    assert_eq!(pins(), before);
    ask(&sockets, 20);
    assert_eq!(received(&sockets, 20), [10, 10]);
    assert_eq!(bench.list()[0].policy, "round-robin");
}

#[test]
fn an_evicted_policy_can_be_replaced_or_detached() {
    let Some(bench) = Bench::new("evicted") else { return };
    let sockets = group(2, "127.0.0.1:0");
    let id = bench.attach("round-robin", &sockets).expect("attached").id;
    for _ in 0..2 {
        bench.engine.evict(id, "too slow").expect("evicted, again too");
        assert_eq!(bench.list()[0].status, Status::Evicted("too slow".into()));
        assert!(kernel_chooses(&sockets));
    }
    bench
        .call(Request::Replace { id, policy: common::shipped("round-robin") }, Vec::new())
        .expect("replaced");
    assert_eq!(bench.list()[0].status, Status::Active);
    assert!(!kernel_chooses(&sockets));
    bench.engine.evict(id, "too slow").expect("evicted");
    bench.call(Request::Detach { id }, Vec::new()).expect("detached");
    assert_eq!(bench.list(), []);
}

#[test]
fn executors_come_and_go_and_the_index_is_bounded() {
    let Some(bench) = Bench::new("executors") else { return };
    let mut sockets = group(2, "127.0.0.1:0");
    let id = bench.attach("round-robin", &sockets).expect("attached").id;
    let add = |index, socket: &std::net::UdpSocket| {
        let fd: OwnedFd = socket.as_fd().try_clone_to_owned().expect("a copy");
        bench.call(Request::AddExecutor { id, index, label: "new".into() }, vec![fd])
    };
    let new = group(1, &sockets[0].local_addr().expect("bound").to_string()).remove(0);
    assert_eq!(add(Some(64), &new).expect_err("too far").kind, ErrorKind::Busy);
    let foreign = group(1, "127.0.0.1:0").remove(0);
    assert!(add(None, &foreign).expect_err("another port").text.contains("the group to"));
    drop(sockets.remove(0));
    assert_eq!(add(None, &new).expect("added").0, Answer::Executor(0));
    sockets.insert(0, new);
    ask(&sockets, 20);
    assert_eq!(received(&sockets, 20), [10, 10]);
    assert_eq!(bench.list()[0].executors[0], "new");
}

#[test]
fn concurrent_changes_are_serialised() {
    let Some(bench) = Bench::new("two") else { return };
    let groups: Vec<_> = (0..4).map(|_| group(2, "127.0.0.1:0")).collect();
    std::thread::scope(|scope| {
        for sockets in &groups {
            scope.spawn(|| bench.attach("round-robin", sockets).expect("attached"));
        }
    });
    let ids: Vec<u32> = bench.list().iter().map(|attachment| attachment.id).collect();
    assert_eq!(ids, [1, 2, 3, 4]);
    let same = group(2, "127.0.0.1:0");
    let outcomes: Vec<bool> = std::thread::scope(|scope| {
        let attach = || scope.spawn(|| bench.attach("jiq", &same).is_ok());
        [attach(), attach()].map(|thread| thread.join().expect("no panic")).to_vec()
    });
    assert_eq!(outcomes.iter().filter(|worked| **worked).count(), 1, "one attachment a group");
}

#[test]
fn an_unwritable_folder_is_named() {
    let Some(bench) = Bench::new("folder") else { return };
    let run = bench.run.join("file/below");
    fs::write(bench.run.join("file"), "").expect("a file");
    let state = heddle_steer::engine::State::at(&run, &bench.pins);
    let error = heddle_steer::engine::Engine::new(state, Box::new(heddle_steer::engine::read_here))
        .err()
        .expect("refused");
    assert!(error.text.contains(&run.display().to_string()), "{error}");
}
