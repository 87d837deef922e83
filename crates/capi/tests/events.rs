//! Events in C: the calls as libheddle has them. What they mean is tested with libheddle_kqueue, which is the same code.

#[path = "common/build.rs"]
mod build;

use build::{link, root, run};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A server that ends with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_program_in_c_calls_everything_under_libheddle_s_names() {
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
fn the_server_of_the_example_answers_everybody() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("echo");
    link(&root().join("examples/events-echo-c/echo.c"), &program);
    let mut command = Command::new(&program);
    command.args(["0", "4"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut server = Server(command.spawn().expect("started"));
    let mut line = String::new();
    let out = server.0.stdout.take().expect("piped");
    BufReader::new(out).read_line(&mut line).expect("it says where it is");
    let port: u16 = line.trim().rsplit(' ').next().and_then(|p| p.parse().ok()).expect("a port");
    std::thread::scope(|scope| {
        for client in 0..20 {
            scope.spawn(move || echo(port, client));
        }
    });
    // It closes its queue when its input ends, and its threads come back.
    drop(server.0.stdin.take());
    assert!(server.0.wait().expect("ended").success());
}
