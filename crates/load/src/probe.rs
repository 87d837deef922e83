//! Service times on an unloaded server, measured one request at a time.

use super::arrivals::Arrival;
use super::mix::{Mix, Op};
use super::transport::{Answer, Transport};
use heddle_core::{Ns, Rng};
use std::io;
use std::time::{Duration, Instant};

/// IDs of probes, far from those of a run: a late answer to a probe matches no request.
const FIRST_ID: u64 = 1 << 62;
const PROBES: u64 = 21;
/// Time after which a request was lost or silently refused.
const PATIENCE: Duration = Duration::from_secs(2);
/// Attempts at a probe before the server is given up.
const TRIES: u32 = 2;

/// The median service time of each operation in `mix`; `None` if the protocol does not carry it.
///
/// The median and not the mean: on a virtual machine one probe in twenty can hit a stolen CPU.
///
/// # Errors
/// Transport errors, and a server that does not answer or refuses an operation of the mix.
pub fn unloaded(
    transport: &mut dyn Transport,
    mix: &Mix,
    keys: usize,
) -> io::Result<[Option<Ns>; Op::ALL.len()]> {
    let mut medians = [None; Op::ALL.len()];
    for op in mix.ops() {
        medians[op.index()] = service_time(transport, op, keys)?;
    }
    Ok(medians)
}

/// The median service time of `op` over a few keys.
///
/// # Errors
/// Transport errors, and a server that does not answer or refuses `op`.
pub fn service_time(transport: &mut dyn Transport, op: Op, keys: usize) -> io::Result<Option<Ns>> {
    let rng = Rng::new(1);
    let mut times = Vec::new();
    for n in 0..PROBES {
        let id = FIRST_ID + n + PROBES * op.index() as u64;
        let request = Arrival { at: Ns::ZERO, op, key: rng.below(keys) as u64 };
        let answer = ask(transport, id, &request)?;
        if !answer.ok {
            return Err(io::Error::other(format!(
                "the server answers {op} with an error; its dataset may be smaller than {keys} keys \
                 (--keys must be the same for both), or the operation unknown to it"
            )));
        }
        times.extend(answer.service);
    }
    times.sort();
    Ok(times.get(times.len() / 2).copied())
}

/// Datagrams get lost: a probe is repeated before the server counts as dead.
fn ask(transport: &mut dyn Transport, id: u64, request: &Arrival) -> io::Result<Answer> {
    for _ in 1..TRIES {
        transport.send(id, request)?;
        match wait(transport, id, request.op) {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
            done => return done,
        }
    }
    match transport.send(id, request) {
        // The only connection is busy with the first probe: wait for it.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        sent => sent?,
    }
    wait(transport, id, request.op)
}

fn wait(transport: &mut dyn Transport, id: u64, op: Op) -> io::Result<Answer> {
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        match transport.receive()? {
            Some(answer) if answer.id == id => return Ok(answer),
            Some(_) => {}
            None => std::thread::sleep(Duration::from_micros(20)),
        }
    }
    let why = format!("no answer to a {op} within {} s", PATIENCE.as_secs());
    Err(io::Error::new(io::ErrorKind::TimedOut, why))
}
