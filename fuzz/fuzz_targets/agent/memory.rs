//! Memory files instead of the kernel's maps.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;

use heddle_agent::classes::Lines;
use heddle_bpf::{MapView, Records};
use heddle_core::line;
use rustix::fs::{MemfdFlags, memfd_create};

const PAGE: usize = 4096;
/// Bytes of the ring, as many as a page: the least that a ring of the kernel has.
const RING: usize = PAGE;
const LINES: usize = 16;

fn file(length: usize) -> File {
    let file = File::from(memfd_create("fuzz", MemfdFlags::CLOEXEC).expect("memory"));
    file.set_len(length as u64).expect("memory");
    file
}

/// Lines with these bytes in them, and zeros after those.
pub fn lines(bytes: &[u8]) -> Lines {
    let length = LINES * line::BYTES as usize;
    let file = file(PAGE);
    file.write_all_at(&bytes[..bytes.len().min(length)], 0).expect("written");
    let view = MapView::over(file.as_fd(), line::BYTES as usize, LINES, true);
    Lines::over(view.expect("mapped"))
}

/// Reads a ring whose positions and data are these bytes.
pub fn ring(bytes: &[u8]) {
    let file = file(2 * PAGE + 2 * RING);
    let (positions, data) = bytes.split_at(bytes.len().min(17));
    let word = |at: usize| {
        let eight = positions.get(at..at + 8).and_then(|eight| eight.try_into().ok());
        u64::from_le_bytes(eight.unwrap_or_default())
    };
    // Twice in a row, as the kernel maps it.
    let data = &data[..data.len().min(RING)];
    for (part, at) in [
        (&word(1).to_ne_bytes()[..], 0),
        (&word(9).to_ne_bytes()[..], PAGE),
        (data, 2 * PAGE),
        (data, 2 * PAGE + RING),
    ] {
        file.write_all_at(part, at as u64).expect("written");
    }
    let records = Records::new(file.as_fd(), RING).expect("mapped");
    // A record has its header at least, so that there are not more of them than this.
    let count = std::iter::from_fn(|| records.next::<6>()).take(RING).count();
    let _ = (records.is_empty(), records.backlog());
    assert!(count <= RING / 8, "{count} records in a ring of {RING} bytes");
}
