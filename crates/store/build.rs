//! Finds RocksDB, for the feature `rocksdb` only.

use std::path::{Path, PathBuf};
use std::process::Command;

const LIBRARY: &str = "librocksdb.so";
/// Overrides the directory.
const OVERRIDE: &str = "ROCKSDB_LIB_DIR";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={OVERRIDE}");
    if std::env::var_os("CARGO_FEATURE_ROCKSDB").is_none() {
        return;
    }
    let Some(library) = find() else {
        println!(
            "cargo::error={LIBRARY} was not found. Install Debian's or Ubuntu's package librocksdb-dev \
             (`apt install librocksdb-dev`), or set {OVERRIDE} to the directory that holds it, or build \
             without `--features rocksdb` to have the in-memory store only."
        );
        return;
    };
    if let Some(dir) = library.parent() {
        println!("cargo::rustc-link-search=native={}", dir.display());
    }
    println!("cargo::rustc-link-lib=dylib=rocksdb");
    println!("cargo::rustc-env=HEDDLE_ROCKSDB={}", version(&library));
}

fn find() -> Option<PathBuf> {
    match std::env::var_os(OVERRIDE) {
        Some(dir) => Some(Path::new(&dir).join(LIBRARY)),
        None => asked_of_the_linker().or_else(in_the_usual_places),
    }
    .filter(|library| library.exists())
}

/// The C compiler that links us knows the directories of this distribution.
fn asked_of_the_linker() -> Option<PathBuf> {
    let answer = Command::new("cc").arg(format!("-print-file-name={LIBRARY}")).output().ok()?;
    let path = PathBuf::from(String::from_utf8(answer.stdout).ok()?.trim());
    path.is_absolute().then(|| path.canonicalize().map(|real| sibling(&real)).unwrap_or(path))
}

/// `cc` prints a path full of `..`; only its directory is used.
fn sibling(real: &Path) -> PathBuf {
    real.with_file_name(LIBRARY)
}

fn in_the_usual_places() -> Option<PathBuf> {
    let arch = std::env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let debian = format!("/usr/lib/{arch}-linux-gnu");
    [debian.as_str(), "/usr/lib64", "/usr/lib", "/usr/local/lib"]
        .into_iter()
        .map(|dir| Path::new(dir).join(LIBRARY))
        .find(|library| library.exists())
}

/// `librocksdb.so` is a link to `librocksdb.so.7.8.3`.
fn version(library: &Path) -> String {
    let real = library.canonicalize().unwrap_or_default();
    let name = real.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    match name.strip_prefix("librocksdb.so.") {
        Some(version) => version.to_owned(),
        None => "of unknown version".to_owned(),
    }
}
