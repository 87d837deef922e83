//! Objects and rings, against the real kernel and with a program of clang's. Needs root; says so where it is missing.

use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;

use heddle_bpf::{LoadError, MapView, Object, OpenObject, Program, Ring};

/// Writes `count` records of `words` words, each filled with the record's number; every third is thrown away again.
const SOURCE: &str = r#"
typedef unsigned int u32; typedef unsigned long long u64;
#define SEC(name) __attribute__((section(name), used))
#define __uint(name, value) int (*name)[value]
static long (*ringbuf_output)(void *, void *, u64, u64) = (void *)130;
static void *(*ringbuf_reserve)(void *, u64, u64) = (void *)131;
static void (*ringbuf_submit)(void *, u64) = (void *)132;
static void (*ringbuf_discard)(void *, u64) = (void *)133;
struct { __uint(type, 27); __uint(max_entries, 4096); } ring SEC(".maps");
struct { __uint(type, 2); __uint(max_entries, 1); __uint(key_size, 4); __uint(value_size, 64);
         __uint(map_flags, 1024); } words SEC(".maps");
struct { __uint(type, 1); __uint(max_entries, 4); __uint(key_size, 4); __uint(value_size, 8); } hash SEC(".maps");
const volatile u64 factor = 1;
struct context { u64 first, count, lost; };

SEC("syscall") int produce(struct context *context) {
	for (u64 i = 0; i < 1000; i++) {
		u64 record[3], number = context->first + i;
		if (i >= context->count) break;
		if (number % 3 == 2) {
			u64 *slot = ringbuf_reserve(&ring, 24, 0);
			if (slot) ringbuf_discard(slot, 0); else context->lost++;
			continue;
		}
		record[0] = record[1] = number * factor;
		record[2] = ~number;
		/* Lengths that are no multiple of eight, too. */
		if (ringbuf_output(&ring, record, number % 2 ? 24 : 20, 0)) context->lost++;
	}
	return 7;
}

SEC("syscall") int hold(struct context *context) {
	u64 *slot = ringbuf_reserve(&ring, 8, 0);
	if (!slot) return 1;
	*slot = 5;
	ringbuf_submit(slot, 0);
	return 0;
}

u64 switches;
SEC("tp_btf/sched_switch") int notice(u64 *context) { switches++; return 0; }

SEC("syscall") int refused(u64 *context) { u32 key = 0; (void)key; return *(volatile int *)(long)context[0]; }

char license_[] SEC("license") = "GPL";
"#;

