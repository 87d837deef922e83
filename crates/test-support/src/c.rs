//! The workspace's libraries for C, and programs in C built against them.

use crate::{run, workspace_root};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds the library `file` of `package` and returns its folder. Cargo builds no library that Rust cannot link for a
/// package's tests, so they ask for it.
///
/// # Panics
/// If it cannot be built.
pub fn build_library(package: &str, file: &str) -> PathBuf {
    let this = std::env::current_exe().expect("this program has a path");
    let folder =
        this.parent().and_then(Path::parent).expect("it lies in cargo's folder").to_owned();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "-p", package]).current_dir(workspace_root());
    cargo.env("CARGO_TARGET_DIR", folder.parent().expect("the target folder"));
    if folder.ends_with("release") {
        cargo.arg("--release");
    }
    run(&mut cargo);
    assert!(folder.join(file).exists(), "no {file} in {}", folder.display());
    folder
}

/// Returns gcc with strict warnings and these folders of headers, relative to the root of the workspace.
pub fn gcc(headers: &[&str]) -> Command {
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-g", "-O1", "-pthread"]);
    for folder in headers {
        gcc.arg("-I").arg(workspace_root().join(folder));
    }
    gcc
}

/// Builds the program `to` from `source` with `gcc` and the library `name` in `folder`.
///
/// # Panics
/// If it does not compile.
pub fn link(mut gcc: Command, source: &Path, to: &Path, folder: &Path, name: &str) {
    let folder = folder.display();
    let (search, rpath) = (format!("-L{folder}"), format!("-Wl,-rpath,{folder}"));
    run(gcc.arg(source).arg("-o").arg(to).args([&search, &rpath]).arg(format!("-l{name}")));
}
