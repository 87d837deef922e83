//! A key-value store whose requests are scheduled one by one, though they come over a few TCP connections: an acceptor,
//! four workers, and eight clients over the loopback, under two policies. See README.md beside this file.
//!
//!     cargo run --release -p heddle-steer --example stream_kv

mod client;
mod store;

use std::error::Error;
use std::net::TcpListener;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use heddle_bpf::count_run_time;
use heddle_steer::hook::stream::{Connections, Framing, StreamScheduler, worker_socket};
use heddle_steer::policy::{Object, pairs, read, set_params, shipped, split_params};

/// `[length of the payload: 4][tag: 8][payload]`; the payload of a request is `[type][number: 4][key]`.
pub(crate) const FRAMING: Framing = Framing::length_prefix(4).with_header(12).with_tag(4);
pub(crate) const GET: u8 = 1;
pub(crate) const SCAN: u8 = 3;

const WORKERS: usize = 4;
const CLIENTS: u32 = 8;
const POLICIES: [&str; 2] = ["round-robin", "sita:type-offset=0,scan=3"];

fn policy(text: &str) -> Result<Object, Box<dyn Error>> {
    let (name, parameters) = split_params(text);
    let mut object = read(shipped(name).ok_or("no such policy")?)?;
    set_params(&mut object, &pairs(parameters)?)?;
    Ok(object)
}

fn main() -> Result<(), Box<dyn Error>> {
    let _counting = count_run_time()?;
    POLICIES.into_iter().try_for_each(run)
}

fn run(name: &str) -> Result<(), Box<dyn Error>> {
    let mut scheduler = StreamScheduler::new(&policy(name)?, FRAMING)?;
    let connections = Arc::new(Connections::new(Duration::from_secs(1))?);
    let (stop, listener) = (AtomicBool::new(false), TcpListener::bind("[::1]:0")?);
    let to = listener.local_addr()?;
    let store = store::Store::new();
    let mut far_ends = Vec::new();
    let mut latencies = client::Latencies::default();
    thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        for _ in 0..WORKERS {
            let (requests, far_end) = worker_socket()?;
            scheduler.add_worker(requests.as_fd())?;
            let (store, connections) = (&store, &connections);
            scope.spawn(move || store.serve(requests, connections));
            far_ends.push(far_end);
        }
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let _ = connections.close_ended(Duration::from_millis(50));
            }
        });
        let clients: Vec<_> =
            (0..CLIENTS).map(|seed| scope.spawn(move || client::run(to, seed))).collect();
        for _ in 0..CLIENTS {
            connections.adopt(&scheduler, listener.accept()?.0)?;
        }
        for client in clients {
            latencies.add(client.join().expect("a client does not panic")?);
        }
        stop.store(true, Ordering::Relaxed);
        // The workers' streams end, and so do they.
        far_ends.clear();
        Ok(())
    })?;
    let (counts, cost) = (scheduler.counts()?, scheduler.cost()?);
    println!("{name}: {latencies}");
    println!("  requests by worker: {:?}", &counts.selected[..WORKERS]);
    println!("  parser {:.0} ns, verdict with policy {:.0} ns", cost.parser_ns, cost.verdict_ns);
    Ok(())
}
