//! The systemd unit starts what `scripts/build` builds.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

fn script(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    fs::write(path, text).expect("written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("executable");
}

/// The arguments that `scripts/build` passes to cargo.
fn asked_of_cargo(root: &Path) -> String {
    let copy = tempfile::tempdir().expect("a folder");
    let at = |path: &str| copy.path().join(path);
    let build = fs::read_to_string(root.join("scripts/build")).expect("the script");
    script(&at("scripts/build"), &build);
    script(&at("scripts/setup"), "#!/bin/sh\n");
    script(&at("scripts/manual"), "#!/bin/sh\n");
    script(&at("bin/cargo"), "#!/bin/sh\necho \"$@\"\n");
    let path = format!("{}:{}", at("bin").display(), std::env::var("PATH").expect("a path"));
    let output = Command::new(at("scripts/build")).env("PATH", path).output().expect("bash");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn scripts_build_builds_what_the_unit_starts() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let unit = fs::read_to_string(root.join("packaging/systemd/heddled.service")).expect("a unit");
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("a command");
    let program = start.split_whitespace().next().and_then(|path| path.rsplit('/').next());
    let asked = asked_of_cargo(&root);
    let packages = asked.split(" -p ").skip(1).filter_map(|rest| rest.split_whitespace().next());
    let packages: Vec<&str> = packages.collect();
    assert!(asked.starts_with("build --release "), "{asked}");
    assert!(packages.contains(&program.expect("a program")), "{start} is not among {packages:?}");
    assert!(packages.contains(&"heddle-cli"), "{packages:?}");
}
