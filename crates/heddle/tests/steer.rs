//! The example server in Rust, with clients; tasks of the runtime behind a steering policy. Needs root and BPF; says
//! so where they are missing.

use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use heddle::steer::client::{Deployment, Steering, policy_of};
use heddle::steer::engine::Engine;
use heddle::steer::hook::Hook;
use socket2::{Domain, Socket, Type};

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

/// Syrup, section 5.3, on tasks: steering keeps a GET out of a SCAN's socket, and the policy of the runtime lets the
/// task that serves GETs have the only worker although a SCAN computes. Were either missing, the SCAN would never end:
/// it ends when the GET has been answered.
#[test]
fn a_task_of_a_socket_for_gets_takes_the_worker_from_one_that_scans() {
    if let Err(error) = Engine::direct() {
        return eprintln!("SKIPPED: needs root and a BPF file system: {error}");
    }
    let sockets = [(); 2].map(|()| Socket::new(Domain::IPV4, Type::DGRAM, None).expect("a socket"));
    let mut at: SocketAddr = ([127, 0, 0, 1], 0).into();
    for socket in &sockets {
        socket.set_reuse_port(true).expect("the option");
        socket.bind(&at.into()).expect("bound");
        at = socket.local_addr().expect("bound").as_socket().expect("an address");
    }
    let steering = Steering::open(true).expect("root steers");
    let policy = policy_of("sita:type-offset=0,scan=83").expect("shipped");
    let mut deployment = Deployment::new(policy, Hook::SocketSelect);
    for socket in &sockets {
        let copy = socket.as_fd().try_clone_to_owned().expect("a descriptor");
        deployment = deployment.executor("a task", copy);
    }
    let id = steering.attach(deployment).expect("attached").id;
    let copy = sockets[0].as_fd().try_clone_to_owned().expect("a descriptor");
    let [scans, gets] = sockets.map(|socket| {
        heddle::net::UdpSocket::from_std(UdpSocket::from(socket)).expect("taken over")
    });

    let runtime = heddle::RuntimeBuilder::new()
        .workers(1)
        .policy("priority:quantum=none,check=1ms")
        .build()
        .expect("a runtime");
    let (began, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (begins, is_answered) = (Arc::clone(&began), Arc::clone(&answered));
    let scan = move || {
        let mut request = [0; 1];
        let (_, from) = scans.recv_from(&mut request).expect("received");
        begins.store(true, SeqCst);
        while !is_answered.load(SeqCst) {
            std::hint::spin_loop();
        }
        scans.send_to(&request, from).expect("sent");
    };
    let get = move || {
        let mut request = [0; 1];
        let (_, from) = gets.recv_from(&mut request).expect("received");
        gets.send_to(&request, from).expect("sent");
    };
    let tasks = runtime.run(|| {
        let scan = heddle::Builder::new().class(heddle::Class::BE).spawn(scan).expect("a task");
        [scan, heddle::spawn(get)]
    });
    let client = || {
        let client = UdpSocket::bind("127.0.0.1:0").expect("a client");
        client.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
        client.connect(at).expect("an address");
        client
    };
    let (scanning, getting, mut answer) = (client(), client(), [0; 1]);
    scanning.send(b"S").expect("sent");
    while !began.load(SeqCst) {
        std::thread::sleep(Duration::from_millis(1));
    }
    getting.send(b"G").expect("sent");
    let got = getting.recv(&mut answer);
    answered.store(true, SeqCst);
    assert_eq!((got.expect("answered while the SCAN computes"), answer), (1, *b"G"));
    scanning.recv(&mut answer).expect("answered");
    assert_eq!(answer, *b"S");
    tasks.into_iter().for_each(|task| task.join().expect("it ends"));
    steering.detach(id, vec![copy]).expect("detached");
}
