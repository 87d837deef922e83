//! Real processes, set and restored. Lowering a nice value takes CAP_SYS_NICE.

use super::journal::Journal;
use super::levels::Levels;
use super::*;
use crate::agent::Control;
use crate::classes::Classes;
use heddle_sys::processes::{family, threads};
use heddle_sys::scheduling::Class as Kernel;
use heddle_test_support::until;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

/// Three processes: a shell, and two more that it starts on command; all end with its input.
struct Program(Child, BufReader<std::process::ChildStdout>);

impl Program {
    fn start() -> Program {
        let script = "echo ready; read _; sh -c 'renice -n 7 $$ >&2; echo made; read _'; :";
        let mut child = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut program = Program(child, out);
        program.read_line("ready");
        program
    }

    fn read_line(&mut self, what: &str) {
        let mut line = String::new();
        self.1.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), what);
    }

    fn make_another(&mut self) {
        use std::io::Write as _;
        self.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        self.read_line("made");
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Returns each process's present attributes.
    fn attributes(&self) -> Vec<Attributes> {
        let of = |process: &Process| scheduling::attributes(process.pid).unwrap();
        family(self.pid()).iter().map(of).collect()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Makes a folder with an enclave; none, with a note, if threads cannot be set.
fn enclave() -> Option<(tempfile::TempDir, Fair)> {
    if let Err(why) = probe() {
        eprintln!("skipped: {why}");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let cpus = heddle_sys::thread::affinity().unwrap();
    let spec = EnclaveSpec::new("test", &cpus[cpus.len() - 1..]);
    let fair = Fair::create(folder.path(), &spec).unwrap();
    Some((folder, fair))
}

/// Runs an agent while `test` does.
fn watched(
    folder: &Path,
    policy: &str,
    rules: &[&str],
    test: impl FnOnce(&dyn Fn() -> FairReport),
) {
    let control = Control::default();
    let status = folder.join("status.json");
    let report = || {
        let text = std::fs::read(folder.join("status.json")).unwrap();
        let report: crate::agent::Report = serde_json::from_slice(&text).unwrap();
        report.fair.unwrap()
    };
    std::thread::scope(|scope| {
        let (sender, attached) = std::sync::mpsc::channel();
        let options = WatchOptions {
            folder: folder.to_owned(),
            policy: policy.into(),
            classes: Classes::new(rules.iter().map(|rule| rule.parse().unwrap()).collect()),
            status,
            enclave: "fair-tests".into(),
            guardian: None,
        };
        let (theirs, notify) = (control.clone(), move || sender.send(()).unwrap());
        let agent = scope.spawn(move || serve(options, &theirs, || {}, notify));
        attached.recv().unwrap();
        let tested = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(&report)));
        control.leave();
        agent.join().unwrap().unwrap();
        tested.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

#[test]
fn threads_are_set_by_class_and_restored_afterwards() {
    let Some((folder, fair)) = enclave() else { return };
    let (lc, mut be) = (Program::start(), Program::start());
    let before = [lc.attributes(), be.attributes()];
    let masks = [lc.pid(), be.pid()].map(|pid| scheduling::mask(pid).unwrap());
    assert_eq!(fair.join(lc.pid()).unwrap(), 1);
    assert_eq!(fair.join(be.pid()).unwrap(), 1);
    let confined = scheduling::mask(lc.pid()).unwrap();
    assert_eq!(confined.iter().map(|word| word.count_ones()).sum::<u32>(), 1);
    let members: Vec<u32> = fair.members().iter().map(|process| process.pid).collect();
    assert_eq!(members, [lc.pid(), be.pid()]);

    let rule = format!("be=pid:{}", be.pid());
    watched(folder.path(), "priority:quantum=1ms", &[&rule], |report| {
        let now = |program: &Program| program.attributes()[0];
        until("both are set", || now(&lc).nice == -15 && now(&be).scheduling.class == Kernel::Idle);
        until("that is reported", || {
            report().threads == [("be".into(), 1), ("lc".into(), 1)].into()
        });
        // A child inherits its parent's level, and changes it before the agent sees it.
        be.make_another();
        until("it is met", || report().threads.values().sum::<usize>() == 3);
    });
    assert!(fair.give_back().unwrap() >= 2);
    assert_eq!(lc.attributes(), before[0]);
    let given = be.attributes();
    assert_eq!(given[0], before[1][0]);
    assert_eq!(given[1].scheduling.class, Kernel::Other, "{given:?}");
    assert_eq!([lc.pid(), be.pid()].map(|pid| scheduling::mask(pid).unwrap()), masks);
    assert_eq!(fair.give_back().unwrap(), 0, "once");
}

#[test]
fn settings_by_other_programs_stay() {
    let Some((folder, fair)) = enclave() else { return };
    let program = Program::start();
    fair.join(program.pid()).unwrap();
    watched(folder.path(), "priority", &[], |report| {
        until("it is set", || program.attributes()[0].nice == -15);
        scheduling::set_nice(program.pid(), -18).unwrap();
        until("it is left alone", || report().threads == [("left".into(), 1)].into());
    });
    fair.give_back().unwrap();
    assert_eq!(program.attributes()[0].nice, -18);
}

#[test]
fn a_thread_that_makes_itself_less_urgent_is_best_effort() {
    let Some((folder, fair)) = enclave() else { return };
    let program = Program::start();
    let before = program.attributes()[0].nice;
    fair.join(program.pid()).unwrap();
    watched(folder.path(), "priority", &[], |_| {
        let now = || program.attributes()[0];
        until("it is set", || now().nice == -15);
        // As `renice -n 10` does.
        scheduling::set_nice(program.pid(), -5).unwrap();
        until("it is best-effort", || now().scheduling.class == Kernel::Idle);
    });
    fair.give_back().unwrap();
    assert_eq!(program.attributes()[0].nice, before + 10);
}

#[test]
fn another_policy_follows_and_both_are_undone() {
    let Some((folder, fair)) = enclave() else { return };
    let program = Program::start();
    let before = program.attributes();
    fair.join(program.pid()).unwrap();
    watched(folder.path(), "priority", &[], |_| {
        until("it is set", || program.attributes()[0].nice == -15);
    });
    watched(folder.path(), "round-robin:quantum=4ms", &[], |_| {
        until("it is set anew", || program.attributes()[0].nice == before[0].nice);
    });
    drop(fair);
    assert_eq!(program.attributes(), before);
    assert!(!folder.path().join("journal").exists());
}

#[test]
fn an_abandoned_enclave_is_undone_from_its_journal() {
    let Some((folder, fair)) = enclave() else { return };
    let program = Program::start();
    let before = program.attributes();
    fair.join(program.pid()).unwrap();
    watched(folder.path(), "priority", &["be=*"], |_| {
        until("it is set", || program.attributes()[0].scheduling.class == Kernel::Idle);
    });
    // As if it had been killed.
    std::mem::forget(fair);
    assert_eq!(Fair::undo(folder.path()).unwrap(), 1);
    assert_eq!(program.attributes(), before);
    assert_eq!(Fair::undo(folder.path()).unwrap(), 0);
}

#[test]
fn real_time_threads_are_left_alone() {
    let Some((folder, fair)) = enclave() else { return };
    let program = Program::start();
    scheduling::set(program.pid(), scheduling::Scheduling::fifo(1)).unwrap();
    let before = program.attributes();
    fair.join(program.pid()).unwrap();
    watched(folder.path(), "priority", &["be=*"], |report| {
        until("it is met", || report().threads == [("left".into(), 1)].into());
    });
    fair.give_back().unwrap();
    assert_eq!(program.attributes(), before);
}

#[test]
fn a_starving_thread_becomes_ordinary() {
    let Some((folder, fair)) = enclave() else { return };
    let spin = || Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    let (mut lc, mut be) = (spin(), spin());
    fair.join(lc.id()).unwrap();
    fair.join(be.id()).unwrap();
    let rule = format!("be=pid:{}", be.id());
    watched(folder.path(), "priority", &[&rule], |report| {
        until("it has starved", || report().be_raised);
        until("it is an ordinary thread", || {
            scheduling::attributes(be.id()).unwrap().scheduling.class == Kernel::Other
        });
        lc.kill().unwrap();
        lc.wait().unwrap();
        until("it has enough", || !report().be_raised);
        until("it is an idle thread", || {
            scheduling::attributes(be.id()).unwrap().scheduling.class == Kernel::Idle
        });
    });
    be.kill().unwrap();
    be.wait().unwrap();
}

#[test]
fn a_missing_process_does_not_join() {
    let Some((_folder, fair)) = enclave() else { return };
    assert_eq!(fair.join(u32::MAX >> 2).unwrap(), 0);
    let mut child = Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    assert_eq!(fair.join(child.id()).unwrap(), 0);
    assert!(threads(child.id()).is_empty());
}

#[test]
fn a_policy_that_cannot_be_expressed_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    Journal::at(folder.path()).create(&[0]).unwrap();
    let options = WatchOptions {
        folder: folder.path().to_owned(),
        policy: "sjf".into(),
        classes: Classes::default(),
        status: folder.path().join("status.json"),
        enclave: "fair-tests".into(),
        guardian: None,
    };
    let why = serve(options, &Control::default(), || {}, || {}).unwrap_err();
    assert!(why.contains("`sjf`"), "{why}");
    assert!(Levels::of("sjf").is_err());
}
