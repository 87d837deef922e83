//! The header, the library and C programs that use both. Tests that need root and BPF are skipped with a
//! message without them.

mod common;

use common::{gcc, libraries, link};
use heddle_test_support::{Running, run, workspace_root};
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use heddle_netns::{FAR4, NEAR, NEAR4, Pair};
use heddle_steer::engine::State;

fn is_ours(name: &str) -> bool {
    let of_tools = ["heddle_probe_loaded", "heddle_runtime_marker", "heddle_tasks"];
    (name.starts_with("hd_") || name.starts_with("heddle_")) && !of_tools.contains(&name)
}

/// Returns the names that begin with `hd_` or `heddle_` and are followed by a parenthesis.
fn declared() -> BTreeSet<String> {
    let read = |name: &str| {
        fs::read_to_string(workspace_root().join("include/heddle").join(name)).expect("the header")
    };
    let header = ["client.h", "agent.h", "event.h", "thread.h"].map(read).concat();
    let code: String =
        header.split("/*").map(|part| part.split("*/").last().unwrap_or("")).collect();
    let word = |text: &str| {
        let name: String =
            text.chars().rev().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        name.chars().rev().collect::<String>()
    };
    let names = code.match_indices('(').map(|(at, _)| word(&code[..at]));
    names.filter(|name| is_ours(name)).collect()
}

#[test]
fn the_header_declares_what_the_library_has() {
    let symbols = run(Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(libraries().join("libheddle.so")));
    let last = symbols.lines().filter_map(|line| line.split_whitespace().last());
    let exported: BTreeSet<String> = last.filter(|name| is_ours(name)).map(str::to_owned).collect();
    assert_eq!(declared(), exported);
    assert!(exported.len() > 10);
}

#[test]
fn the_header_is_for_c_and_for_cpp() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = folder.path().join("empty.c");
    let headers = ["heddle.h", "heddle/agent.h", "heddle/event.h", "heddle/thread.h"];
    let includes = headers.map(|header| format!("#include <{header}>\n")).concat();
    fs::write(&source, includes + "int x;\n").expect("written");
    let object = folder.path().join("empty.o");
    run(gcc().args(["-c", "-pedantic"]).arg(&source).arg("-o").arg(&object));
    let mut cpp = Command::new("g++");
    cpp.args(["-Wall", "-Werror", "-x", "c++", "-c", "-I"]).arg(workspace_root().join("include"));
    run(cpp.arg(&source).arg("-o").arg(folder.path().join("empty.o")));
}

/// Whether policies can be deployed here; prints why not.
fn able() -> bool {
    let bpf = State::at("/run/heddle", "/sys/fs/bpf/heddle").prepare();
    if rustix::process::geteuid().is_root() && bpf.is_ok() {
        return true;
    }
    eprintln!("SKIPPED: needs root and a BPF file system");
    false
}

const CHOICE: &str = "#include <heddle.h>
HD_MAP(choice, u32, 1);
static u32 schedule(struct hd_in *in) { u32 *k = hd_at(choice, 0); return k ? *k : HD_PASS; }
";

