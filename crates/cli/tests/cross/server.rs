//! The programs of the test: a server whose requests compute until they are released, and a client in its room.

use std::fmt::Write as _;
use std::io::{self, BufRead as _, Read as _, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{Builder, spawn};

use heddle_bpf::{Map, MapView};
use heddle_steer::client::{Deployment, Steering, policy_of};
use heddle_steer::executor::{Lines, register};
use heddle_steer::hook::Hook;
use rustix::net::sockopt::set_socket_reuseport;
use rustix::net::{AddressFamily, SocketType, bind, socket};

/// The type of a request, where `classify` looks.
const TYPE: usize = 2;
const GET: u8 = 1;
const SCAN: u8 = 3;
/// Bytes of a request: the number at the end.
const LEN: usize = 16;

/// Is what `CROSS_TEST` says. Does nothing if the variable is unset.
pub fn main() {
    let Some(role) = std::env::var_os("CROSS_TEST") else { return };
    let folder = PathBuf::from(std::env::var_os("CROSS_TEST_FOLDER").expect("a folder"));
    if role == "server" {
        serve(&folder);
    } else {
        ask();
    }
    std::process::exit(0);
}

/// Says something to the test, without the harness's lock on the output.
fn say(text: &str) {
    let mut line = String::new();
    writeln!(line, "\n{text}").expect("memory");
    let mut out = std::fs::File::options().write(true).open("/proc/self/fd/1").expect("a pipe");
    out.write_all(line.as_bytes()).expect("the test reads");
}

fn sockets(count: usize) -> Vec<UdpSocket> {
    let mut sockets: Vec<UdpSocket> = Vec::new();
    for _ in 0..count {
        let any = || SocketAddr::from(([127, 0, 0, 1], 0));
        let at = sockets.first().map_or_else(any, |first| first.local_addr().expect("bound"));
        let socket = socket(AddressFamily::INET, SocketType::DGRAM, None).expect("a socket");
        set_socket_reuseport(&socket, true).expect("the option");
        bind(&socket, &at).expect("bound");
        sockets.push(socket.into());
    }
    sockets
}

fn serve(folder: &Path) {
    // A thread that computes above all others because of a fault ends with the test.
    heddle_sys::scheduling::limit_realtime(60_000_000).expect("a limit");
    let sockets = sockets(3);
    let steering = Steering::open(true).expect("root steers");
    let policy = policy_of("classify:spared=1").expect("shipped");
    let mut deployment = Deployment::new(policy, Hook::SocketSelect);
    for socket in &sockets {
        let socket = socket.as_fd().try_clone_to_owned().expect("a descriptor");
        deployment = deployment.executor("an executor", socket);
    }
    let id = steering.attach(deployment).expect("attached").id;
    let open = |name: &str| Map::from_fd(steering.map(id, name).expect("a map").1).expect("a map");
    let lines = Lines::new(&open("hd_lines")).expect("lines");
    let work = Arc::new(MapView::new(&open("work")).expect("mappable"));
    let port = sockets[0].local_addr().expect("bound").port();
    for (k, socket) in sockets.into_iter().enumerate() {
        let (line, work, folder) =
            (lines.executor(k as u32).expect("a line"), Arc::clone(&work), folder.to_owned());
        let thread = Builder::new().name(format!("executor-{k}"));
        let execute = move || {
            register(line);
            let mut request = [0; LEN];
            while let Ok((_, from)) = socket.recv_from(&mut request) {
                let class = if request[TYPE] == SCAN { 2 } else { 1 };
                work.half(k, 0).store(class, Relaxed);
                let id = u64::from_le_bytes(request[8..].try_into().expect("eight bytes"));
                // Computes, for all that a scheduler sees.
                while !folder.join(id.to_string()).exists() {}
                socket.send_to(&request, from).expect("the client is there");
                work.half(k, 0).store(0, Relaxed);
            }
        };
        thread.spawn(execute).expect("a thread");
    }
    say(&format!("ready {port} {id}"));
    let _ = io::stdin().lock().read_to_end(&mut Vec::new());
}

/// Reads the port, then `get ID` and `scan ID`; says `answer ID`.
fn ask() {
    let mut lines = io::stdin().lock().lines().map_while(Result::ok);
    let port: u16 = lines.next().expect("a port").parse().expect("a number");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.connect(("127.0.0.1", port)).expect("connected");
    let receiving = socket.try_clone().expect("a descriptor");
    spawn(move || {
        let mut answer = [0; LEN];
        while receiving.recv(&mut answer).is_ok() {
            let id = u64::from_le_bytes(answer[8..].try_into().expect("eight bytes"));
            say(&format!("answer {id}"));
        }
    });
    for line in lines {
        let (kind, id) = line.split_once(' ').expect("a kind and a number");
        let mut request = [0; LEN];
        request[TYPE] = if kind == "scan" { SCAN } else { GET };
        request[8..].copy_from_slice(&id.parse::<u64>().expect("a number").to_le_bytes());
        socket.send(&request).expect("sent");
    }
}
