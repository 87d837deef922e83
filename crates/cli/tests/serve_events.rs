//! `heddle kv serve` on an event queue, as a process.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

const HEDDLE: &str = env!("CARGO_BIN_EXE_heddle");

#[test]
fn a_web_server_prints_its_address_and_finally_its_counts() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.txt"), "text").unwrap();
    let mut command = Command::new(HEDDLE);
    command.args(["kv", "serve", "--protocol", "http", "--tcp", "127.0.0.1:0", "--threads", "4"]);
    command.args(["--policy", "hybrid", "--until-stdin-closes", "--root"]).arg(dir.path());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut server = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let rest = line.strip_prefix("ready tcp=").unwrap_or_else(|| panic!("{line}"));
    let (address, what) = rest.split_once(' ').unwrap();
    assert_eq!(what, "protocol=http system=events\n");
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    client.write_all(b"GET /a.txt HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("text"), "{answer}");
    let output = server.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(errors.starts_with("served policy=hybrid threads="), "{errors}");
}

#[test]
fn impossible_servers_are_2_with_the_fix() {
    for (arguments, right) in [
        (&["--protocol", "http"][..], "--root"),
        (&["--protocol", "http", "--root", "/no/such/directory"], "/no/such/directory"),
        (&["--protocol", "echo", "--system", "tokio"], "only events and epoll do"),
        (&["--system", "events", "--policy", "fastest"], "hybrid"),
        (&["--system", "events", "--policy", "two-queue:quantum=1ms"], "quantum=none"),
        (&["--system", "events", "--mechanism", "signal"], "only --system heddle"),
        (&["--system", "epoll", "--policy", "hybrid"], "epoll has no --policy"),
    ] {
        let mut command = Command::new(HEDDLE);
        command.args(["kv", "serve", "--tcp", "127.0.0.1:0", "--udp", "none"]).args(arguments);
        let output = command.stdin(Stdio::null()).output().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {complaint}");
        assert!(complaint.contains(right), "{arguments:?}: {complaint}");
    }
}
