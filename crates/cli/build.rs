//! Lists the sources of heddle-go (the module `go` of this repository), which the command carries and builds on
//! the user's machine.

use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::{env, fs};

/// The tool's sources, and the package that its users import; without the bench and test data.
const PARTS: [&str; 4] = ["go.mod", "heddle-go", "overlay", "heddle"];

fn main() {
    let root = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).expect("cargo says where");
    let root = root.join("../../go").canonicalize().expect("the folder go of the repository");
    let mut files = Vec::new();
    for part in PARTS {
        println!("cargo::rerun-if-changed={}", root.join(part).display());
        collect(&root.join(part), &mut files);
    }
    files.sort();
    let (mut table, mut hasher) = (String::new(), DefaultHasher::new());
    for file in &files {
        let name = file.strip_prefix(&root).expect("it was found there");
        fs::read(file).expect("it was just listed").hash(&mut hasher);
        name.hash(&mut hasher);
        let _ = writeln!(table, "    ({name:?}, include_bytes!({file:?})),");
    }
    let hash = format!("{:016x}", hasher.finish());
    let text =
        format!("const HASH: &str = {hash:?};\nconst SOURCES: &[(&str, &[u8])] = &[\n{table}];\n");
    let out = env::var_os("OUT_DIR").map(PathBuf::from).expect("cargo says where");
    fs::write(out.join("go_sources.rs"), text).expect("OUT_DIR can be written");
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if name == "testdata" || name.ends_with("_test.go") || name.starts_with('.') {
        return;
    }
    if !path.is_dir() {
        return files.push(path.to_owned());
    }
    let entries = fs::read_dir(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    entries.flatten().for_each(|entry| collect(&entry.path(), files));
}
