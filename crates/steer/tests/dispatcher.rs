//! One receiver, many workers: requests follow the policy, and none is lost silently.

use std::fs;
use std::sync::mpsc;
use std::thread;

use heddle_steer::native::{Dispatcher, NativeError, NativePolicy, Sent, input};

fn shipped(name: &str, params: &str) -> NativePolicy {
    NativePolicy::shipped(name, params).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn requests_reach_the_workers_that_the_policy_chose_in_order() {
    let (mut dispatcher, workers) = Dispatcher::new(shipped("sita", "type-offset=0"), 3, 16);
    for i in 0..9_u8 {
        let kind = if i % 3 == 0 { 3 } else { 1 };
        let to = if kind == 3 { 0 } else { 1 + usize::from(i % 3 - 1) };
        assert_eq!(dispatcher.send(&mut input(&[kind]), i), Sent::To(to));
    }
    assert_eq!(dispatcher.counts().sent, [3, 3, 3]);
    drop(dispatcher);
    let got: Vec<Vec<u8>> =
        workers.iter().map(|w| std::iter::from_fn(|| w.next()).collect()).collect();
    assert_eq!(got, [[0, 3, 6], [1, 4, 7], [2, 5, 8]]);
}

#[test]
fn a_full_ring_gives_the_request_back_and_is_counted() {
    let (mut dispatcher, workers) = Dispatcher::new(shipped("round-robin", ""), 2, 1);
    let mut send = |i: u8| dispatcher.send(&mut input(&[]), i);
    assert_eq!([send(0), send(1)], [Sent::To(0), Sent::To(1)]);
    assert_eq!([send(2), send(3)], [Sent::Full(0, 2), Sent::Full(1, 3)]);
    assert_eq!(workers[0].next(), Some(0));
    assert_eq!(dispatcher.send(&mut input(&[]), 4), Sent::To(0));
    assert_eq!(dispatcher.counts().full, [1, 1]);
    drop(workers);
    assert_eq!(dispatcher.send(&mut input(&[]), 5), Sent::Full(1, 5), "the worker is gone");
}

#[test]
fn the_policy_sees_how_deep_the_rings_are() {
    let (mut dispatcher, workers) = Dispatcher::new(shipped("jsq", ""), 4, 64);
    for i in 0..40 {
        assert!(matches!(dispatcher.send(&mut input(&[]), i), Sent::To(_)));
    }
    assert_eq!(dispatcher.counts().sent, [10; 4], "the shortest each time");
    workers[2].mark(1);
    for _ in 0..4 {
        let _ = workers[2].next();
    }
    (0..3).for_each(|i| assert_eq!(dispatcher.send(&mut input(&[]), i), Sent::To(2)));
}

#[test]
fn the_policy_sees_which_workers_sleep() {
    let (mut dispatcher, mut workers) = Dispatcher::new(shipped("jiq", ""), 3, 64);
    let sleeper = workers.remove(1);
    let (sender, received) = mpsc::channel();
    let thread = thread::spawn(move || {
        while let Some(i) = sleeper.next() {
            sender.send(i).expect("the test listens");
        }
    });
    // Until it sleeps, any worker may be chosen.
    let mut sent = 0;
    while dispatcher.send(&mut input(&[]), sent) != Sent::To(1) {
        sent += 1;
        assert!(sent < 128, "the others are full");
        thread::yield_now();
    }
    assert_eq!(received.recv(), Ok(sent));
    drop(dispatcher);
    thread.join().expect("it ends");
}

#[test]
fn dropped_requests_come_back_and_passed_ones_follow_their_flow() {
    let (mut dispatcher, _workers) = Dispatcher::new(shipped("token", "user-offset=0"), 2, 8);
    assert_eq!(dispatcher.send(&mut input(&[7]), 'a'), Sent::Dropped('a'));
    let mut flow = input(&[]);
    flow.hash = 5;
    assert_eq!(dispatcher.send(&mut flow, 'b'), Sent::To(1));
    let counts = dispatcher.counts();
    assert_eq!((counts.dropped, counts.passed, counts.wrong), (1, 1, 0));
}

#[test]
fn a_users_file_is_compiled_and_its_maps_are_available() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("mine.c");
    let source = "#include <heddle.h>\n\
        HD_PARAM(step, 2, 1, 9, \"how far it goes each time\");\n\
        HD_TABLE(counts, u64, 8);\n\
        HD_HASH(seen, u64, u32, 2);\n\
        static u32 at;\n\
        static u32 schedule(struct hd_in *in)\n\
        {\n\
        \tu64 *count = hd_at(counts, in->length);\n\
        \tu32 *times = hd_find(seen, in->length);\n\
        \tif (!count)\n\
        \t\treturn HD_DROP;\n\
        \tif (!times && hd_put(seen, in->length, 1))\n\
        \t\treturn 77;\n\
        \t__sync_fetch_and_add(count, 1);\n\
        \treturn (at += hd_param(step)) % hd_executors();\n\
        }\n";
    fs::write(&file, source).expect("a file");
    let policy = match NativePolicy::compile(&file, "step=3") {
        Ok(policy) => policy,
        Err(error) => panic!("{error}"),
    };
    let counts = policy.map("counts").expect("declared");
    let (mut dispatcher, _workers) = Dispatcher::new(policy, 4, 8);
    let mut send = |bytes: &[u8]| dispatcher.send(&mut input(bytes), ());
    assert_eq!([send(b""), send(b"1"), send(b"1")], [Sent::To(3), Sent::To(2), Sent::To(1)]);
    assert_eq!(send(&[0; 8]), Sent::Dropped(()), "beyond the table");
    send(b"22");
    assert_eq!(dispatcher.counts().wrong, 1, "the hash has two keys, and is full");
    let count = |i| counts.word(i, 0).load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!([count(0), count(1), count(2)], [1, 2, 0]);
    drop(dispatcher);
    assert_eq!(count(1), 2, "a map outlives its policy");
}

#[test]
fn a_policy_that_does_not_compile_is_refused_with_the_compilers_message() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("wrong.c");
    fs::write(&file, "static u32 schedule(struct hd_in *in) { return here; }\n").expect("a file");
    let error = NativePolicy::compile(&file, "").map(drop).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, NativeError::Compile(_)) && text.contains("wrong.c:1"), "{text}");
    let error = NativePolicy::shipped("sitar", "").map(drop).unwrap_err().to_string();
    assert!(error.starts_with("no policy `sitar`; there are: class, classify, hash,"), "{error}");
    let error = NativePolicy::shipped("hash", "x=1").map(drop).unwrap_err().to_string();
    assert_eq!(error, "no parameter `x`; there are: none");
}
