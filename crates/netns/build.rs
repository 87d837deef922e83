//! Compiles the kernel's programs that make faults (`bpf/faults`), so that users need no compiler.

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

/// The third instruction set is the oldest with an atomic fetch-and-add.
const FLAGS: &[&str] = &[
    "-O2",
    "-g",
    "--target=bpf",
    "-mcpu=v3",
    "-std=gnu11",
    "-ffreestanding",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-c",
];

fn main() {
    let root =
        PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo says where")).join("../..");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo says where"));
    let source = root.join("bpf/faults/faults.bpf.c");
    println!("cargo::rerun-if-changed={}", source.display());
    println!("cargo::rerun-if-changed={}", root.join("bpf/sched/include/bpf.h").display());
    println!("cargo::rerun-if-env-changed=HEDDLE_CLANG");

    let object = out.join("faults.o");
    let clang = env::var("HEDDLE_CLANG").unwrap_or_else(|_| "clang".into());
    let mut command = Command::new(&clang);
    let status = command.args(FLAGS).arg(&source).arg("-o").arg(&object).status().unwrap_or_else(|error| {
        panic!(
            "cannot compile the kernel programs: `{clang}` does not run ({error}); scripts/setup installs it"
        )
    });
    assert!(status.success(), "clang failed on {}", source.display());
    let path = object.display().to_string();
    let constant = format!("pub(crate) const FAULTS: &[u8] = include_bytes!({path:?});\n");
    fs::write(out.join("objects.rs"), constant).expect("OUT_DIR can be written");
}
