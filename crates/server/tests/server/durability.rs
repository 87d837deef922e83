//! A write that was acknowledged survives `kill -9`.

use crate::harness::{Client, Process, systems, temp_dir};

#[test]
fn acknowledged_writes_survive_kill_9() {
    const KEYS: u32 = 5000;
    for system in systems() {
        let dir = temp_dir();
        let role = format!("{}:{}", system.name(), dir.path().display());
        let server = Process::start(&role);
        let mut client = Client::connect(server.tcp);
        (0..KEYS).for_each(|n| client.talk(&format!("SET key:{n} value:{n}\r\n"), "+OK\r\n"));
        assert_eq!(server.end_by("KILL"), None, "killed by the signal");
        let server = Process::start(&role);
        let mut client = Client::connect(server.tcp);
        for n in 0..KEYS {
            let value = format!("value:{n}");
            client.talk(&format!("GET key:{n}\r\n"), &format!("${}\r\n{value}\r\n", value.len()));
        }
        assert_eq!(server.end_by("TERM"), Some(0));
    }
}
