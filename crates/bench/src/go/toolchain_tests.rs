use super::*;
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// A stand-in for `heddle` that runs `script`, and empty sources.
fn toolchain(script: &str) -> (TempDir, Toolchain) {
    let folder = tempfile::tempdir().unwrap();
    let (heddle, source) = (folder.path().join("heddle"), folder.path().join("bench"));
    fs::create_dir(&source).unwrap();
    fs::write(source.join("go.mod"), "module none\n").unwrap();
    fs::write(&heddle, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&heddle, fs::Permissions::from_mode(0o755)).unwrap();
    let toolchain = Toolchain::new(heddle, Some(source));
    // Skips the check for a real toolchain.
    toolchain.go.set(None).unwrap();
    (folder, toolchain)
}

#[test]
fn a_refused_toolchain_is_reported_in_the_tools_words() {
    let (_folder, toolchain) = toolchain("echo 'go1.19: no such version is known' >&2; exit 1");
    let why = toolchain.obstacle(&System::all()).unwrap();
    assert_eq!(why, "heddle go check refuses: go1.19: no such version is known");
    assert_eq!(toolchain.obstacle(&[System::STOCK]), None, "the stock runtime needs no tool");
}

#[test]
fn missing_sources_are_reported_with_the_option_to_use() {
    let folder = tempfile::tempdir().unwrap();
    let toolchain = Toolchain::new("/bin/true".into(), Some(folder.path().into()));
    let why = toolchain.obstacle(&[System::STOCK]).unwrap();
    assert!(why.contains("no go.mod") && why.contains("--source"), "{why}");
}

/// Invariant I3.
#[test]
fn a_program_that_does_not_heed_its_settings_is_not_measured() {
    let build = |status| format!("printf '#!/bin/sh\\nexit {status}\\n' >$4; chmod +x $4");
    let (_folder, deaf) = toolchain(&build(0));
    let error = deaf.program("micro", &System::OFF).unwrap_err().to_string();
    assert!(error.contains("does not heed HEDDLE_GO"), "{error}");
    let (_folder, heeding) = toolchain(&build(2));
    let file = heeding.program("micro", &System::OFF).unwrap();
    assert_eq!(heeding.program("micro", &System::OFF).unwrap(), file, "built once");
}

#[test]
fn a_build_that_fails_says_what_the_tool_said() {
    let (_folder, toolchain) = toolchain("echo 'proc.go: anchor found 0 times' >&2; exit 2");
    let error = toolchain.program("micro", &System::OFF).unwrap_err().to_string();
    assert!(
        error.contains("cannot build micro") && error.contains("anchor found 0 times"),
        "{error}"
    );
}

#[test]
fn the_build_folder_is_removed_with_the_toolchain() {
    let (_folder, toolchain) = toolchain("exit 0");
    let folder = toolchain.folder().unwrap().to_owned();
    assert!(folder.is_dir());
    drop(toolchain);
    assert!(!folder.exists());
}

#[test]
fn a_program_gets_its_settings_and_one_processor() {
    let (_folder, toolchain) = toolchain("printf '#!/bin/sh\\nexit 2\\n' >$4; chmod +x $4");
    let system: System = "aspen-50us".parse().unwrap();
    let command = toolchain.run("micro", &system).unwrap();
    let set = |name: &str| {
        let (_, value) = command.get_envs().find(|(key, _)| *key == name).unwrap();
        value.map(|value| value.to_string_lossy().into_owned())
    };
    assert_eq!(set(VARIABLE).unwrap(), "aspen,quantum=50us");
    assert_eq!(set("GOMAXPROCS").unwrap(), "1");
}
