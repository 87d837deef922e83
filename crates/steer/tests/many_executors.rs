//! Groups of up to 1,024 sockets: every executor is reached, the only idle one is found, and small groups have small
//! maps. Needs root and BPF; otherwise skips, and says so.

#[path = "common/engine.rs"]
mod common;

use std::net::UdpSocket;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::mpsc;
use std::thread;

use common::{Bench, ask, group, received, until_present};
use heddle_steer::request::{Answer, Error, ErrorKind, Request};
use heddle_test_support::until;

const MOST: usize = 1024;

/// An engine, and permission to open enough sockets and copies of them.
fn bench(name: &str) -> Option<Bench> {
    if heddle_sys::limits::raise_descriptors().is_some_and(|most| most < 4096) {
        eprintln!("skipped: fewer than 4096 descriptors are allowed here");
        return None;
    }
    Bench::new(name)
}

fn add(bench: &Bench, id: u32, index: Option<u32>, socket: &UdpSocket) -> Result<Answer, Error> {
    let fd: OwnedFd = socket.as_fd().try_clone_to_owned().expect("a copy");
    let request = Request::AddExecutor { id, index, label: "new".into() };
    bench.call(request, vec![fd]).map(|(answer, _)| answer)
}

fn replace(bench: &Bench, id: u32, policy: &str) {
    let request = Request::Replace { id, policy: common::shipped(policy) };
    bench.call(request, Vec::new()).expect("replaced");
}

fn another(sockets: &[UdpSocket]) -> UdpSocket {
    group(1, &sockets[0].local_addr().expect("bound").to_string()).remove(0)
}

/// Returns how many executors a map of an attachment has room for.
fn entries(bench: &Bench, id: u32, name: &str) -> u32 {
    match bench.call(Request::Maps { id }, Vec::new()).expect("maps").0 {
        Answer::Maps(maps) => maps.iter().find(|map| map.name == name).expect("there").entries,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_one_of_many_executors_is_reached() {
    for n in [200, MOST] {
        let Some(bench) = bench(&format!("many{n}")) else { return };
        let sockets = group(n, "127.0.0.1:0");
        let id = bench.attach("round-robin", &sockets).expect("attached").id;
        ask(&sockets, 2 * n);
        assert_eq!(received(&sockets, 2 * n), vec![2; n]);
        let stats = bench.stats(id);
        assert_eq!(stats.executors.len(), n);
        assert!(stats.executors.iter().all(|executor| executor.selected == 2 && executor.present));
        assert_eq!((stats.failed(), stats.moved(), stats.passed), (0, 0, 0));
        replace(&bench, id, "hash");
        ask(&sockets, 20);
        received(&sockets, 20);
        assert_eq!(bench.list()[0].executors.len(), n);
    }
}

#[test]
fn the_only_idle_one_of_many_is_found() {
    let Some(bench) = bench("idle") else { return };
    let sockets = group(MOST, "127.0.0.1:0");
    bench.attach("jiq", &sockets).expect("attached");
    for index in [0, 63, 64, 700, MOST - 1] {
        let (sender, receiver) = mpsc::channel();
        let socket = sockets[index].try_clone().expect("a copy");
        let thread = thread::spawn(move || {
            sender.send(rustix::thread::gettid().as_raw_nonzero()).expect("sent");
            let mut ready = [rustix::event::PollFd::new(&socket, rustix::event::PollFlags::IN)];
            rustix::event::poll(&mut ready, None).expect("polled");
            socket.recv(&mut [0; 8]).expect("received")
        });
        let status = format!("/proc/self/task/{}/stat", receiver.recv().expect("its id"));
        let sleeps = || std::fs::read_to_string(&status).is_ok_and(|text| text.contains(") S "));
        until("it sleeps on its socket", sleeps);
        ask(&sockets, 1);
        assert_eq!(thread.join().expect("no panic"), 1);
    }
}

#[test]
fn the_last_of_many_executors_gets_what_was_meant_for_closed_ones() {
    let Some(bench) = bench("closed") else { return };
    let mut sockets = group(MOST, "127.0.0.1:0");
    let id = bench.attach("round-robin", &sockets).expect("attached").id;
    let last = sockets.split_off(MOST - 1);
    drop(sockets);
    until_present(&bench, id, 1);
    ask(&last, 40);
    received(&last, 40);
    assert_eq!(bench.stats(id).moved(), 40);
}

#[test]
fn maps_have_room_for_the_group_and_some_more() {
    let Some(bench) = bench("room") else { return };
    for (n, room) in [(2, 64), (51, 64), (52, 128), (200, 256), (900, 1024), (MOST, 1024)] {
        let sockets = group(n, "127.0.0.1:0");
        let id = bench.attach("round-robin", &sockets).expect("attached").id;
        assert_eq!(entries(&bench, id, "hd_lines"), room, "{n}");
        assert_eq!(entries(&bench, id, "hd_executor"), room, "{n}");
        assert_eq!(entries(&bench, id, "hd_counts"), room + 1, "{n}");
        let new = another(&sockets);
        let error = add(&bench, id, Some(room), &new).expect_err("behind its room");
        assert_eq!(error.kind, ErrorKind::Busy);
        assert!(error.text.contains(&format!("room for {room} executors")), "{error}");
        if room as usize > n {
            let index = Answer::Executor(room - 1);
            assert_eq!(add(&bench, id, Some(room - 1), &new).expect("added"), index);
        }
    }
    let sockets = group(MOST + 1, "127.0.0.1:0");
    let error = bench.attach("round-robin", &sockets).expect_err("too many");
    assert!(error.text.contains("below 1024"), "{error}");
}

#[test]
fn an_attachment_of_an_older_version_works_on() {
    let Some(mut bench) = bench("older") else { return };
    let mut sockets = group(2, "127.0.0.1:0");
    let id = bench.attach("round-robin", &sockets).expect("attached").id;
    // Versions that knew 64 executors had maps of this size, and no map that says so.
    let pin = bench.pins.join(id.to_string()).join("map_hd_room_constants");
    std::fs::remove_file(pin).expect("pinned");
    bench.restart();
    replace(&bench, id, "sita");
    replace(&bench, id, "round-robin");
    ask(&sockets, 20);
    assert_eq!(received(&sockets, 20), [10, 10]);
    sockets.push(another(&sockets));
    assert_eq!(add(&bench, id, None, &sockets[2]).expect("added"), Answer::Executor(2));
    ask(&sockets, 30);
    assert_eq!(received(&sockets, 30), [10, 10, 10]);
    assert_eq!(bench.stats(id).failed(), 0);
    let error = add(&bench, id, Some(64), &another(&sockets)).expect_err("no room");
    assert!(error.text.contains("up to 1024 fit"), "{error}");
}
