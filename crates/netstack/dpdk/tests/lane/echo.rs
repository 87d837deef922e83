//! A lane whose datagrams and streams are echoed by a thread that does nothing else.

use heddle_core::Ns;
use heddle_dpdk::DpdkWire;
use heddle_netns::{FAR4, NEAR_MAC, NEAR4};
use heddle_netstack::control::{Mac, Snapshot as KernelSnapshot, SnapshotBuilder};
use heddle_netstack::lane::{Lane, Snapshot, Token, Woken};
use heddle_netstack::paths::Routes;
use heddle_netstack::tcp::TcpListener;
use heddle_netstack::udp::UdpSocket;
use heddle_tcp::{Config, ConnectionId, ListenerId, Secret, Stack};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

const UDP: Token = Token(0);
const LISTENER: Token = Token(1);
/// The token of the first connection.
const FIRST: u64 = 2;

/// Bytes of a connection that wait to be echoed, at most.
const BUFFER: usize = 4096;

/// A thread that echoes.
pub struct Echo {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Snapshot>,
}

impl Echo {
    /// Starts one over `wire`, at [`NEAR4`]. The kernel is at [`FAR4`] and `kernel_mac`.
    pub fn start(wire: DpdkWire, kernel_mac: [u8; 6], port: u16) -> Echo {
        let stop = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&stop);
        let run = move || {
            let mut server = Server::new(wire, kernel_mac, port);
            while !is_over.load(Ordering::Relaxed) {
                server.turn();
                // Two CPUs, and others want them.
                thread::yield_now();
            }
            server.lane.counters()
        };
        Echo { stop, thread: thread::spawn(run) }
    }

    /// Ends it. Returns what its lane has counted.
    pub fn stop(self) -> Snapshot {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// What the kernel would say of a link with two hosts.
struct Fixed(Arc<KernelSnapshot>);

impl Routes for Fixed {
    fn generation(&self) -> u64 {
        1
    }

    fn snapshot(&self) -> Arc<KernelSnapshot> {
        Arc::clone(&self.0)
    }

    fn resolve(&self, next_hop: IpAddr) {
        panic!("{next_hop} is asked for, which is not on the link");
    }
}

struct Connection {
    id: ConnectionId,
    /// Read and not written yet.
    bytes: Vec<u8>,
}

struct Server {
    lane: Lane<DpdkWire>,
    start: Instant,
    woken: Woken,
    udp: Arc<UdpSocket>,
    listener: ListenerId,
    connections: HashMap<u64, Connection>,
    next: u64,
}

impl Server {
    fn new(wire: DpdkWire, kernel_mac: [u8; 6], port: u16) -> Server {
        let builder = SnapshotBuilder::new(1, Mac(NEAR_MAC)).address(NEAR4.into(), 24);
        let routes = Fixed(builder.neighbour(FAR4.into(), Mac(kernel_mac)).build());
        let stack = Stack::new(Config::default(), Secret::new([7; 64]));
        let lane = Lane::new(0, vec![wire], Arc::new(routes), stack);
        let local = SocketAddr::from((NEAR4, port));
        let udp = Arc::new(UdpSocket::new(local, UDP));
        lane.add_udp(&udp);
        let listener = lane.listen(&Arc::new(TcpListener::new(local, 1, LISTENER)), 16).unwrap();
        let (start, woken, connections) = (Instant::now(), Woken::default(), HashMap::new());
        Server { lane, start, woken, udp, listener, connections, next: FIRST }
    }

    fn now(&self) -> Ns {
        // Not zero, which a clock never shows.
        Ns::from_secs(1) + Ns(self.start.elapsed().as_nanos() as u64)
    }

    fn turn(&mut self) {
        assert!(self.lane.is_ready(), "a driver that cannot tell is always polled");
        let now = self.now();
        self.lane.poll(now, &mut self.woken);
        let mut tokens = Vec::new();
        self.woken.drain(|token, _| tokens.push(token));
        for token in tokens {
            match token {
                UDP => self.answer(),
                LISTENER => self.accept(),
                Token(number) => self.echo(number),
            }
        }
    }

    fn answer(&self) {
        let mut buf = [0; 2048];
        while let Some((length, from)) = self.udp.receive(&mut buf, false) {
            self.lane.send_udp(|| self.now(), &self.udp, &buf[..length], from, false);
        }
    }

    fn accept(&mut self) {
        while let Some(accepted) = self.lane.accept(self.now(), self.listener) {
            let number = self.next;
            self.next += 1;
            self.connections.insert(number, Connection { id: accepted.id, bytes: Vec::new() });
            self.lane.set_token(accepted.id, Some(Token(number)));
            self.echo(number);
        }
    }

    /// Reads and writes until one of both would wait.
    fn echo(&mut self, number: u64) {
        let now = self.now();
        let Some(connection) = self.connections.get_mut(&number) else { return };
        loop {
            if connection.bytes.is_empty() {
                let mut buf = [0; BUFFER];
                match self.lane.read(now, connection.id, &mut buf).result {
                    Ok(count @ 1..) => connection.bytes.extend(&buf[..count]),
                    Err(heddle_tcp::Error::WouldBlock) => return,
                    Ok(0) | Err(_) => break,
                }
            }
            let bytes = [&connection.bytes[..]];
            match self.lane.write(now, connection.id, bytes.into_iter(), false).result {
                Ok(count) => drop(connection.bytes.drain(..count)),
                Err(heddle_tcp::Error::WouldBlock) => return,
                Err(_) => break,
            }
        }
        let _ = self.lane.close(now, connection.id, false);
        self.connections.remove(&number);
    }
}
