//! Shared event queues: the example server with clients, and a server in tasks of the runtime.

use heddle::RuntimeBuilder;
use heddle::events::{EventOptions, EventQueue, Interest, PollState};
use heddle::io::Pollable;
use heddle_test_support::PATIENCE;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
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

/// Tasks serve a queue, each with a worker, while their CPUs run other tasks.
#[test]
fn tasks_of_the_runtime_serve_a_queue() {
    const ROUNDS: u8 = 50;
    let (queue, served) = (EventQueue::new().unwrap(), Arc::new(connections(8)));
    for (token, (near, _)) in served.iter().enumerate() {
        queue.register(near, Interest::READ, token as u64, EventOptions::default()).unwrap();
    }
    let clients = {
        let (queue, served) = (queue.clone(), Arc::clone(&served));
        std::thread::spawn(move || {
            for round in 0..ROUNDS {
                served.iter().for_each(|(_, far)| (&*far).write_all(&[round]).unwrap());
                for (_, far) in &*served {
                    let mut answer = [0];
                    (&*far).read_exact(&mut answer).unwrap();
                    assert_eq!(answer, [round]);
                }
            }
            queue.close();
        })
    };
    let runtime = RuntimeBuilder::new().workers(2).build().unwrap();
    let events: usize = runtime.run(|| {
        let serve = |_| {
            let (queue, served) = (queue.clone(), Arc::clone(&served));
            heddle::spawn(move || serve(&queue, &served))
        };
        let servers: Vec<_> = (0..3).map(serve).collect();
        servers.into_iter().map(|server| server.join().unwrap()).sum()
    });
    clients.join().unwrap();
    assert!(events >= served.len(), "{events} events");
}

fn connections(n: usize) -> Vec<(UnixStream, UnixStream)> {
    let connect = |_| {
        let (near, far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        far.set_read_timeout(Some(PATIENCE)).unwrap();
        (near, far)
    };
    (0..n).map(connect).collect()
}

/// Echoes until the queue is closed. Returns how many events it had.
fn serve(queue: &EventQueue, served: &[(UnixStream, UnixStream)]) -> usize {
    let mut worker = queue.worker().unwrap();
    let ready = Pollable::new(worker.as_fd().try_clone_to_owned().unwrap()).unwrap();
    let mut events = 0;
    loop {
        let Ok(batch) = worker.wait(Some(Duration::ZERO)) else { return events };
        for event in batch {
            let (near, mut bytes) = (&served[event.token() as usize].0, [0; 8]);
            while let Ok(n @ 1..) = (&*near).read(&mut bytes) {
                (&*near).write_all(&bytes[..n]).unwrap();
            }
            events += 1;
        }
        match worker.prepare_poll() {
            Ok(PollState::Ready) => {}
            Ok(PollState::Idle(None)) => ready.wait_readable().unwrap(),
            Ok(PollState::Idle(Some(time))) => drop(ready.wait_readable_timeout(time)),
            Err(_) => return events,
        }
    }
}
