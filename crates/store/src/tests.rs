use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use heddle_core::Ns;
use proptest::prelude::*;

use super::*;

/// Counts its sections and rejects nested ones.
#[derive(Clone, Default)]
struct Counting(Arc<AtomicUsize>);

thread_local!(static INSIDE: Cell<bool> = const { Cell::new(false) });

impl Section for Counting {
    fn run<R>(&self, work: impl FnOnce() -> R) -> R {
        assert!(!INSIDE.replace(true), "a section inside a section");
        self.0.fetch_add(1, Ordering::Relaxed);
        let result = work();
        INSIDE.set(false);
        result
    }
}

/// Every store of this build, empty; dropping the guard removes the directories.
fn stores() -> Vec<(Box<dyn Store>, Option<tempfile::TempDir>)> {
    #[cfg_attr(not(feature = "rocksdb"), allow(unused_mut))]
    let mut stores: Vec<(Box<dyn Store>, _)> = vec![(Box::new(MemoryStore::new()), None)];
    #[cfg(feature = "rocksdb")]
    {
        let dir = tempfile::tempdir().unwrap();
        stores.push((Box::new(RocksStore::open(dir.path(), false).unwrap()), Some(dir)));
    }
    stores
}

fn value_of(store: &dyn Store, key: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    store.get(key, &mut out).unwrap().then_some(out)
}

#[test]
fn a_scan_is_cut_into_sections() {
    for (store, _dir) in stores() {
        load_dataset(&*store, 200, 8, &mut |_| ()).unwrap();
        let section = Counting::default();
        let guarded = Guarded::new(store, section.clone());
        let seen = guarded.scan(b"", 100, &mut |_, _| true).unwrap();
        assert_eq!(seen, 100);
        // Opening, 32 + 32 + 32 + 4 keys, closing.
        assert_eq!(section.0.load(Ordering::Relaxed), 6);
        assert_eq!(guarded.scan(b"", 0, &mut |_, _| true).unwrap(), 0);
        assert_eq!(guarded.scan(b"", 1000, &mut |_, _| true).unwrap(), 200, "to the end");
    }
}

#[test]
fn a_visitor_can_stop_a_scan() {
    for (store, _dir) in stores() {
        load_dataset(&*store, 200, 8, &mut |_| ()).unwrap();
        let mut left = 40;
        let seen = Guarded::new(store, NoSection).scan(b"", 100, &mut |_, _| {
            left -= 1;
            left > 0
        });
        assert_eq!(seen.unwrap(), 40);
    }
}

#[test]
fn a_scan_survives_the_removal_of_where_it_stands() {
    for (store, _dir) in stores() {
        load_dataset(&*store, 10, 8, &mut |_| ()).unwrap();
        let mut cursor = store.cursor(b"").unwrap();
        assert_eq!(cursor.chunk(3, &mut |_, _| true).unwrap(), 3);
        for id in 2..6 {
            store.delete(&heddle_proto::udp::id_key(id)).unwrap();
        }
        let mut keys = Vec::new();
        while cursor
            .chunk(2, &mut |k, _| {
                keys.push(k.to_vec());
                true
            })
            .unwrap()
            > 0
        {}
        assert!(keys.is_sorted() && keys.last().unwrap() == b"key:000000000009");
    }
}

#[test]
fn calibration_meets_its_target_or_says_what_is_missing() {
    for (store, _dir) in stores() {
        load_dataset(&*store, 20_000, 100, &mut |_| ()).unwrap();
        let guarded = Guarded::new(store, NoSection);
        let calibration = calibrate_scan(&guarded, 20_000, Ns::from_us(50)).unwrap();
        assert!((1..=20_000).contains(&calibration.keys), "{calibration:?}");
        let too_long = calibrate_scan(&guarded, 20_000, Ns::from_secs(60));
        let Err(CalibrationError::TooFewKeys { needed, .. }) = too_long else {
            panic!("{too_long:?}");
        };
        assert!(needed > 20_000);
    }
}

/// Accounted bytes of an in-memory entry in addition to its key and value.
const ENTRY: usize = 192;

#[test]
fn a_store_in_memory_holds_no_more_than_it_may() {
    let most = 3 * (ENTRY + 11);
    let store = MemoryStore::within(most);
    let full = Err(StoreError::Full { most });
    for key in [b"a", b"b", b"c"] {
        store.put(key, &[0; 10]).unwrap();
    }
    assert_eq!(store.put(b"d", b""), full);
    assert_eq!(value_of(&store, b"d"), None);
    // An overwrite needs room only for the growth.
    store.put(b"a", &[1; 10]).unwrap();
    assert_eq!(store.put(b"a", &[2; 11]), full);
    assert_eq!(value_of(&store, b"a"), Some(vec![1; 10]), "what was there stays");
    store.put(b"a", &[3; 9]).unwrap();
    store.put(b"b", &[2; 11]).unwrap();
    assert_eq!(store.put(b"c", &[2; 11]), full);
    assert!(store.delete(b"b").unwrap());
    store.put(b"d", &[0; 10]).unwrap();
    assert_eq!(store.put(b"b", b""), full);
}

/// However operations overlap: once all is deleted, there is as much room as at first.
#[test]
fn no_room_is_lost_or_won_by_writers_that_overlap() {
    let keys: [&[u8]; 3] = [b"a", b"b", b"c"];
    let most = 4 * (ENTRY + 101);
    let store = MemoryStore::within(most);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let store = &store;
            scope.spawn(move || {
                for n in 0..20_000 {
                    let key = keys[(n + thread) % 3];
                    match n % 4 {
                        0 => drop(store.delete(key).unwrap()),
                        // Full at times.
                        size => drop(store.put(key, &vec![0; size * 30])),
                    }
                }
            });
        }
    });
    for key in keys {
        store.delete(key).unwrap();
    }
    store.put(b"x", &vec![0; most - ENTRY - 1]).unwrap();
    assert_eq!(store.put(b"x", &vec![0; most - ENTRY]), Err(StoreError::Full { most }));
}

