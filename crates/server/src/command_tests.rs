use std::sync::Arc;

use super::*;
use crate::limits::{Bounds, ClientLimits};
use crate::{Options, Service};
use heddle_store::{MemoryStore, NoSection};

fn service() -> Arc<Service<NoSection>> {
    let bounds = Bounds::new(ClientLimits::default(), 1);
    Service::new(Box::new(MemoryStore::new()), NoSection, &Options::default(), &bounds)
}

fn ask(service: &Service<NoSection>, words: &[&str]) -> String {
    let (mut out, args): (Vec<u8>, Vec<Vec<u8>>) =
        (Vec::new(), words.iter().map(|w| w.as_bytes().to_vec()).collect());
    let _ = service.command(&args, &mut Reservation::new(&service.bounds), &mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn a_conversation() {
    let service = service();
    let cases: [(&[&str], &str); 14] = [
        (&["PING"], "+PONG\r\n"),
        (&["ping", "x"], "$1\r\nx\r\n"),
        (&["GET", "a"], "$-1\r\n"),
        (&["SET", "a", "1"], "+OK\r\n"),
        (&["set", "b", ""], "+OK\r\n"),
        (&["GET", "b"], "$0\r\n\r\n"),
        (&["EXISTS", "a", "b", "c"], ":2\r\n"),
        (&["DBSIZE"], ":2\r\n"),
        (&["RANGE", "", "9"], "*4\r\n$1\r\na\r\n$1\r\n1\r\n$1\r\nb\r\n$0\r\n\r\n"),
        (&["RANGE", "b", "0"], "*0\r\n"),
        (&["DEL", "a", "c"], ":1\r\n"),
        (&["SELECT", "0"], "+OK\r\n"),
        (&["CONFIG", "GET", "save"], "*2\r\n$4\r\nsave\r\n$0\r\n\r\n"),
        (&["COMMAND", "DOCS"], "*0\r\n"),
    ];
    for (words, reply) in cases {
        assert_eq!(ask(&service, words), reply, "{words:?}");
    }
}

#[test]
fn errors_say_what_is_wrong() {
    let service = service();
    let long = "k".repeat(5000);
    let cases: [(&[&str], &str); 7] = [
        (&["NOPE"], "-ERR unknown command 'NOPE'"),
        (&["GET"], "-ERR wrong number of arguments for 'get' command"),
        (&["SET", "a", "1", "EX", "9"], "-ERR wrong number"),
        (&["GET", &long], "-ERR the key of 5000 bytes is too long: at most 4096 bytes"),
        (&["RANGE", "a", "-1"], "-ERR count is not a number from 0"),
        (&["SELECT", "1"], "-ERR DB index is out of range"),
        (&["HELLO", "3"], "-NOPROTO"),
    ];
    for (words, reply) in cases {
        let got = ask(&service, words);
        assert!(got.starts_with(reply), "{words:?}: {got}");
    }
    assert_eq!(service.counters.request_errors.get(), 7);
}

#[test]
fn every_command_listed_is_known_to_the_dispatcher() {
    let service = service();
    for spec in &COMMANDS {
        let mut words = vec![spec.name];
        words.resize(1 + spec.args.0, "0");
        let reply = ask(&service, &words);
        let is_answer = !reply.starts_with("-ERR unknown") && !reply.is_empty();
        assert!(is_answer, "{}: {reply}", spec.name);
    }
}

#[test]
fn info_names_system_and_store() {
    let info = ask(&service(), &["INFO"]);
    for line in ["system:tokio", "store:memory", "uptime_in_seconds:", "requests_get:0"] {
        assert!(info.contains(line), "{info}");
    }
}
