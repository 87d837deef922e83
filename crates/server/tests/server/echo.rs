//! The echo of frames.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;

use heddle_server::Protocol;

use crate::harness::{Client, on_each_speaking};

fn frame(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes(), bytes].concat()
}

#[test]
fn frames_come_back_in_order_to_many_clients_at_once() {
    on_each_speaking(&Protocol::Echo, |server| {
        let converse = |seed: u8| {
            let Client(mut stream) = Client::to(server);
            for round in 0..50u8 {
                let sent: Vec<u8> = (0..20u8)
                    .flat_map(|n| frame(&vec![seed ^ round ^ n; usize::from(n) * 50]))
                    .collect();
                stream.write_all(&sent).unwrap();
                let mut got = vec![0; sent.len()];
                stream.read_exact(&mut got).unwrap();
                assert_eq!(got, sent);
            }
        };
        thread::scope(|scope| (0..20).for_each(|seed| drop(scope.spawn(move || converse(seed)))));
    });
}

#[test]
fn a_frame_longer_than_is_allowed_ends_its_connection() {
    on_each_speaking(&Protocol::Echo, |server| {
        let mut client = Client::to(server);
        client.send(&frame(b"one"));
        client.send(&u32::MAX.to_be_bytes());
        client.send(&[0; 100_000]);
        assert_eq!(client.rest().as_bytes(), frame(b"one"));
    });
}

/// A client that writes without reading gets all of it once it reads, and others meanwhile are served.
#[test]
fn much_unread_output_waits() {
    on_each_speaking(&Protocol::Echo, |server| {
        const FRAMES: usize = 300;
        let sent = frame(&[7; 100_000]);
        let Client(stream) = Client::to(server);
        let writer = stream.try_clone().unwrap();
        let whole = sent.clone();
        let writing = thread::spawn(move || {
            let mut writer: &TcpStream = &writer;
            (0..FRAMES).for_each(|_| writer.write_all(&whole).unwrap());
        });
        for _ in 0..100 {
            let mut other = Client::to(server);
            other.send(&frame(b"hi"));
            let mut got = [0; 6];
            other.0.read_exact(&mut got).unwrap();
            assert_eq!(got, *frame(b"hi"));
        }
        let mut got = vec![0; sent.len()];
        for _ in 0..FRAMES {
            (&stream).read_exact(&mut got).unwrap();
            assert!(got == sent);
        }
        writing.join().unwrap();
    });
}