#[test]
fn loading_reports_progress() {
    let mut reports = Vec::new();
    load_dataset(&MemoryStore::new(), 25_000, 4, &mut |n| reports.push(n)).unwrap();
    assert_eq!(reports, [10_000, 20_000, 25_000]);
}

#[test]
fn a_dataset_is_recognised() {
    for (store, _dir) in stores() {
        let is = |keys, size| is_loaded(&*store, keys, size).unwrap();
        assert!(!is(100, 8), "empty");
        load_dataset(&*store, 100, 8, &mut |_| ()).unwrap();
        assert!(is(100, 8));
        assert!(!is(101, 8) && !is(99, 8) && !is(100, 9));
        store.delete(&heddle_proto::udp::id_key(99)).unwrap();
        assert!(!is(100, 8), "cut short");
    }
}

/// A reader must never miss a key that is being overwritten.
#[test]
fn an_overwrite_is_never_a_miss() {
    for (store, _dir) in stores() {
        store.put(b"k", b"0").unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| (0..20_000u32).for_each(|n| store.put(b"k", &n.to_le_bytes()).unwrap()));
            (0..20_000).for_each(|_| assert!(value_of(&*store, b"k").is_some()));
        });
    }
}

#[derive(Clone, Debug)]
enum Step {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    Get(Vec<u8>),
    Scan(Vec<u8>, usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || prop::collection::vec(0u8..3, 0..4);
    let value = prop::collection::vec(any::<u8>(), 0..20);
    let step = prop_oneof![
        (key(), value).prop_map(|(k, v)| Step::Put(k, v)),
        key().prop_map(Step::Delete),
        key().prop_map(Step::Get),
        (key(), 0usize..80).prop_map(|(k, n)| Step::Scan(k, n)),
    ];
    prop::collection::vec(step, 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Every store behaves as a BTreeMap does.
    #[test]
    fn stores_agree_with_a_map(steps in steps()) {
        for (store, _dir) in stores() {
            let guarded = Guarded::new(store, NoSection);
            let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
            for step in &steps {
                agree(&guarded, &mut model, step)?;
            }
        }
    }
}

fn agree(
    store: &Guarded<NoSection>,
    model: &mut BTreeMap<Vec<u8>, Vec<u8>>,
    step: &Step,
) -> Result<(), TestCaseError> {
    match step {
        Step::Put(k, v) => {
            store.put(k, v).unwrap();
            model.insert(k.clone(), v.clone());
        }
        Step::Delete(k) => {
            prop_assert_eq!(store.delete(k).unwrap(), model.remove(k).is_some());
        }
        Step::Get(k) => {
            prop_assert_eq!(value_of(store.store(), k), model.get(k).cloned());
            prop_assert_eq!(store.exists(k).unwrap(), model.contains_key(k));
        }
        Step::Scan(k, n) => {
            let mut seen = Vec::new();
            let count = store.scan(k, *n, &mut |k, v| {
                seen.push((k.to_vec(), v.to_vec()));
                true
            });
            prop_assert_eq!(count.unwrap(), seen.len());
            let expected: Vec<_> =
                model.range(k.clone()..).take(*n).map(|(k, v)| (k.clone(), v.clone())).collect();
            prop_assert_eq!(seen, expected);
        }
    }
    Ok(())
}

#[test]
fn a_build_without_rocksdb_says_so() {
    let config = StoreConfig::RocksDb { dir: "unused".into(), sync: false };
    if cfg!(not(feature = "rocksdb")) {
        assert_eq!(config.open().err(), Some(StoreError::NotBuilt));
    }
}

#[cfg(feature = "rocksdb")]
mod rocks {
    use super::*;

    #[test]
    fn a_directory_that_cannot_be_written_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, b"").unwrap();
        let error = RocksStore::open(&file.join("db"), false).err().unwrap();
        assert!(matches!(error, StoreError::NotWritable { .. }), "{error}");
        assert!(error.to_string().contains("--dir"), "{error}");
    }

    #[test]
    fn a_directory_in_use_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let _first = RocksStore::open(dir.path(), false).unwrap();
        let error = RocksStore::open(dir.path(), false).err().unwrap();
        assert_eq!(error, StoreError::InUse { dir: dir.path().into() });
    }

    #[test]
    fn a_damaged_directory_is_named() {
        let dir = tempfile::tempdir().unwrap();
        drop(RocksStore::open(dir.path(), false).unwrap());
        std::fs::write(dir.path().join("CURRENT"), b"nonsense\n").unwrap();
        let error = RocksStore::open(dir.path(), false).err().unwrap();
        assert!(matches!(error, StoreError::Open { .. }), "{error}");
    }

    #[test]
    fn writes_are_there_after_reopening() {
        let dir = tempfile::tempdir().unwrap();
        let store = RocksStore::open(dir.path(), true).unwrap();
        store.put(b"k", b"v").unwrap();
        store.sync().unwrap();
        drop(store);
        let store = RocksStore::open(dir.path(), false).unwrap();
        assert_eq!(value_of(&store, b"k").unwrap(), b"v");
        assert!(store.describe().contains("rocksdb 7") || store.describe().contains("rocksdb "));
    }
}
