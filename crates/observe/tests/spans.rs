//! Requests as found at sockets, compared one by one with what the server logged.

mod support;

use std::net::TcpStream;
use std::time::Duration;

use heddle_core::Ns;
use heddle_observe::Options;
use support::{Entry, Log, burn, check, listen, pair, read_request, request, watch, write_answer};

/// Accepts, reads, computes, sleeps, answers, closes.
#[test]
fn a_synchronous_server() {
    const REQUESTS: u64 = 300;
    let (listener, address) = listen();
    let log = Log::default();
    for _ in 0..3 {
        let (listener, log) = (listener.try_clone().unwrap(), log.clone());
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let mut entry = Entry::default();
                assert!(read_request(&stream, &mut entry));
                burn(Duration::from_micros(100));
                std::thread::sleep(Duration::from_millis(1));
                write_answer(&stream, &mut entry);
                log.add(entry);
            }
        });
    }
    let clients = || {
        std::thread::scope(|scope| {
            for client in 0..4 {
                scope.spawn(move || {
                    for id in (0..REQUESTS).filter(|id| id % 4 == client) {
                        request(&TcpStream::connect(address).unwrap(), id);
                    }
                });
            }
        });
    };
    let Some(recording) = watch(&[address.port()], &Options::default(), clients) else { return };
    let entries = log.entries();
    assert_eq!(entries.len() as u64, REQUESTS);
    assert_eq!(recording.spans.len() as u64, REQUESTS, "{:?}", recording.lost);
    assert_eq!((recording.windows.len(), recording.lost.records), (1, 0));
    for (entry, span) in pair(&entries, &recording.spans, |span| span.connection) {
        check(&entry, &span);
        let sum = span.cpu + span.run_queue + span.off.total();
        assert_eq!(sum, span.answered - span.received, "every moment has a cause: {span:#?}");
        assert!(span.off.sleep > Ns::ZERO && span.cpu > Ns::ZERO, "{span:#?}");
        assert!(span.first && !span.overlapped && !span.unconfirmed);
        assert_eq!((span.reads, span.writes, span.bytes_in, span.bytes_out), (1, 1, 8, 8));
    }
}
