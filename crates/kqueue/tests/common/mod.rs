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
        cargo.args(["build", "--quiet", "-p", "heddle-kqueue"]).current_dir(root());
        cargo.env("CARGO_TARGET_DIR", folder.parent().expect("the target folder"));
        if folder.ends_with("release") {
            cargo.arg("--release");
        }
        run(&mut cargo);
        assert!(folder.join("libheddle_kqueue.so").exists(), "no library in {}", folder.display());
        folder
    })
}

pub fn run(command: &mut Command) -> String {
    let output = command.output().expect("it runs");
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    out
}

/// gcc with the folders of the headers.
pub fn gcc() -> Command {
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-g", "-O1", "-pthread"]);
    gcc.arg("-I").arg(root().join("include")).arg("-I").arg(root().join("include/kqueue"));
    gcc
}

pub fn link(source: &Path, to: &Path) {
    let folder = libraries().display();
    let (at, rpath) = (format!("-L{folder}"), format!("-Wl,-rpath,{folder}"));
    run(gcc().arg(source).arg("-o").arg(to).args([&at, &rpath, "-lheddle_kqueue"]));
}
