//! A page of telemetry: the memory of another process, which may hold anything.
#![no_main]

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use heddle_core::Ns;
use heddle_sys::memory::sealed_file;
use heddle_telemetry::Reader;
use libfuzzer_sys::fuzz_target;

/// Enough for counters and rings whose numbers are not large.
const SIZE: usize = 1 << 16;

fuzz_target!(|input: &[u8]| {
    let file = File::from(sealed_file(c"fuzz", SIZE).expect("memory"));
    file.write_all_at(&input[..input.len().min(SIZE)], 0).expect("written");
    let mut reader = match Reader::open(file.into(), None) {
        Ok(reader) => reader,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    assert!(reader.own_pid() == reader.own_pid() && !reader.lives());
    let counters = reader.counters().into_iter().map(|one| (one.name, one.labels));
    let histograms = reader.histograms().into_iter().map(|one| (one.name, one.labels));
    let rings = reader.rings();
    let names = rings.iter().map(|one| (one.name.clone(), one.labels.clone()));
    let shown = counters.chain(histograms).chain(names).chain([(reader.labels(), String::new())]);
    let marks = (0..9).filter_map(|number| reader.mark_name(number));
    for (name, labels) in shown.chain(marks.map(|name| (name, String::new()))) {
        assert!(name.chars().chain(labels.chars()).all(|c| !c.is_control()));
    }
    for ring in rings {
        let first = reader.events(ring.value);
        assert!(first.events.is_sorted_by_key(|event| event.at));
        let again = reader.events(ring.value);
        assert!(again.events.is_empty() && again.lost == 0, "no thread writes");
    }
    reader.record(Ns::from_ms(1)).expect("memory for the rings");
});
