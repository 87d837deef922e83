//! The example server in Rust, with clients. Needs root and BPF; says so where they are missing.

use std::io::{BufRead as _, BufReader};
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use heddle::steer::engine::Engine;

/// A server that ends with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_server_of_the_example_keeps_short_requests_from_threads_that_scan() {
    if let Err(error) = Engine::direct() {
        return eprintln!("SKIPPED: needs root and a BPF file system: {error}");
    }
    let this = std::env::current_exe().expect("a program");
    let target = this.parent().and_then(|deps| deps.parent()).expect("cargo's folders");
    let mut command = Command::new(target.join("examples/steer-udp"));
    // Scans that do not end while the test runs.
    command.args(["0", "100000"]).env("HEDDLE_DIRECT", "1");
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut server = Server(
        command
            .spawn()
            .expect("the example, which `cargo test` builds and `cargo test --test` does not"),
    );
    let mut line = String::new();
    let out = server.0.stdout.take().expect("piped");
    BufReader::new(out).read_line(&mut line).expect("it says where it is");
    let port: u16 = line.split(' ').nth(1).and_then(|port| port.parse().ok()).expect("a port");
    for address in ["127.0.0.1", "::1"] {
        exercise(address, port);
    }
    // It ends its attachment when its input ends.
    drop(server.0.stdin.take());
    assert!(server.0.wait().expect("ended").success());
}

fn exercise(address: &str, port: u16) {
    let client = || {
        let client = UdpSocket::bind((address, 0)).expect("a client");
        client.set_read_timeout(Some(Duration::from_secs(30))).expect("a limit");
        client.connect((address, port)).expect("an address");
        client
    };
    client().send(b"S").expect("sent");
    // The thread has begun by then; with the hash of flows, a quarter of the clients would wait for it.
    std::thread::sleep(Duration::from_millis(500));
    let mut answer = [0; 2];
    for _ in 0..12 {
        let client = client();
        client.send(b"G").expect("sent");
        assert_eq!(client.recv(&mut answer).expect("answered"), 2);
        assert_eq!(answer[0], b'G');
    }
}