#[test]
fn a_program_in_c_deploys_and_shares_and_speaks_for_its_executors() {
    if !able() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (program, policy) = (folder.path().join("api"), folder.path().join("choice.c"));
    fs::write(&policy, CHOICE).expect("written");
    link(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/api.c"), &program);
    let said = run(Command::new(&program).arg(&policy).env("HEDDLE_DIRECT", "1"));
    assert_eq!(said, "fine\n");
}

/// Sends a datagram each time until the program prints a line that begins with `expected`.
fn until_line(net: &Pair, port: u16, lines: &Receiver<String>, expected: &str) -> String {
    let client = net.far.run(|| UdpSocket::bind((FAR4, 0))).expect("a client");
    loop {
        match lines.recv_timeout(Duration::from_millis(20)) {
            Ok(line) if line.starts_with(expected) => return line,
            Ok(line) => panic!("{line} instead of {expected}"),
            Err(RecvTimeoutError::Disconnected) => panic!("it ended before {expected}"),
            Err(RecvTimeoutError::Timeout) if port == 0 => {}
            Err(RecvTimeoutError::Timeout) => {
                client.send_to(b"x", (NEAR4, port)).expect("sent");
            }
        }
    }
}

#[test]
fn a_program_in_c_deploys_below_sockets() {
    if !able() {
        return;
    }
    if let Some(why) = heddle_netns::missing_privilege() {
        eprintln!("SKIPPED: {why}");
        return;
    }
    let net = Pair::new(1).expect("a network");
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("packets");
    link(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/packets.c"), &program);
    // Not `ip netns exec`: pins of an attachment are in the same file system as those of the other tests.
    let mut command = Command::new("nsenter");
    command.arg(format!("--net={}", net.near.path().display())).arg(&program);
    command.args([NEAR, &NEAR4.to_string()]).env("HEDDLE_DIRECT", "1").stdout(Stdio::piped());
    let mut running = Running::start(&mut command);
    let out = BufReader::new(running.child().stdout.take().expect("piped"));
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        // The test may have ended.
        out.lines().map_while(Result::ok).all(|line| sender.send(line).is_ok());
    });
    let line = until_line(&net, 0, &lines, "cpus ");
    let port = line.split(' ').nth(1).and_then(|port| port.parse().ok()).expect("a port");
    until_line(&net, port, &lines, "frames");
    until_line(&net, port, &lines, "fine");
    assert_eq!(running.exit_code(), 0);
}

#[test]
fn a_program_in_c_schedules_requests_in_streams() {
    if !able() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("stream");
    link(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/stream.c"), &program);
    assert_eq!(run(&mut Command::new(&program)), "fine\n");
}

#[test]
fn without_heddled_and_root_the_error_names_the_remedy() {
    let folder = tempfile::tempdir().expect("a folder");
    let (source, program) = (folder.path().join("alone.c"), folder.path().join("alone"));
    let text = r#"#include <stdio.h>
#include <heddle.h>
int main(void) { int fd = 0, result = hd_deploy("hash", "socket-select", &fd, 1); printf("%d %s", result, hd_error()); }
"#;
    fs::write(&source, text).expect("written");
    link(&source, &program);
    let said = run(Command::new(&program).env("HEDDLE_SOCKET", folder.path().join("none")));
    assert!(
        said.starts_with("-2 no daemon listens at") && said.contains("start heddled"),
        "{said}"
    );
}

#[test]
fn the_server_of_the_example_keeps_short_requests_from_threads_that_scan() {
    if !able() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("server");
    link(&workspace_root().join("examples/steer-udp-c/server.c"), &program);
    let mut command = Command::new(&program);
    // Scans that last longer than the test.
    command.args(["0", "100000"]).env("HEDDLE_DIRECT", "1");
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut server = Running::start(&mut command);
    let mut line = String::new();
    let out = server.child().stdout.take().expect("piped");
    BufReader::new(out).read_line(&mut line).expect("it says where it is");
    let port: u16 = line.split(' ').nth(1).and_then(|port| port.parse().ok()).expect("a port");
    for address in ["127.0.0.1", "::1"] {
        exercise(address, port);
    }
    // The server ends its attachment when its input ends.
    drop(server.child().stdin.take());
    assert!(server.wait().success());
}

fn exercise(address: &str, port: u16) {
    let client = || {
        let client = UdpSocket::bind((address, 0)).expect("a client");
        client.set_read_timeout(Some(Duration::from_secs(30))).expect("a limit");
        client.connect((address, port)).expect("an address");
        client
    };
    client().send(b"S").expect("sent");
    // The thread has begun the scan by then. With the hash of flows, a quarter of the clients would wait for
    // it.
    let mut answer = [0; 2];
    let clients: Vec<_> = (0..10).map(|_| client()).collect();
    std::thread::sleep(Duration::from_millis(500));
    for client in &clients {
        client.send(b"G").expect("sent");
        assert_eq!(client.recv(&mut answer).expect("answered"), 2);
        assert_eq!(answer[0], b'G');
    }
}
