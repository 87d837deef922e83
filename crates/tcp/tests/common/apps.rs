//! Applications: streams and requests.

use super::link::{Faults, Net, Sent};
use super::{connect, listen};
use heddle_core::Ns;
use heddle_tcp::{ConnectionId, Error, Stack};

/// The byte at `at` of every stream.
pub fn byte(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// Sends `total` bytes one way and checks them.
pub struct Stream {
    pub from: (usize, ConnectionId),
    pub to: (usize, ConnectionId),
    pub total: u64,
    pub sent: u64,
    pub received: u64,
    pub is_finished: bool,
    /// What ended an end before its time.
    pub error: Option<Error>,
}

impl Stream {
    pub fn new(from: (usize, ConnectionId), to: (usize, ConnectionId), total: u64) -> Stream {
        Stream { from, to, total, sent: 0, received: 0, is_finished: false, error: None }
    }

    /// Writes and reads what is possible now.
    pub fn pump(&mut self, net: &mut Net) {
        let from = self.from;
        net.on(from.0, |stack, now, out| self.write(stack, from.1, now, out));
        self.take(net);
    }

    /// Reads what has arrived.
    pub fn take(&mut self, net: &mut Net) {
        let to = self.to;
        net.on(to.0, |stack, now, out| self.read(stack, to.1, now, out));
    }

    /// Writes `count` bytes, for which there is room.
    pub fn put(&mut self, net: &mut Net, count: u64) {
        let (from, bytes) =
            (self.from, (self.sent..self.sent + count).map(byte).collect::<Vec<_>>());
        let written = net.on(from.0, |stack, now, out| stack.write(now, from.1, &bytes, out));
        assert_eq!(written, Ok(bytes.len()));
        self.sent += count;
    }

    fn write(&mut self, stack: &mut Stack, id: ConnectionId, now: Ns, out: &mut Sent) {
        while self.sent < self.total {
            let count = (self.total - self.sent).min(16 << 10).min(stack.writable(id) as u64);
            let bytes: Vec<u8> = (self.sent..self.sent + count.max(1)).map(byte).collect();
            match stack.write(now, id, &bytes, out) {
                Ok(count) => self.sent += count as u64,
                Err(Error::WouldBlock) => return,
                Err(error) => {
                    self.error = self.error.or(Some(error));
                    return;
                }
            }
            if self.sent == self.total {
                let _ = stack.shutdown(now, id, heddle_tcp::Shutdown::Write, out);
            }
        }
    }

    fn read(&mut self, stack: &mut Stack, id: ConnectionId, now: Ns, out: &mut Sent) {
        let mut bytes = [0; 16 << 10];
        while !self.is_finished {
            match stack.read(now, id, &mut bytes, out) {
                Ok(0) => self.is_finished = true,
                Ok(count) => {
                    for (at, &found) in bytes[..count].iter().enumerate() {
                        assert_eq!(
                            found,
                            byte(self.received + at as u64),
                            "byte {}",
                            self.received
                        );
                    }
                    self.received += count as u64;
                }
                Err(Error::WouldBlock) => return,
                Err(error) => {
                    self.error = self.error.or(Some(error));
                    return;
                }
            }
        }
    }

    /// Runs until the end of the stream, or until `limit`. Returns how long it took.
    pub fn run(&mut self, net: &mut Net, limit: Ns) -> Ns {
        let start = net.now;
        self.pump(net);
        while !self.is_finished && self.error.is_none() && net.step(start + limit) {
            self.pump(net);
        }
        net.now - start
    }
}

/// Requests on many connections: the client sends one, the server answers with as many bytes, and so on.
pub struct Requests {
    pub connections: Vec<Request>,
    pub size: usize,
    /// How long each took.
    pub times: Vec<Ns>,
}

/// One connection, and when its request was sent.
pub struct Request {
    pub client: ConnectionId,
    pub server: ConnectionId,
    since: Ns,
    missing: usize,
}

impl Requests {
    pub fn new(connections: Vec<(ConnectionId, ConnectionId)>, size: usize) -> Requests {
        let new = |(client, server)| Request { client, server, since: Ns::ZERO, missing: 0 };
        Requests {
            connections: connections.into_iter().map(new).collect(),
            size,
            times: Vec::new(),
        }
    }

    /// Makes `count` connections of `net`, whose paths lose `per_million` packets from then on.
    pub fn on_connections(net: &mut Net, count: u16, per_million: u32, size: usize) -> Requests {
        let listener = listen(net);
        let clients: Vec<ConnectionId> = (0..count).map(|i| connect(net, 20_000 + i)).collect();
        net.pass(Ns::from_ms(1));
        let mut accept =
            || net.on(1, |stack, now, _| stack.accept(listener, now)).expect("a connection");
        let connections = clients.into_iter().map(|client| (client, accept())).collect();
        let faults = Faults { loss: per_million, ..Faults::default() };
        net.hosts.iter_mut().for_each(|host| host.path.faults = faults);
        Requests::new(connections, size)
    }

    /// Runs until `count` requests were answered, or until `limit`.
    pub fn run(&mut self, net: &mut Net, count: usize, limit: Ns) {
        let (end, size) = (net.now + limit, self.size);
        (0..self.connections.len()).for_each(|index| self.ask(net, index));
        while self.times.len() < count && net.step(end) {
            for index in 0..self.connections.len() {
                let server = self.connections[index].server;
                net.on(1, |stack, now, out| echo(stack, server, now, out, size));
                self.take(net, index);
            }
        }
    }

    fn ask(&mut self, net: &mut Net, index: usize) {
        let request = &mut self.connections[index];
        (request.since, request.missing) = (net.now, self.size);
        let (client, bytes) = (request.client, vec![7; self.size]);
        let written = net.on(0, |stack, now, out| stack.write(now, client, &bytes, out));
        assert_eq!(written, Ok(self.size));
    }

    fn take(&mut self, net: &mut Net, index: usize) {
        let request = &mut self.connections[index];
        let (client, mut bytes) = (request.client, [0; 4096]);
        let read = net.on(0, |stack, now, out| stack.read(now, client, &mut bytes, out));
        let Ok(count) = read else { return };
        request.missing -= count;
        if request.missing == 0 {
            self.times.push(net.now - request.since);
            self.ask(net, index);
        }
    }

    /// The time that `share` of the requests did not exceed.
    pub fn quantile(&self, share: f64) -> Ns {
        let mut times = self.times.clone();
        times.sort();
        times[((times.len() - 1) as f64 * share) as usize]
    }
}

fn echo(stack: &mut Stack, id: ConnectionId, now: Ns, out: &mut Sent, size: usize) {
    if stack.readable(id).is_ok_and(|count| count >= size) {
        let mut bytes = vec![0; size];
        let count = stack.read(now, id, &mut bytes, out).expect("bytes are there");
        assert_eq!(stack.write(now, id, &bytes[..count], out), Ok(count));
    }
}
