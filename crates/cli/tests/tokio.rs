//! `heddle cargo --tokio` through the built command, on projects that need no network.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use heddle_test_support::temp_dir;

fn heddle(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_heddle"));
    command.args(arguments).current_dir(folder).stdin(Stdio::null());
    command.env("HEDDLE_CACHE_DIR", folder.join("cache"));
    for variable in ["HEDDLE_PROBES", "RUSTC_WRAPPER", "CARGO_TARGET_DIR"] {
        command.env_remove(variable);
    }
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Writes a program whose tokio is the library in `tokio`, of this version, in a folder beside it.
fn project(folder: &Path, version: &str) {
    let write = |name: &str, content: &str| {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    };
    write(
        "Cargo.toml",
        "[package]\nname = \"app\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n\
         [dependencies]\ntokio = { path = \"tokio\" }\n",
    );
    write("src/main.rs", "fn main() {}\n");
    write(
        "tokio/Cargo.toml",
        &format!("[package]\nname = \"tokio\"\nversion = \"{version}\"\nedition = \"2021\"\n"),
    );
    write("tokio/src/lib.rs", "");
}

#[track_caller]
fn refused(output: Output) -> String {
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    message
}

#[test]
fn a_tokio_that_is_not_a_release_is_refused_before_anything_is_compiled() {
    let folder = temp_dir();
    project(folder.path(), "1.54.1");
    let message = refused(
        heddle(folder.path(), &["cargo", "--tokio", "--no-probes", "build"]).output().unwrap(),
    );
    assert!(message.contains("tokio 1.54.1 is the source in"), "{message}");
    assert!(!folder.path().join("target").exists());
}

#[test]
fn a_program_without_tokio_is_refused() {
    let folder = temp_dir();
    project(folder.path(), "1.54.1");
    let manifest = "[package]\nname = \"app\"\nversion = \"0.1.0\"\nedition = \"2024\"\n";
    fs::write(folder.path().join("Cargo.toml"), manifest).unwrap();
    let message = refused(
        heddle(folder.path(), &["cargo", "--tokio", "--no-probes", "build"]).output().unwrap(),
    );
    assert!(message.contains("does not use tokio"), "{message}");
}

#[test]
fn no_probes_is_for_tokio_only() {
    let folder = temp_dir();
    let message =
        refused(heddle(folder.path(), &["cargo", "--no-probes", "build"]).output().unwrap());
    assert!(message.contains("--tokio"), "{message}");
}
