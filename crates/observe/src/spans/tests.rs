//! Windows, request by request: one thread is the client and the server.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use super::*;

/// A connection, by both ends.
struct Pair {
    client: TcpStream,
    server: TcpStream,
}

impl Pair {
    fn new() -> Pair {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        Pair { client, server: listener.accept().unwrap().0 }
    }

    fn send(&mut self) {
        self.client.write_all(&[1; 4]).unwrap();
    }

    fn read(&mut self) {
        self.server.read_exact(&mut [0; 4]).unwrap();
    }

    fn answer(&mut self) {
        self.server.write_all(&[2; 4]).unwrap();
        self.client.read_exact(&mut [0; 4]).unwrap();
    }

    fn request(&mut self) {
        self.send();
        self.read();
        self.answer();
    }
}

/// Returns the programs, watching the pair's port; `None` if this process may not load them.
fn watching(pair: &Pair) -> Option<Spans> {
    let spans = match Spans::start(1 << 16) {
        Ok(spans) => spans,
        Err(error @ (ObserveError::Denied(_) | ObserveError::Kernel { .. })) => {
            eprintln!("skipped: {error}");
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    spans.watch_port(pair.server.local_addr().unwrap().port(), Protocol::Tcp);
    Some(spans)
}

/// Ends a window. Returns how many requests were reported in it, how many are found at its end, and how many of them
/// have no answer.
fn end(spans: &Spans) -> (usize, usize, u64) {
    spans.switch_off();
    let (mut reported, mut rest) = (Vec::new(), Vec::new());
    spans.drain_ring(&mut reported);
    let unanswered = spans.drain_tables(&mut rest);
    (reported.len(), rest.len(), unanswered)
}

#[test]
fn a_window_is_whole_and_knows_nothing_of_the_last() {
    let mut pair = Pair::new();
    let Some(spans) = watching(&pair) else { return };
    pair.request();
    spans.switch_on();
    (0..3).for_each(|_| pair.request());
    assert_eq!(end(&spans), (2, 1, 0), "the last is found at the end");
    (0..2).for_each(|_| pair.request());
    spans.switch_on();
    (0..2).for_each(|_| pair.request());
    assert_eq!(end(&spans), (1, 1, 0));
    assert_eq!(spans.counts().requests, 5);
}

#[test]
fn what_began_before_a_window_is_left_out_and_what_it_cuts_off_is_counted() {
    let mut pair = Pair::new();
    let Some(spans) = watching(&pair) else { return };
    // Read before, answered in it.
    pair.send();
    pair.read();
    spans.switch_on();
    pair.answer();
    pair.request();
    assert_eq!(end(&spans), (0, 1, 0));
    // Came before, read in it: its arrival is unknown.
    pair.send();
    spans.switch_on();
    pair.read();
    pair.answer();
    pair.request();
    assert_eq!((end(&spans), spans.counts().unknown), ((0, 1, 0), 1));
    // Read in it, answered later.
    spans.switch_on();
    pair.request();
    pair.send();
    pair.read();
    assert_eq!(end(&spans), (1, 0, 1));
}

#[test]
fn a_connection_that_closes_reports_its_last_request() {
    let mut pair = Pair::new();
    let Some(spans) = watching(&pair) else { return };
    spans.switch_on();
    pair.request();
    drop(pair);
    assert_eq!(end(&spans), (1, 0, 0));
    assert_eq!(spans.counts(), SpanCounts { requests: 1, ..SpanCounts::default() });
}

#[test]
fn only_processes_that_are_named_count_once_one_is() {
    let mut pair = Pair::new();
    let Some(spans) = watching(&pair) else { return };
    spans.restrict_to(std::process::id() + 1).unwrap();
    spans.switch_on();
    pair.request();
    assert_eq!(end(&spans), (0, 0, 0));
    spans.restrict_to(std::process::id()).unwrap();
    spans.switch_on();
    pair.request();
    assert_eq!(end(&spans), (0, 1, 0));
}
