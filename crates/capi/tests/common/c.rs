//! Libraries of this workspace for C, and programs in C built with them. Shared by the tests of every package that has such a library.

use std::path::{Path, PathBuf};
use std::process::Command;

pub fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let is_root = |folder: &&Path| folder.join("Cargo.lock").exists();
    package.ancestors().find(is_root).expect("the workspace").to_owned()
}

/// Builds the library `file` of `package`; the folder where it is. For the tests of a package cargo builds no library that Rust cannot
/// link, so they ask for it.
pub fn built(package: &str, file: &str) -> PathBuf {
    let this = std::env::current_exe().expect("a program");
    let folder = this.parent().and_then(Path::parent).expect("cargo's folder").to_owned();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "-p", package]).current_dir(root());
    cargo.env("CARGO_TARGET_DIR", folder.parent().expect("the target folder"));
    if folder.ends_with("release") {
        cargo.arg("--release");
    }
    run(&mut cargo);
    assert!(folder.join(file).exists(), "no {file} in {}", folder.display());
    folder
}

pub fn run(command: &mut Command) -> String {
    let output = command.output().expect("it runs");
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    out
}

/// gcc with the folders of the headers.
pub fn gcc(headers: &[&str]) -> Command {
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-g", "-O1", "-pthread"]);
    for folder in headers {
        gcc.arg("-I").arg(root().join(folder));
    }
    gcc
}

/// Builds `source` with `gcc` and the library `name` in `folder`.
pub fn link(mut gcc: Command, source: &Path, to: &Path, folder: &Path, name: &str) {
    let folder = folder.display();
    let (at, rpath) = (format!("-L{folder}"), format!("-Wl,-rpath,{folder}"));
    run(gcc.arg(source).arg("-o").arg(to).args([&at, &rpath]).arg(format!("-l{name}")));
}
