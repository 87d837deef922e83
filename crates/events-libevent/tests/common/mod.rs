//! The library, and programs in C built with it.

#![allow(dead_code, reason = "each test uses what it needs")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Where the library is. For the tests of a package cargo builds no library that Rust cannot link, so they ask for it.
pub fn libraries() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let this = std::env::current_exe().expect("a program");
        let folder = this.parent().and_then(Path::parent).expect("cargo's folder").to_owned();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "-p", "heddle-libevent"]).current_dir(root());
        cargo.env("CARGO_TARGET_DIR", folder.parent().expect("the target folder"));
        if folder.ends_with("release") {
            cargo.arg("--release");
        }
        run(&mut cargo);
        assert!(folder.join("libheddle_event.so").exists(), "nothing in {}", folder.display());
        folder
    })
}

pub fn run(command: &mut Command) -> String {
    let output = command.output().expect("it runs");
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}: {out}{err}", output.status);
    out
}

pub fn gcc(source: &Path, to: &Path, more: &[&str]) {
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1", "-I"]);
    gcc.arg(root().join("include")).arg(source).arg("-o").arg(to).args(more);
    run(&mut gcc);
}

/// The program of `tests/c`, built once for each process of tests.
pub fn program(name: &'static str) -> PathBuf {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    static BUILDS: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let folder = FOLDER.get_or_init(|| tempfile::tempdir().expect("a folder"));
    let program = folder.path().join(name);
    let _one_at_a_time = BUILDS.lock();
    if !program.exists() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/c/{name}.c"));
        let libraries = libraries().display().to_string();
        let rpath = format!("-Wl,-rpath,{libraries}");
        gcc(&source, &program, &["-L", &libraries, &rpath, "-lheddle_event", "-pthread"]);
    }
    program
}
