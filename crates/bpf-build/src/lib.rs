//! Compiles the kernel's programs of a folder. For build scripts: users of what they build need no compiler.

#![forbid(unsafe_code)]

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
    "-Werror",
    "-c",
];

/// Returns the root of the workspace in which the package being built is.
///
/// # Panics
/// Outside of a build script.
#[must_use]
pub fn root() -> PathBuf {
    PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo says where")).join("../..")
}

/// Compiles each `NAME.bpf.c` of `folder` with these further `arguments`, and writes `objects.rs` to the output folder:
/// `head`, and a constant `NAME` with each object. Compiles again if the folder or one of `headers` changes. Paths are
/// below [`root`].
///
/// # Panics
/// If there is no clang (`HEDDLE_CLANG`), or it refuses a program.
pub fn compile(folder: &str, headers: &[&str], arguments: &[String], head: &str) {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo says where"));
    for part in [folder].iter().chain(headers) {
        println!("cargo::rerun-if-changed={}", root().join(part).display());
    }
    println!("cargo::rerun-if-env-changed=HEDDLE_CLANG");
    let mut table = head.to_owned();
    for source in sources(&root().join(folder)) {
        let name = source.file_name().expect("a file").to_string_lossy();
        let stem = name.trim_end_matches(".bpf.c");
        let object = out.join(stem).with_extension("o");
        compile_one(&source, &object, arguments);
        let (constant, path) = (stem.to_uppercase(), object.display().to_string());
        let _ = writeln!(table, "pub(crate) const {constant}: &[u8] = include_bytes!({path:?});");
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

fn compile_one(source: &Path, object: &Path, arguments: &[String]) {
    let clang = env::var("HEDDLE_CLANG").unwrap_or_else(|_| "clang".into());
    let mut command = Command::new(&clang);
    command.args(FLAGS).args(arguments).arg(source).arg("-o").arg(object);
    let status = command.status().unwrap_or_else(|error| {
        panic!(
            "cannot compile the kernel programs: `{clang}` does not run ({error}); scripts/setup installs it"
        )
    });
    assert!(status.success(), "clang failed on {}", source.display());
}
