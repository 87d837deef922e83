//! Compiles the kernel's programs of the agents (`bpf/sched/*.bpf.c`), so that users need no compiler.

use std::fs;
use std::path::PathBuf;

fn main() {
    let folder = heddle_bpf_build::root().join("bpf/sched");
    let include = heddle_bpf_build::root().join("include");
    let shared = [folder.join("include/layout.h"), include.join("heddle/offers.h")];
    let hash = layout_hash(&shared);
    let arguments = [
        "-Wno-unused-parameter".to_owned(),
        format!("-DHD_LAYOUT_HASH={hash}ULL"),
        format!("-I{}", folder.join("include").display()),
        format!("-I{}", folder.display()),
        format!("-I{}", include.display()),
    ];
    let head = format!("pub(crate) const LAYOUT_HASH: u64 = {hash};\n");
    heddle_bpf_build::compile("bpf/sched", &["include/heddle/offers.h"], &arguments, &head);
}

/// Distinguishes layouts of what programs share (FNV-1a of the files that describe it).
fn layout_hash(files: &[PathBuf]) -> u64 {
    let read =
        |file: &PathBuf| fs::read(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    files.iter().flat_map(read).fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