fn compiled(source: &str) -> Vec<u8> {
    let clang = std::env::var("HEDDLE_CLANG").unwrap_or_else(|_| "clang".into());
    let mut command = Command::new(clang);
    command.args(["-target", "bpf", "-mcpu=v3", "-g", "-O2", "-c", "-x", "c", "-", "-o", "-"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("clang is installed");
    child.stdin.take().unwrap().write_all(source.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    output.stdout
}

fn open() -> OpenObject {
    let mut object = OpenObject::read("test", &compiled(SOURCE)).expect("an object");
    object.without_program("refused").unwrap();
    object
}

/// The object loaded, or `None` with a word where this process may not load one.
fn loaded(object: OpenObject) -> Option<Object> {
    match object.load() {
        Err(error) if is_forbidden(&error) => {
            eprintln!("skipped: loading programs needs root and BPF ({error})");
            None
        }
        result => Some(result.expect("it loads")),
    }
}

fn is_forbidden(error: &LoadError) -> bool {
    error.error.raw_os_error() == Some(libc_eperm()) && !error.log.contains("R1")
}

const fn libc_eperm() -> i32 {
    1
}

/// Lets the program write; how many were lost, and the number after the last.
fn produce(program: &Program, first: u64, count: u64) -> u64 {
    let mut context = [first, count, 0];
    assert_eq!(program.run(&mut context).unwrap(), 7);
    context[2]
}

#[test]
fn a_ring_gives_every_record_in_order_around_its_end_and_no_discarded_one() {
    let Some(object) = loaded(open()) else { return };
    let ring = Ring::new(object.map("ring").unwrap()).unwrap();
    let program = object.program("produce").unwrap();
    assert!(ring.is_empty());
    assert_eq!(ring.next::<3>(), None);
    for round in 0..200 {
        assert_eq!(produce(&program, round * 50, 50), 0);
        assert_eq!(ring.backlog(), 50 * 32, "records are aligned to eight bytes");
        for number in (round * 50..round * 50 + 50).filter(|number| number % 3 != 2) {
            let last = if number % 2 == 1 { !number } else { !number & 0xffff_ffff };
            assert_eq!(ring.next(), Some([number, number, last]));
        }
        assert_eq!(ring.next::<3>(), None);
        assert!(ring.is_empty());
    }
}

#[test]
fn a_full_ring_refuses_records_and_keeps_those_that_it_has() {
    let Some(object) = loaded(open()) else { return };
    let ring = Ring::new(object.map("ring").unwrap()).unwrap();
    let program = object.program("produce").unwrap();
    let lost = produce(&program, 0, 400);
    assert!((272..400).contains(&lost), "{lost}: the ring has room for 127 records of 32 bytes");
    assert_eq!(ring.next(), Some([0, 0]), "what does not fit into the words asked for is dropped");
    assert_eq!(ring.next(), Some([1, 1, !1, 0, 0]), "and what is not there is zero");
    let mut last = 1;
    while let Some([number]) = ring.next() {
        assert!(number > last, "{number} after {last}");
        last = number;
    }
    assert!(ring.is_empty());
    assert_eq!(produce(&program, 3, 1), 0, "there is room again");
    assert_eq!(ring.next(), Some([3, 3, !3]));
}

#[test]
fn each_record_goes_to_one_of_several_readers() {
    let Some(object) = loaded(open()) else { return };
    let ring = Ring::new(object.map("ring").unwrap()).unwrap();
    let program = object.program("produce").unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    let mut all: Vec<u64> = std::thread::scope(|scope| {
        let read = || {
            let mut seen = Vec::new();
            loop {
                let finished = done.load(Relaxed);
                match ring.next() {
                    Some([a, b]) => {
                        assert_eq!(a, b, "a record is whole");
                        seen.push(a);
                    }
                    None if finished && ring.is_empty() => return seen,
                    None => std::thread::yield_now(),
                }
            }
        };
        let readers: Vec<_> = (0..3).map(|_| scope.spawn(read)).collect();
        let mut next = 0;
        while next < 30_000 {
            // Written again from the start where there was no room, so it is the order that tells nothing here.
            if ring.backlog() < 1024 {
                assert_eq!(produce(&program, next, 60), 0);
                next += 60;
            }
        }
        done.store(true, Relaxed);
        readers.into_iter().flat_map(|reader| reader.join().unwrap()).collect()
    });
    all.sort_unstable();
    assert!(all.iter().copied().eq((0..30_000).filter(|number| number % 3 != 2)));
}

#[test]
fn a_reader_goes_on_after_its_position_was_overwritten() {
    let Some(object) = loaded(open()) else { return };
    let map = object.map("ring").unwrap();
    let ring = Ring::new(object.map("ring").unwrap()).unwrap();
    let program = object.program("produce").unwrap();
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let (null, fd) = (std::ptr::null_mut(), map.as_fd().as_raw_fd());
    // SAFETY: a new mapping at an address that the kernel chooses; the result is checked below.
    let page = unsafe { libc::mmap(null, 4096, access, libc::MAP_SHARED, fd, 0) };
    assert_ne!(page, libc::MAP_FAILED);
    // SAFETY: the page begins with the position, is aligned, and stays mapped until the test's process ends.
    let position = unsafe { &*page.cast::<std::sync::atomic::AtomicU64>() };
    let before: u64 = 8 * 4096;
    while position.load(Relaxed) < before {
        produce(&program, 0, 60);
        while ring.next::<1>().is_some() {}
    }
    let wrong: [fn(u64) -> u64; 4] = [|_| 0, |at| at + 8 * 4096, |at| at + 4, |_| u64::MAX - 7];
    for write in wrong {
        produce(&program, 0, 60);
        position.store(write(position.load(Relaxed)), Relaxed);
        let read = std::iter::from_fn(|| ring.next::<1>()).take(1000).count();
        assert!(read <= 4096 / 8, "{read}");
        assert!(ring.is_empty());
        assert_eq!(produce(&program, 3, 1), 0);
        assert_eq!(ring.next(), Some([3, 3, !3]));
    }
}

#[test]
fn an_object_is_changed_before_it_is_loaded() {
    let mut object = open();
    object.set_entries("ring", 8192).unwrap();
    object.set_data(".rodata", |data| data[..8].copy_from_slice(&10_u64.to_ne_bytes())).unwrap();
    object.without_program("hold").unwrap();
    let absent = |result: io::Result<()>| result.unwrap_err().kind() == io::ErrorKind::NotFound;
    assert!(absent(object.set_entries("rings", 1)));
    assert!(absent(object.without_program("nothing")));
    assert!(absent(object.set_data(".none", |_| ())));
    let Some(object) = loaded(object) else { return };
    let ring = Ring::new(object.map("ring").unwrap()).unwrap();
    assert_eq!(ring.map().spec().entries, 8192);
    produce(&object.program("produce").unwrap(), 4, 1);
    assert_eq!(ring.next(), Some([40, 40]));
    assert!(object.program("hold").is_err() && object.map("holds").is_err());
    assert!(Ring::new(object.map("hash").unwrap()).is_err(), "a hash is no ring");
    assert!(MapView::new(&object.map("words").unwrap()).is_ok());
}

#[test]
fn a_map_is_shared_between_two_objects() {
    let Some(first) = loaded(open()) else { return };
    let mut second = open();
    second.reuse("ring", &first.map("ring").unwrap()).unwrap();
    let second = second.load().unwrap();
    produce(&second.program("produce").unwrap(), 0, 1);
    assert_eq!(Ring::new(first.map("ring").unwrap()).unwrap().next(), Some([0, 0]));
}

#[test]
fn a_tracing_program_runs_while_its_link_lives() {
    let Some(object) = loaded(open()) else { return };
    let link = object.attach("notice").unwrap();
    let data = object.map("test.bss").unwrap();
    let seen = || u64::from_ne_bytes(data.lookup(&[0; 4]).unwrap().unwrap().try_into().unwrap());
    let before = seen();
    while seen() == before {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    drop((link, object));
    // The kernel takes it off in its own time. From then on it sees nothing.
    let is_still = || {
        let last = seen();
        std::thread::sleep(std::time::Duration::from_millis(20));
        seen() == last
    };
    assert!((0..3000).any(|_| is_still()), "it still runs");
}

#[test]
fn a_refusal_says_what_the_verifier_said() {
    let object = OpenObject::read("test", &compiled(SOURCE)).expect("an object");
    let error = object.load().unwrap_err();
    if is_forbidden(&error) {
        return eprintln!("skipped: loading programs needs root and BPF ({error})");
    }
    assert_eq!(error.error.kind(), io::ErrorKind::PermissionDenied, "{error:?}");
    assert!(error.log.contains("invalid mem access"), "{}", error.log);
    assert!(error.to_string().contains("invalid mem access"), "{error}");
    assert!(OpenObject::read("test", b"no object").is_err());
}
