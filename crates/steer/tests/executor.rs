//! The lines of executors. Needs BPF; otherwise skips, and says so.

use std::io;
use std::sync::atomic::Ordering::Relaxed;

use heddle_bpf::{Map, MapKind, MapSpec};
use heddle_steer::executor::{self, Lines, WORDS};

fn map(value_size: u32) -> Option<Map> {
    let spec = MapSpec {
        name: "hd_lines".into(),
        kind: MapKind::Array,
        key_size: 4,
        value_size,
        entries: 4,
        read_only: false,
    };
    match Map::create(&spec) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            eprintln!("skipped: making BPF maps takes privileges ({error})");
            None
        }
        map => Some(map.expect("made")),
    }
}

fn half(map: &Map, line: u32, at: usize) -> u32 {
    let value = map.lookup(&line.to_ne_bytes()).expect("read").expect("there");
    u32::from_ne_bytes(value[at..at + 4].try_into().expect("four bytes"))
}

#[test]
fn marks_are_stored_where_policies_read_them() {
    let Some(map) = map(64) else { return };
    let executor = Lines::new(&map).expect("mapped").executor(2).expect("there");
    executor.busy(7);
    executor.set_cpu(Some(5));
    executor.word(0).store(1 << 40, Relaxed);
    executor.word(WORDS - 1).store(9, Relaxed);
    executor.set_thread(Some(4711));
    assert_eq!([0, 4, 12, 48, 56, 60].map(|at| half(&map, 2, at)), [7, 6, 256, 9, 4711, 0]);
    assert_eq!((executor.class(), executor.cpu(), executor.thread()), (7, Some(5), Some(4711)));
    executor.idle();
    executor.set_cpu(None);
    executor.set_thread(None);
    assert_eq!([0, 4, 56].map(|at| half(&map, 2, at)), [0, 0, 0]);
    assert_eq!([1, 3].map(|line| half(&map, line, 0)), [0, 0], "its neighbours' are theirs");
}

#[test]
fn each_thread_has_its_own_executor() {
    let Some(map) = map(64) else { return };
    let lines = Lines::new(&map).expect("mapped");
    assert!(!executor::busy(1) && executor::registered().is_none());
    std::thread::scope(|scope| {
        for index in 0..4 {
            let lines = &lines;
            scope.spawn(move || {
                executor::register(lines.executor(index).expect("there"));
                assert!(executor::busy(index + 10));
                assert_eq!(executor::registered().map(|mine| mine.index()), Some(index as usize));
            });
        }
    });
    assert_eq!([0, 1, 2, 3].map(|line| half(&map, line, 0)), [10, 11, 12, 13]);
    executor::register(lines.executor(0).expect("there"));
    assert!(executor::idle());
    assert_eq!(half(&map, 0, 0), 0);
    assert_eq!(executor::unregister().map(|mine| mine.index()), Some(0));
    assert!(!executor::idle());
}

#[test]
fn a_line_names_its_thread_while_the_thread_serves_it() {
    let Some(map) = map(64) else { return };
    let lines = Lines::new(&map).expect("mapped");
    let line = |index| lines.executor(index).expect("there");
    let own = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
    executor::register(line(1));
    assert_eq!(line(1).thread(), Some(own));
    executor::register(line(2));
    assert_eq!([1, 2].map(|index| line(index).thread()), [None, Some(own)]);
    executor::register(line(2));
    assert_eq!(line(2).thread(), Some(own), "once more the same");
    // Another takes over, and ends: the line then has no thread, whatever the first does.
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            executor::register(line(2));
            line(2).thread()
        });
        let other = thread.join().expect("it ends");
        assert!(other.is_some() && other != Some(own));
    });
    assert_eq!(line(2).thread(), None);
    line(2).set_thread(Some(9));
    executor::unregister();
    assert_eq!(line(2).thread(), Some(9));
}

#[test]
fn invalid_maps_of_lines_are_refused() {
    let Some(wrong) = map(32) else { return };
    assert!(Lines::new(&wrong).unwrap_err().to_string().contains("32 bytes"));
    let Some(right) = map(64) else { return };
    assert!(Lines::new(&right).expect("mapped").executor(4).is_err());
}

#[test]
#[should_panic(expected = "6 words")]
fn a_missing_word_panics() {
    let Some(map) = map(64) else { panic!("skipped: a line has 6 words") };
    let _ = Lines::new(&map).expect("mapped").executor(0).expect("there").word(WORDS);
}
