//! Loading BPF, against the real kernel. Needs root; says so where it is missing.

use std::io;
use std::os::fd::AsFd as _;
use std::sync::atomic::Ordering::Relaxed;

use heddle_bpf::{Map, MapKind, MapSpec, MapView, Program, ProgramKind, ProgramSpec};

fn spec(kind: MapKind, value_size: u32, entries: u32) -> MapSpec {
    MapSpec { name: "test".into(), kind, key_size: 4, value_size, entries, read_only: false }
}

/// A map, or `None` with a word where this process may not make one.
fn map(spec: &MapSpec) -> Option<Map> {
    match Map::create(spec) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            eprintln!("skipped: making maps needs root and BPF ({error})");
            None
        }
        result => Some(result.expect("a map")),
    }
}

const fn key(index: u32) -> [u8; 4] {
    index.to_ne_bytes()
}

#[test]
fn an_array_holds_what_is_stored_and_refuses_other_sizes() {
    let Some(map) = map(&spec(MapKind::Array, 8, 3)) else { return };
    assert_eq!(map.lookup(&key(1)).unwrap(), Some(vec![0; 8]));
    map.update(&key(1), &7_u64.to_ne_bytes()).unwrap();
    assert_eq!(map.lookup(&key(1)).unwrap(), Some(7_u64.to_ne_bytes().to_vec()));
    assert_eq!(map.lookup(&key(3)).unwrap(), None);
    assert_eq!(map.keys().unwrap(), [key(0), key(1), key(2)]);
    for (wrong_key, value) in [(&[0_u8; 3][..], &[0_u8; 8][..]), (&key(0), &[0; 7]), (&[], &[0; 8])]
    {
        let error = map.update(wrong_key, value).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
    }
    assert_eq!(map.lookup(&[0; 8]).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    assert_eq!(map.remove(&[0; 5]).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    assert!(map.update(&key(3), &[0; 8]).is_err(), "there is no fourth value");
}

#[test]
fn a_hash_forgets_and_gets_full() {
    let Some(map) = map(&spec(MapKind::Hash, 4, 2)) else { return };
    assert_eq!(map.keys().unwrap(), Vec::<Vec<u8>>::new());
    map.update(&key(10), &key(1)).unwrap();
    map.update(&key(20), &key(2)).unwrap();
    assert!(map.update(&key(30), &key(3)).is_err(), "it is full");
    assert!(map.remove(&key(10)).unwrap());
    assert!(!map.remove(&key(10)).unwrap());
    map.update(&key(30), &key(3)).unwrap();
    let mut keys = map.keys().unwrap();
    keys.sort_unstable_by_key(|k| k.as_slice().try_into().map_or(0, u32::from_ne_bytes));
    assert_eq!(keys, [key(20), key(30)]);
}

#[test]
fn a_map_of_each_cpu_gives_all_of_them() {
    let Some(map) = map(&spec(MapKind::PerCpuArray, 12, 1)) else { return };
    let values = map.lookup(&key(0)).unwrap().expect("a value");
    assert!(!values.is_empty() && values.len() % 16 == 0, "{} bytes", values.len());
    assert!(map.update(&key(0), &[0; 12]).is_err(), "one value is not those of all CPUs");
    map.update(&key(0), &vec![1; values.len()]).unwrap();
}

#[test]
fn a_mapped_array_is_the_same_memory() {
    let Some(map) = map(&spec(MapKind::Array, 64, 100)) else { return };
    let view = MapView::new(&map).expect("mappable");
    assert_eq!(view.len(), 100);
    view.word(99, 7).store(5, Relaxed);
    assert_eq!(map.lookup(&key(99)).unwrap().unwrap()[56..], 5_u64.to_ne_bytes());
    map.update(&key(3), &[1; 64]).unwrap();
    assert_eq!(view.half(3, 15).load(Relaxed), 0x0101_0101);
    for (index, word) in [(100, 0), (0, 8), (99, 8)] {
        let outside = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            view.word(index, word).load(Relaxed)
        }));
        assert!(outside.is_err(), "{index} {word}");
    }
}

#[test]
fn what_is_no_array_cannot_be_mapped_and_what_is_frozen_not_changed() {
    let Some(hash) = map(&spec(MapKind::Hash, 8, 1)) else { return };
    assert!(MapView::new(&hash).is_err());
    let constant = MapSpec { read_only: true, ..spec(MapKind::Array, 8, 1) };
    let Some(constant) = map(&constant) else { return };
    constant.update(&key(0), &[9; 8]).unwrap();
    constant.freeze().unwrap();
    assert!(constant.update(&key(0), &[1; 8]).is_err());
    assert_eq!(constant.lookup(&key(0)).unwrap(), Some(vec![9; 8]));
    let view = MapView::new(&constant).expect("readable");
    assert_eq!(view.word(0, 0).load(Relaxed), 0x0909_0909_0909_0909);
}

#[test]
fn the_kernel_says_what_a_descriptor_is() {
    let Some(map) = map(&spec(MapKind::Hash, 24, 7)) else { return };
    let again = Map::from_fd(map.as_fd().try_clone_to_owned().unwrap()).unwrap();
    assert_eq!(again.spec(), map.spec());
    let file = std::fs::File::open("/dev/null").unwrap();
    assert!(Map::from_fd(file.into()).is_err());
}

const EXIT: u64 = 0x95;

#[test]
fn a_refused_program_says_why_however_long_the_log() {
    let load = |instructions: &[u64]| {
        let kind = ProgramKind::SkReuseport;
        Program::load(&ProgramSpec { name: "test", kind, instructions, functions: &[] })
    };
    match load(&[0xb7 | 1 << 32, EXIT]) {
        Err(error)
            if error.error.kind() == io::ErrorKind::PermissionDenied && error.log.is_empty() =>
        {
            eprintln!("skipped: loading programs needs root and BPF ({error})");
            return;
        }
        result => drop(result.expect("it returns 1")),
    }
    // Reads a register that was never written, behind a loop whose log is some 10 MiB.
    let number = |opcode: u64, to: u64, offset: i16, n: u64| {
        opcode | to << 8 | u64::from(offset.cast_unsigned()) << 16 | n << 32
    };
    let add = number(0x07, 1, 0, 1);
    let round = number(0xa5, 1, -2, 100_000);
    let error = load(&[number(0xb7, 1, 0, 0), add, round, 0xbf | 5 << 12, EXIT]).unwrap_err();
    assert_eq!(error.error.kind(), io::ErrorKind::PermissionDenied, "{error}");
    assert!(
        error.log.contains("R5 !read_ok"),
        "{}",
        &error.log[error.log.len().saturating_sub(300)..]
    );
    assert!(error.to_string().contains("R5 !read_ok"), "{error}");
}
