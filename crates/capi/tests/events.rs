//! Events in C: the calls under libheddle's names. Their behaviour is tested with libheddle_kqueue, which
//! exports the same code.

mod common;

use common::link;
use heddle_test_support::{Running, run, workspace_root};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

#[test]
fn a_c_program_makes_all_calls_under_libheddle_names() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("events");
    link(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/events.c"), &program);
    let run = |policy: &str| run(Command::new(&program).env("HEDDLE_KQUEUE_POLICY", policy));
    assert_eq!(run("hybrid:affinity=queue"), "fine\n");
    assert!(run("nonsense").contains("no policy `nonsense`"));
}

fn echo(port: u16, client: usize) {
    let mut connection = TcpStream::connect(("127.0.0.1", port)).expect("connected");
    connection.set_read_timeout(Some(Duration::from_secs(30))).expect("a limit");
    for i in 0..100 {
        let text = format!("client {client} says {i} ").repeat(1 + i);
        connection.write_all(text.as_bytes()).expect("sent");
        let mut answer = vec![0; text.len()];
        connection.read_exact(&mut answer).expect("answered");
        assert_eq!(answer, text.as_bytes());
    }
}

#[test]
fn the_example_server_answers_all_clients() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("echo");
    link(&workspace_root().join("examples/events-echo-c/echo.c"), &program);
    let mut command = Command::new(&program);
    command.args(["0", "4"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut server = Running::start(&mut command);
    let mut line = String::new();
    let out = server.child().stdout.take().expect("piped");
    BufReader::new(out).read_line(&mut line).expect("it says where it is");
    let port: u16 = line.trim().rsplit(' ').next().and_then(|p| p.parse().ok()).expect("a port");
    std::thread::scope(|scope| {
        for client in 0..20 {
            scope.spawn(move || echo(port, client));
        }
    });
    // The server closes its queue when its input ends, and its threads return.
    drop(server.child().stdin.take());
    assert!(server.wait().success());
}
