//! Two stacks; the input decides what happens to each segment between them. Both streams arrive once and in order, and
//! when the input ends and the link is good again, both ends finish.
#![no_main]

use heddle_core::Ns;
use heddle_tcp::{
    Config, Congestion, ConnectionId, Error, Flow, Output, Secret, Shutdown, Stack, checksum,
};
use libfuzzer_sys::fuzz_target;
use std::collections::VecDeque;
use std::net::SocketAddr;

#[derive(Default)]
struct Wire(VecDeque<(Flow, Vec<u8>)>);

impl Output for Wire {
    fn send(&mut self, flow: Flow, length: usize, write: impl FnOnce(&mut [u8])) -> bool {
        let mut bytes = vec![0; length];
        write(&mut bytes);
        self.0.push_back((flow, bytes));
        true
    }
}

/// One end: how much of its stream was written, and of the other's read.
struct End {
    stack: Stack,
    wire: Wire,
    id: Option<ConnectionId>,
    written: usize,
    read: usize,
    is_finished: bool,
}

const TOTAL: usize = 20_000;

fn byte(at: usize) -> u8 {
    (at * 31 % 251) as u8
}

impl End {
    /// `length` is that of the input: no byte of one changes its meaning.
    fn new(key: u8, length: usize) -> End {
        let config = Config {
            congestion: Congestion::ALL[length % 3],
            initial_window: (length / 3 % 10) as u8,
            receive_buffer: 8 << 10,
            send_buffer: 8 << 10,
            user_timeout: Ns::from_secs(1_000_000),
            connect_timeout: Ns::from_secs(1_000_000),
            syn_ack_retries: 255,
            rto_max: Ns::from_secs(1),
            ..Config::default()
        };
        let stack = Stack::new(config, Secret::new([key; 64]));
        End { stack, wire: Wire::default(), id: None, written: 0, read: 0, is_finished: false }
    }

    fn pump(&mut self, now: Ns) {
        let listener = self.stack.listeners().next().map(|listener| listener.id);
        self.id = self.id.or_else(|| self.stack.accept(listener?, now));
        let Some(id) = self.id else { return };
        let mut bytes = [0; 3000];
        while !self.is_finished {
            match self.stack.read(now, id, &mut bytes, &mut self.wire) {
                Ok(0) => self.is_finished = true,
                Ok(count) => {
                    assert!((0..count).all(|at| bytes[at] == byte(self.read + at)));
                    self.read += count;
                }
                Err(Error::WouldBlock | Error::NotConnected) => break,
                Err(error) => panic!("{error}"),
            }
        }
        while self.written < TOTAL {
            let next: Vec<u8> = (self.written..TOTAL.min(self.written + 3000)).map(byte).collect();
            match self.stack.write(now, id, &next, &mut self.wire) {
                Ok(count) => self.written += count,
                Err(Error::WouldBlock | Error::NotConnected) => return,
                Err(error) => panic!("{error}"),
            }
            if self.written == TOTAL {
                self.stack.shutdown(now, id, Shutdown::Write, &mut self.wire).expect("it is open");
            }
        }
    }

    fn receive(&mut self, now: Ns, flow: Flow, bytes: &[u8]) {
        let (source, destination) = (flow.local.ip(), flow.remote.ip());
        if checksum::verify(source, destination, checksum::TCP, bytes) {
            self.stack.receive(now, source, destination, bytes, 1500, &mut self.wire);
        }
    }
}

/// Takes one segment from `from` to `to`, as `decision` says.
fn carry(from: &mut End, to: &mut End, now: Ns, decision: u8) {
    let place = usize::from(decision >> 4) % from.wire.0.len().max(1);
    let Some((flow, mut bytes)) = from.wire.0.remove(place) else { return };
    match decision % 16 {
        0..=2 => {}
        3 => {
            to.receive(now, flow, &bytes);
            to.receive(now, flow, &bytes);
        }
        4 => {
            let at = usize::from(decision) % bytes.len();
            bytes[at] ^= 4;
            to.receive(now, flow, &bytes);
        }
        5 => from.wire.0.push_back((flow, bytes)),
        _ => to.receive(now, flow, &bytes),
    }
}

fuzz_target!(|input: &[u8]| {
    let (mut one, mut other) = (End::new(1, input.len()), End::new(2, input.len()));
    let mut now = Ns::from_secs(100);
    let local: SocketAddr = "192.0.2.1:1000".parse().expect("an address");
    let remote: SocketAddr = "192.0.2.2:80".parse().expect("an address");
    other.stack.listen(remote, 1).expect("a listener");
    one.id =
        Some(one.stack.connect(now, local, remote, 1500, &mut one.wire).expect("a connection"));
    let decisions = input.iter().copied().chain(std::iter::repeat_n(0x0f, 1_000_000));
    for decision in decisions {
        carry(&mut one, &mut other, now, decision);
        carry(&mut other, &mut one, now, decision.rotate_left(3));
        one.pump(now);
        other.pump(now);
        if one.is_finished && other.is_finished {
            break;
        }
        now += Ns::from_us(10);
        if one.wire.0.is_empty() && other.wire.0.is_empty() {
            let deadlines = [one.stack.next_deadline(), other.stack.next_deadline()];
            now = now.max(deadlines.into_iter().flatten().min().expect("something happens"));
        }
        one.stack.advance(now, &mut one.wire);
        other.stack.advance(now, &mut other.wire);
    }
    assert_eq!((one.read, other.read), (TOTAL, TOTAL));
    assert!(one.is_finished && other.is_finished);
});
