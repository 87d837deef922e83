//! Compiles the kernel's programs that observe (`bpf/observe/*.bpf.c`), so that users need no compiler.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
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
    "-Wno-unused-parameter",
    "-Werror",
    "-c",
];

fn main() {
    let root =
        PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo says where")).join("../..");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo says where"));
    let folder = root.join("bpf/observe");
    println!("cargo::rerun-if-changed={}", folder.display());
    println!("cargo::rerun-if-changed={}", root.join("bpf/sched/include/bpf.h").display());
    println!("cargo::rerun-if-env-changed=HEDDLE_CLANG");
    let mut table = String::new();
    for source in sources(&folder) {
        let name = source.file_name().expect("a file").to_string_lossy();
        let stem = name.trim_end_matches(".bpf.c");
        let object = out.join(stem).with_extension("o");
        compile(&source, &object);
        let constant = stem.to_uppercase();
        let _ = writeln!(
            table,
            "pub(crate) const {constant}: &[u8] = include_bytes!({:?});",
            object.display().to_string()
        );
    }
    fs::write(out.join("objects.rs"), table).expect("OUT_DIR can be written");
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries =
        fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.to_string_lossy().ends_with(".bpf.c"));
    files.sort();
    files
}

fn compile(source: &Path, object: &Path) {
    let clang = env::var("HEDDLE_CLANG").unwrap_or_else(|_| "clang".into());
    let mut command = Command::new(&clang);
    let status = command.args(FLAGS).arg(source).arg("-o").arg(object).status().unwrap_or_else(|error| {
        panic!(
            "cannot compile the kernel programs: `{clang}` does not run ({error}); scripts/setup installs it"
        )
    });
    assert!(status.success(), "clang failed on {}", source.display());
}
