//! Ctrl-C and SIGTERM: what has arrived is answered, the exit code is 0.

use crate::harness::{Client, Process, systems};

#[test]
fn both_signals_end_the_server_with_0() {
    for system in systems() {
        for signal in ["INT", "TERM"] {
            let server = Process::start(system.name());
            let mut client = Client::connect(server.tcp);
            client.talk("SET a 1\r\n", "+OK\r\n");
            // An idle client and half a request do not hold the server up.
            client.send(b"*2\r\n$3\r\nGE");
            let idle = Client::connect(server.tcp);
            assert_eq!(server.end_by(signal), Some(0), "{} {signal}", system.name());
            drop(idle);
        }
    }
}

/// A server ends with the bench that started it.
#[test]
fn the_end_of_standard_input_ends_the_server() {
    for system in systems() {
        let mut server = Process::start(&format!("{}:", system.name()));
        drop(server.child.stdin.take());
        assert_eq!(server.child.wait().unwrap().code(), Some(0));
    }
}
