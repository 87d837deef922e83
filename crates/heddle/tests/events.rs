//! The example server on a shared event queue, with clients.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
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
fn the_echo_server_of_the_example_answers_many_clients() {
    let this = std::env::current_exe().expect("a program");
    let target = this.parent().and_then(|deps| deps.parent()).expect("cargo's folders");
    let mut command = Command::new(target.join("examples/events-echo"));
    command.args(["127.0.0.1:0", "hybrid", "4"]).stdout(Stdio::piped());
    let mut server = Server(
        command
            .spawn()
            .expect("the example, which `cargo test` builds and `cargo test --test` does not"),
    );
    let mut line = String::new();
    let out = server.0.stdout.take().expect("piped");
    BufReader::new(out).read_line(&mut line).expect("it says where it is");
    let address = line.trim_end().strip_prefix("ready ").expect("an address");
    let connect = |_| {
        let client = TcpStream::connect(address).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        client
    };
    let mut clients: Vec<TcpStream> = (0..50).map(connect).collect();
    for round in 0..20 {
        for (i, client) in clients.iter_mut().enumerate() {
            write!(client, "{round:04} of {i:04}").unwrap();
        }
        for (i, client) in clients.iter_mut().enumerate() {
            let mut echo = [0; 12];
            client.read_exact(&mut echo).unwrap();
            assert_eq!(String::from_utf8_lossy(&echo), format!("{round:04} of {i:04}"));
        }
    }
    // The end of a client is seen too.
    for client in &mut clients {
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
    }
}
