//! `heddle record` and `heddle sim run --perfetto` as people use them: files are whole, however the recording ends.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use heddle_core::{CpuId, Event, EventKind, Layer, Ns};
use heddle_telemetry::{Layout, Page};
use heddle_test_support::{Running, until};

fn heddle(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_heddle"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A page of this process with a ring.
fn page() -> Page {
    let rings = [("heddle_runtime_events", "queue=0")];
    let layout = Layout { rings: &rings, ring_events: 1 << 12, marks: 1, ..Layout::default() };
    let page = Page::create(&layout).expect("a page");
    page.name_mark(0, "parse");
    page
}

/// Records a task each time that it is called, if anybody wants it.
fn run_task(page: &Page, task: u32) {
    let event = |kind| Event::task(Ns::ZERO, CpuId(0), task, kind).of(Layer::Runtime);
    page.ring(0).record(|| event(EventKind::Start));
    page.ring(0).record(|| Event { by: 0, arg: 0, ..event(EventKind::Mark) });
    page.ring(0).record(|| event(EventKind::Block));
}

fn contains(file: &Path, what: &str) -> bool {
    let bytes = fs::read(file).unwrap_or_default();
    bytes.windows(what.len()).any(|window| window == what.as_bytes())
}

/// Checks that the file is a row of packets, each whole: how many.
fn packets(file: &Path) -> usize {
    let bytes = fs::read(file).expect("the trace");
    let (mut at, mut count) = (0, 0);
    while at < bytes.len() {
        assert_eq!(bytes[at], 0x0a, "a packet at {at}");
        at += 1;
        let (mut length, mut shift) = (0_usize, 0);
        loop {
            let byte = bytes[at];
            at += 1;
            length |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
        at += length;
        count += 1;
    }
    assert_eq!(at, bytes.len(), "the last packet is whole");
    count
}

#[test]
fn tasks_of_a_runtime_are_recorded_until_ctrl_c() {
    let (page, folder) = (page(), tempfile::tempdir().unwrap());
    let file = folder.path().join("t.pftrace");
    let pid = std::process::id().to_string();
    let arguments = [
        "record",
        "--no-kernel",
        "--json",
        "-p",
        &pid,
        "--for",
        "600s",
        "-o",
        file.to_str().unwrap(),
    ];
    let mut command = heddle(&arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut recording = Running::start(&mut command);
    // A process does not record before it is asked to.
    until("the recording is on", || page.ring(0).is_on());
    (0..500).for_each(|task| run_task(&page, task));
    // The last events are read at the next look; more of them make no difference.
    until("events are written", || {
        run_task(&page, 1);
        std::thread::sleep(std::time::Duration::from_millis(60));
        page.ring(0).is_on()
    });
    recording.signal(rustix::process::Signal::INT);
    assert_eq!(recording.exit_code(), 130, "cut short");
    let mut said = String::new();
    let stdout = recording.child().stdout.take().expect("a pipe");
    std::io::Read::read_to_string(&mut { stdout }, &mut said).unwrap();
    let report: serde_json::Value =
        serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said}"));
    assert_eq!((&report["kernel"], &report["runtimes"]), (&false.into(), &1.into()), "{report}");
    let (events, lost) = (report["events"].as_u64().unwrap(), report["lost"].as_u64().unwrap());
    assert!(events + lost >= 1_000, "{report}");
    assert_eq!(report["bytes"], fs::metadata(&file).unwrap().len());
    assert!(packets(&file) as u64 >= events, "{report}");
    assert!(
        contains(&file, "worker 0") && contains(&file, "task 1: marks") && contains(&file, "parse")
    );
}

#[test]
fn what_cannot_be_recorded_or_written_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let there = folder.path().join("there.pftrace");
    fs::write(&there, "mine").unwrap();
    let there = there.to_str().unwrap();
    let run = |arguments: &[&str]| -> Output {
        heddle(&[&["record", "--no-kernel"], arguments].concat()).output().unwrap()
    };
    let _page = page();
    let pid = std::process::id().to_string();
    for (arguments, code, says) in [
        (&["-o", there][..], 2, "--force"),
        (&["-o", "/nonexistent/t.pftrace"], 2, "/nonexistent"),
        (&["-p", "4194999", "-o", "/dev/null"], 2, "no process 4194999"),
        (&["--for", "1ns", "-o", "/dev/null"], 2, "100ms"),
        // It has no page.
        (&["-p", "1", "-o", "/dev/null"], 1, "nothing to record"),
        (&["-p", &pid, "--for", "200ms", "-o", "/dev/full"], 1, "cannot write /dev/full"),
    ] {
        let output = run(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(says) && !said.contains("panicked"), "{arguments:?}: {said}");
    }
    assert_eq!(fs::read_to_string(there).unwrap(), "mine");
}

#[test]
fn the_kernels_switches_are_recorded_as_root() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.pftrace");
    let output = heddle(&["record", "--for", "500ms", "--json", "-o", file.to_str().unwrap()]);
    let output = { output }.output().unwrap();
    let said = text(&output.stderr);
    if said.contains("nothing to record") || said.contains("Without the kernel's switches") {
        println!("skipped: {said}");
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{said}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    // The recorder itself sleeps and runs.
    assert!(report["events"].as_u64().unwrap() > 5, "{report}");
    assert!(packets(&file) > 5 && contains(&file, "Linux") && contains(&file, "heddle"));
}

#[test]
fn a_simulated_run_is_a_trace_of_the_same_steps() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| -> Output {
        let all = [&["sim", "run", "shinjuku", "--requests", "2000"], arguments].concat();
        heddle(&all).current_dir(folder.path()).output().unwrap()
    };
    let output = run(&["--perfetto", "run.pftrace", "--schedule", "steps.csv", "--steps", "300"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let file = folder.path().join("run.pftrace");
    assert!(contains(&file, "CPU 0") && contains(&file, "task 0"));
    let steps = fs::read_to_string(folder.path().join("steps.csv")).unwrap();
    assert_eq!(steps.lines().count(), 301);
    // A packet or two for each step, and those that describe tracks.
    assert!((300..700).contains(&packets(&file)), "{}", packets(&file));
    assert_eq!(run(&["--perfetto", "run.pftrace"]).status.code(), Some(2), "nothing is replaced");
    let full = run(&["--perfetto", "/dev/full"]);
    assert_eq!(full.status.code(), Some(1));
    assert!(text(&full.stderr).contains("cannot write /dev/full"), "{}", text(&full.stderr));
    assert_eq!(run(&["--steps", "9"]).status.code(), Some(2), "steps of what?");
}
