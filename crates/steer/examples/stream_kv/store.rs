//! The workers' side: reads whole requests from its own socket and answers by their tags.

use std::io;
use std::os::fd::OwnedFd;
use std::thread::sleep;
use std::time::Duration;

use heddle_steer::hook::stream::{Connections, Requests};

use crate::{FRAMING, SCAN};

/// Service time. Simulated by a sleep, so that workers do not contend for the CPUs of a small machine.
const GET_TAKES: Duration = Duration::from_micros(500);
const SCAN_TAKES: Duration = Duration::from_millis(30);

/// A store that knows every key.
pub struct Store;

impl Store {
    pub fn new() -> Self {
        Self
    }

    /// Serves one worker's requests until its stream ends.
    pub fn serve(&self, socket: OwnedFd, connections: &Connections) -> io::Result<()> {
        let mut requests = Requests::new(socket, FRAMING);
        while let Some(request) = requests.receive()? {
            // A hostile client can send any payload that is framed correctly.
            if let Some((kind, number, key)) = parse(request.payload) {
                let value = self.look_up(kind, key);
                // False if the client has gone: no one is left to answer.
                connections.answer(request.tag, &answer(number, &value));
            }
        }
        Ok(())
    }

    fn look_up(&self, kind: u8, key: &[u8]) -> Vec<u8> {
        sleep(if kind == SCAN { SCAN_TAKES } else { GET_TAKES });
        key.iter().rev().copied().collect()
    }
}

fn parse(payload: &[u8]) -> Option<(u8, [u8; 4], &[u8])> {
    let (kind, rest) = payload.split_first()?;
    let (number, key) = rest.split_first_chunk()?;
    Some((*kind, *number, key))
}

/// `[length: 4][number: 4][value]`: answers are sent as they are ready, so each names its request.
fn answer(number: [u8; 4], value: &[u8]) -> Vec<u8> {
    let length = u32::try_from(number.len() + value.len()).expect("short");
    [&length.to_be_bytes()[..], &number, value].concat()
}
