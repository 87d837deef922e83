use super::*;
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// A stand-in for `heddle` that runs `script`, and sources that are none.
fn workshop(script: &str) -> (TempDir, Workshop) {
    let folder = tempfile::tempdir().unwrap();
    let (heddle, source) = (folder.path().join("heddle"), folder.path().join("bench"));
    fs::create_dir(&source).unwrap();
    fs::write(source.join("go.mod"), "module none\n").unwrap();
    fs::write(&heddle, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&heddle, fs::Permissions::from_mode(0o755)).unwrap();
    let workshop = Workshop::new(heddle, Some(source));
    // Whether this machine has a toolchain is not asked.
    workshop.go.set(None).unwrap();
    (folder, workshop)
}

#[test]
fn a_toolchain_that_the_tool_refuses_is_told_with_its_words() {
    let (_folder, workshop) = workshop("echo 'go1.19: no such version is known' >&2; exit 1");
    let why = workshop.obstacle(&System::all()).unwrap();
    assert_eq!(why, "heddle go check refuses: go1.19: no such version is known");
    assert_eq!(workshop.obstacle(&[System::STOCK]), None, "the stock runtime needs no tool");
}

#[test]
fn missing_sources_are_told_with_what_to_say() {
    let folder = tempfile::tempdir().unwrap();
    let workshop = Workshop::new("/bin/true".into(), Some(folder.path().into()));
    let why = workshop.obstacle(&[System::STOCK]).unwrap();
    assert!(why.contains("no go.mod") && why.contains("--source"), "{why}");
}

/// I3.
#[test]
fn a_program_that_does_not_heed_its_settings_is_not_measured() {
    let build = |status| format!("printf '#!/bin/sh\\nexit {status}\\n' >$4; chmod +x $4");
    let (_folder, deaf) = workshop(&build(0));
    let error = deaf.program("micro", &System::OFF).unwrap_err().to_string();
    assert!(error.contains("does not heed HEDDLE_GO"), "{error}");
    let (_folder, heeding) = workshop(&build(2));
    let file = heeding.program("micro", &System::OFF).unwrap();
    assert_eq!(heeding.program("micro", &System::OFF).unwrap(), file, "built once");
}

#[test]
fn a_build_that_fails_says_what_the_tool_said() {
    let (_folder, workshop) = workshop("echo 'proc.go: anchor found 0 times' >&2; exit 2");
    let error = workshop.program("micro", &System::OFF).unwrap_err().to_string();
    assert!(
        error.contains("cannot build micro") && error.contains("anchor found 0 times"),
        "{error}"
    );
}

#[test]
fn what_is_built_goes_with_the_workshop() {
    let (_folder, workshop) = workshop("exit 0");
    let folder = workshop.folder().unwrap().to_owned();
    assert!(folder.is_dir());
    drop(workshop);
    assert!(!folder.exists());
}

#[test]
fn a_program_gets_its_settings_and_one_processor() {
    let (_folder, workshop) = workshop("printf '#!/bin/sh\\nexit 2\\n' >$4; chmod +x $4");
    let system: System = "aspen-50us".parse().unwrap();
    let command = workshop.run("micro", &system).unwrap();
    let set = |name: &str| {
        let (_, value) = command.get_envs().find(|(key, _)| *key == name).unwrap();
        value.map(|value| value.to_string_lossy().into_owned())
    };
    assert_eq!(set(VARIABLE).unwrap(), "aspen,quantum=50us");
    assert_eq!(set("GOMAXPROCS").unwrap(), "1");
}
