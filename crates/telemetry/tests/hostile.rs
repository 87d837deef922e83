//! A reader is given whatever another program may write: it refuses or reads numbers, and nothing worse.
#![allow(missing_docs)]

use heddle_core::Ns;
use heddle_sys::memory::sealed_file;
use heddle_telemetry::{Layout, Page, Reader};
use proptest::prelude::*;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;

const LAYOUT: Layout<'_> = Layout {
    labels: "layer=test",
    counters: &[("a_total", "b=c"), ("b_total", "")],
    histograms: &[("c_seconds", "")],
    rings: &[("d", "worker=0"), ("d", "worker=1")],
    ring_events: 8,
    marks: 2,
};

fn file_of(bytes: &[u8], len: usize) -> File {
    let file = File::from(sealed_file(c"hostile", len).unwrap());
    file.write_all_at(&bytes[..bytes.len().min(len)], 0).unwrap();
    file
}

/// Returns the bytes of a page in which everything is used.
fn bytes_of_a_page() -> Vec<u8> {
    let page = Page::create(&LAYOUT).unwrap();
    page.counters(0..2).iter().for_each(|counter| counter.add(1));
    page.histogram(0).record(5);
    page.name_mark(1, "parse");
    page.record(Ns::from_secs(3600));
    for ring in [0, 1].map(|at| page.ring(at)) {
        use heddle_core::{CpuId, Event, EventKind};
        ring.record(|| Event::task(Ns::ZERO, CpuId(0), 1, EventKind::Start));
    }
    page.bytes()
}

/// Opens what may be a page, and reads everything.
fn use_page(file: File) -> bool {
    let opened = Reader::open(OwnedFd::from(file), None);
    let mut reader = match opened {
        Ok(reader) => reader,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return false;
        }
    };
    let names = reader.counters().into_iter().map(|counter| counter.name);
    let names = names.chain(reader.histograms().into_iter().map(|one| one.name));
    let marks = [0, 1, 2, u32::MAX].into_iter().filter_map(|number| reader.mark_name(number));
    let names: Vec<_> = names.chain(marks).collect();
    assert!(names.iter().flat_map(|name| name.chars()).all(|c| !c.is_control()));
    assert!(!reader.labels().contains('\x1b') && !reader.lives());
    for ring in reader.rings() {
        let batch = reader.events(ring.value);
        assert!(batch.events.is_sorted_by_key(|event| event.at));
    }
    reader.record(Ns::from_ms(1)).unwrap();
    true
}

#[test]
fn what_is_no_page_is_refused_with_a_sentence() {
    let bytes = bytes_of_a_page();
    assert!(use_page(file_of(&bytes, bytes.len())), "it is a page");
    assert!(!use_page(file_of(&bytes, 4096)), "it is too short");
    assert!(!use_page(file_of(&[], 1 << 20)), "it is empty");
    assert!(!use_page(file_of(&[], 0)), "it has no length");
    let mut other = bytes.clone();
    other[8] = 99;
    let error = Reader::open(file_of(&other, bytes.len()).into(), None).unwrap_err();
    assert_eq!(error.to_string(), "the page is of version 99, and this Heddle reads 1");
    assert!(Reader::open(File::open("/dev/null").unwrap().into(), None).is_err());
    // Its owner could shorten it, which would end a reader.
    let open = rustix::fs::memfd_create("heddle:1", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let error = Reader::open(open, None).unwrap_err();
    assert_eq!(error.to_string(), "a page is sealed against shrinking");
}

proptest! {
    #[test]
    fn a_page_with_any_bytes_changed_does_no_harm(
        changes in proptest::collection::vec((0..4096usize, any::<u8>()), 0..12),
        header in proptest::collection::vec((0..64usize, any::<u32>()), 0..4),
    ) {
        let mut bytes = bytes_of_a_page();
        for (at, byte) in changes {
            // Mostly not the magic number, after which nothing is read.
            bytes[16 + at % 2000] = byte;
        }
        for (word, number) in header {
            bytes[word * 4..][..4].copy_from_slice(&(number >> (number % 32)).to_le_bytes());
        }
        let len = bytes.len();
        use_page(file_of(&bytes, len));
    }

    #[test]
    fn any_bytes_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..4096), whole in any::<bool>()) {
        let mut bytes = bytes;
        if whole && bytes.len() > 16 {
            bytes[..8].copy_from_slice(b"HEDDLEPG");
            bytes[8..12].copy_from_slice(&1u32.to_le_bytes());
        }
        use_page(file_of(&bytes, 1 << 16));
    }
}
