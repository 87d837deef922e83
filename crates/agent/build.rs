//! Compiles the kernel's programs of the agents (`bpf/sched/*.bpf.c`), so that users need no compiler.

use std::fs;
use std::path::Path;

fn main() {
    let folder = heddle_bpf_build::root().join("bpf/sched");
    let hash = layout_hash(&folder.join("include/layout.h"));
    let arguments = [
        "-Wno-unused-parameter".to_owned(),
        format!("-DHD_LAYOUT_HASH={hash}ULL"),
        format!("-I{}", folder.join("include").display()),
        format!("-I{}", folder.display()),
    ];
    let head = format!("pub(crate) const LAYOUT_HASH: u64 = {hash};\n");
    heddle_bpf_build::compile("bpf/sched", &[], &arguments, &head);
}

/// Distinguishes layouts of the shared memory (FNV-1a of the file that describes it).
fn layout_hash(file: &Path) -> u64 {
    let text = fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    text.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
