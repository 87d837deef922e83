//! Programs that are linked with the archive instead of being started by `heddle run`.

use heddle_test_support::c::build_library;
use heddle_test_support::{TempDir, run, temp_dir, workspace_root};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The programs of tests/c whose signals, locks and forks meet what is different in an archive: where the library's
/// code and data lie.
const PROGRAMS: [&str; 4] = ["threads", "signals", "futexes", "forks"];

/// Cargo's archive, and a folder for what is made of it.
struct Sandbox {
    built: PathBuf,
    folder: TempDir,
}

impl Sandbox {
    fn new() -> Sandbox {
        let built = build_library("heddle-posix", "libheddle_pthread.a");
        Sandbox { built, folder: temp_dir() }
    }

    /// Makes the archive for programs.
    fn archive(&self) -> PathBuf {
        let archive = self.folder.path().join("libheddle_pthread.a");
        let mut script = Command::new(workspace_root().join("scripts/archive"));
        run(script.arg(self.built.join("libheddle_pthread.a")).arg(&archive));
        archive
    }

    /// Links `tests/c/NAME.c` with `archive`, as docs/run/README.md says.
    fn link(&self, name: &str, archive: &Path) -> Command {
        let program = self.folder.path().join(name);
        let source = workspace_root().join(format!("crates/posix/tests/c/{name}.c"));
        let mut cc = Command::new("cc");
        cc.args(["-O2", "-pthread", "-o"]).args([&program, &source]);
        cc.arg("-Wl,--whole-archive").arg(archive).args(["-Wl,--no-whole-archive", "-lm"]);
        run(&mut cc);
        let mut command = Command::new(&program);
        command.env("HEDDLE_POLICY", "two-queue:quantum=100us");
        command
    }
}

fn passes(command: &mut Command) {
    let Output { status, stdout, stderr } = command.output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(status.success(), "{command:?}: {status}\n{}{}", text(&stdout), text(&stderr));
}

#[test]
fn programs_pass_when_linked_with_the_archive() {
    let sandbox = Sandbox::new();
    let archive = sandbox.archive();
    for name in PROGRAMS {
        passes(&mut sandbox.link(name, &archive));
    }
    // Its threads are tasks: the report, which counts them, is the runtime's.
    let mut reports = sandbox.link("barriers", &archive);
    let output = reports.env("HEDDLE_PTHREAD_REPORT", "1").output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("threads created"), "{said}");
}

#[test]
fn a_preloaded_library_leaves_a_program_with_a_runtime_alone() {
    let sandbox = Sandbox::new();
    let mut program = sandbox.link("threads", &sandbox.archive());
    passes(program.env("LD_PRELOAD", sandbox.built.join("libheddle_pthread.so")));
}

#[test]
fn the_archive_as_cargo_makes_it_is_refused_with_the_remedy() {
    let sandbox = Sandbox::new();
    let raw = sandbox.built.join("libheddle_pthread.a");
    let output = sandbox.link("threads", &raw).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("scripts/archive") && said.lines().count() == 1, "{said}");
}
