use std::sync::Arc;

use heddle_proto::memcached::Reader;
use heddle_store::{MemoryStore, NoSection};

use super::*;
use crate::limits::{Bounds, ClientLimits};
use crate::{Options, Protocol};

type Server = Arc<Service<NoSection>>;

fn service_with(store: MemoryStore) -> Server {
    let bounds = Bounds::new(ClientLimits::default(), 1);
    let options = Options { protocol: Protocol::Memcached, ..Options::default() };
    Service::new(Box::new(store), NoSection, &options, &bounds)
}

fn service() -> Server {
    service_with(MemoryStore::new())
}

/// The replies to whole requests.
fn ask(service: &Server, requests: &str) -> String {
    let (mut reader, mut out) = (Reader::new(), Vec::new());
    reader.push(requests.as_bytes());
    let mut hold = Reservation::new(&service.bounds);
    while let Some(request) = reader.next_request().unwrap() {
        if service.memcached(request, &mut hold, &mut out).is_break() {
            out.extend_from_slice(b"(closed)");
            break;
        }
    }
    String::from_utf8(out).unwrap()
}

fn conversation(service: &Server, cases: &[(&str, &str)]) {
    for (requests, replies) in cases {
        assert_eq!(ask(service, requests), *replies, "{requests:?}");
    }
}

/// The unique number of a key.
fn cas(service: &Server, key: &str) -> u64 {
    let reply = ask(service, &format!("gets {key}\r\n"));
    let first = reply.lines().next().unwrap();
    first.rsplit(' ').next().unwrap().parse().unwrap()
}

fn stat(service: &Server, name: &str) -> u64 {
    let stats = ask(service, "stats\r\n");
    let line = stats.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
    line.unwrap_or_else(|| panic!("{name}: {stats}")).parse().unwrap()
}

#[test]
fn storage_commands_have_their_conditions() {
    conversation(
        &service(),
        &[
            ("replace k 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
            ("append k 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
            ("prepend k 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
            ("add k 7 0 1\r\nb\r\n", "STORED\r\n"),
            ("add k 8 0 1\r\nx\r\n", "NOT_STORED\r\n"),
            ("append k 9 0 1\r\nc\r\n", "STORED\r\n"),
            ("prepend k 9 0 1\r\na\r\n", "STORED\r\n"),
            ("get k\r\n", "VALUE k 7 3\r\nabc\r\nEND\r\n"),
            ("replace k 1 0 0\r\n\r\n", "STORED\r\n"),
            ("get k none k\r\n", "VALUE k 1 0\r\n\r\nVALUE k 1 0\r\n\r\nEND\r\n"),
            ("set k 4294967295 0 2\r\n\r\n\r\n", "STORED\r\n"),
            ("get k\r\n", "VALUE k 4294967295 2\r\n\r\n\r\nEND\r\n"),
            ("delete k\r\ndelete k\r\nget k\r\n", "DELETED\r\nNOT_FOUND\r\nEND\r\n"),
        ],
    );
}

#[test]
fn cas_stores_what_no_other_client_has_changed() {
    let service = service();
    ask(&service, "set k 0 0 1\r\n1\r\n");
    let first = cas(&service, "k");
    assert_eq!(cas(&service, "k"), first, "reads change nothing");
    let request = |cas| format!("cas k 0 0 1 {cas}\r\n2\r\n");
    assert_eq!(ask(&service, &request(first)), "STORED\r\n");
    assert_eq!(ask(&service, &request(first)), "EXISTS\r\n");
    assert_eq!(ask(&service, "cas none 0 0 1 1\r\n2\r\n"), "NOT_FOUND\r\n");
    let second = cas(&service, "k");
    ask(&service, "touch k 100\r\n");
    assert_eq!(cas(&service, "k"), second, "touch leaves the value");
    ask(&service, "incr k 1\r\n");
    assert!(cas(&service, "k") > second && second > first);
}

#[test]
fn numbers_count_up_and_down() {
    conversation(
        &service(),
        &[
            ("incr k 1\r\n", "NOT_FOUND\r\n"),
            ("set k 5 0 2\r\n10\r\n", "STORED\r\n"),
            ("incr k 5\r\ndecr k 7\r\n", "15\r\n8\r\n"),
            ("get k\r\n", "VALUE k 5 1\r\n8\r\nEND\r\n"),
            ("decr k 9\r\n", "0\r\n"),
            ("set k 0 0 20\r\n18446744073709551615\r\nincr k 2\r\n", "STORED\r\n1\r\n"),
            (
                "set k 0 0 1\r\nx\r\nincr k 1\r\n",
                "STORED\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
            ),
            ("incr k x\r\n", "CLIENT_ERROR invalid numeric delta argument\r\n"),
        ],
    );
}

#[test]
fn expired_items_do_not_exist() {
    let service = service();
    conversation(
        &service,
        &[
            ("set k 0 -1 1\r\nx\r\nget k\r\n", "STORED\r\nEND\r\n"),
            ("set k 0 3000000 1\r\nx\r\nget k\r\n", "STORED\r\nEND\r\n"),
            ("set k 0 -1 1\r\nx\r\nadd k 0 0 1\r\ny\r\n", "STORED\r\nSTORED\r\n"),
            ("touch k 1000\r\nget k\r\n", "TOUCHED\r\nVALUE k 0 1\r\ny\r\nEND\r\n"),
            ("gat -1 k none\r\ntouch k 0\r\n", "END\r\nNOT_FOUND\r\n"),
            ("set k 3 10 1\r\nx\r\ngat 0 k\r\n", "STORED\r\nVALUE k 3 1\r\nx\r\nEND\r\n"),
            ("set k 0 -1 1\r\nx\r\nreplace k 0 0 1\r\ny\r\n", "STORED\r\nNOT_STORED\r\n"),
            (
                "set k 0 -1 1\r\nx\r\ndelete k\r\nincr k 1\r\n",
                "STORED\r\nNOT_FOUND\r\nNOT_FOUND\r\n",
            ),
        ],
    );
    assert_eq!(service.store.store().len_estimate(), 0, "they are removed by the next access");
}

#[test]
fn noreply_silences_every_answer_to_a_line_that_is_read() {
    let service = service();
    let silent = "set k 0 0 1 noreply\r\n1\r\nadd k 0 0 1 noreply\r\n2\r\nincr k 1 noreply\r\n\
                  touch k 0 noreply\r\ndelete none noreply\r\nverbosity 1 noreply\r\n\
                  set k 0 0 2000000 noreply\r\n";
    let large = "x".repeat(2_000_000);
    let last = "get k\r\nflush_all noreply\r\n";
    assert_eq!(ask(&service, &format!("{silent}{large}\r\n{last}")), "END\r\n");
    assert_eq!(
        ask(&service, "set k 0 0 1 noreply\r\n7\r\nget k\r\n"),
        "VALUE k 0 1\r\n7\r\nEND\r\n"
    );
}

#[test]
fn a_value_that_is_too_large_replaces_none_and_leaves_none() {
    let service = service();
    let large = |name| format!("{name} k 0 0 1048577\r\n{}\r\n", "x".repeat(1_048_577));
    let error = "SERVER_ERROR object too large for cache\r\n";
    ask(&service, "set k 0 0 1\r\n1\r\n");
    assert_eq!(ask(&service, &large("replace")), error);
    assert_eq!(ask(&service, "get k\r\n"), "VALUE k 0 1\r\n1\r\nEND\r\n");
    assert_eq!(ask(&service, &large("set")), error);
    assert_eq!(ask(&service, "get k\r\n"), "END\r\n", "as in memcached, no old value stays");
    let most = "x".repeat(1 << 20);
    assert_eq!(ask(&service, &format!("set k 0 0 1048576\r\n{most}\r\n")), "STORED\r\n");
    assert_eq!(ask(&service, "append k 0 0 1\r\nx\r\n"), error);
    assert_eq!(ask(&service, "get k\r\n"), format!("VALUE k 0 1048576\r\n{most}\r\nEND\r\n"));
}

#[test]
fn flush_all_removes_every_item() {
    let service = service();
    for n in 0..100 {
        ask(&service, &format!("set k{n} 0 0 1 noreply\r\nx\r\n"));
    }
    assert_eq!(ask(&service, "flush_all\r\nget k0 k50 k99\r\n"), "OK\r\nEND\r\n");
    assert_eq!(service.store.store().len_estimate(), 0);
    let error = "SERVER_ERROR flush_all with a delay is not supported\r\n";
    assert_eq!(ask(&service, "flush_all 10\r\n"), error);
    assert_eq!(ask(&service, "flush_all 0\r\n"), "OK\r\n");
}

#[test]
fn statistics_count_keys_and_commands() {
    let service = service();
    ask(&service, "set a 0 0 1\r\nx\r\nset b 0 0 1\r\nx\r\nget a b c\r\nget d\r\nincr d 1\r\n");
    let names = ["cmd_set", "cmd_get", "get_hits", "get_misses", "curr_items"];
    assert_eq!(names.map(|name| stat(&service, name)), [3, 4, 2, 2, 2]);
    assert_eq!(stat(&service, "pid"), u64::from(std::process::id()));
    assert_eq!(ask(&service, "stats items\r\n"), "END\r\n");
    let version = concat!("VERSION 1.5.0-heddle-", env!("CARGO_PKG_VERSION"), "\r\n");
    assert_eq!(ask(&service, "version\r\nverbosity 1\r\n"), format!("{version}OK\r\n"));
    assert_eq!(ask(&service, "quit\r\nversion\r\n"), "(closed)");
}

/// A full store refuses writes until items are deleted or expire; nothing is evicted.
#[test]
fn a_full_store_makes_room_of_expired_items_only() {
    let service = service_with(MemoryStore::within(1000));
    let set = |key, expiry| ask(&service, &format!("set {key} 0 {expiry} 1\r\nx\r\n"));
    let filled = (0..10).take_while(|n| set(format!("k{n}"), 0) == "STORED\r\n").count();
    assert!((2..10).contains(&filled), "{filled}");
    let full = "SERVER_ERROR out of memory storing object\r\n";
    assert_eq!(set("more".into(), 0), full);
    assert_eq!(ask(&service, "touch k0 -1\r\n"), "TOUCHED\r\n");
    // A search for expired items may have just ended; the next one finds it.
    while set("more".into(), 0) != "STORED\r\n" {
        std::thread::yield_now();
    }
    assert_eq!(ask(&service, "get more k0\r\n"), "VALUE more 0 1\r\nx\r\nEND\r\n");
    assert!(service.bounds.hits(Limit::StoreMemory) > 0);
}

#[test]
fn values_of_another_protocol_are_named_as_such() {
    let service = service();
    service.store.put(b"k", b"a value").unwrap();
    let error = "SERVER_ERROR the value was not stored over memcached's protocol\r\n";
    assert_eq!(ask(&service, "get k\r\n"), error);
    assert_eq!(
        ask(&service, "incr k 1\r\nflush_all\r\nget k\r\n"),
        format!("{error}OK\r\n{error}")
    );
    assert_eq!(
        ask(&service, "set k 0 0 1\r\nx\r\nget k\r\n"),
        "STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\n"
    );
}

/// Concurrent changes of a key lose none.
#[test]
fn changes_of_a_key_are_atomic() {
    let service = service();
    ask(&service, "set k 0 0 1\r\n0\r\n");
    std::thread::scope(|all| {
        for _ in 0..4 {
            all.spawn(|| (0..1000).for_each(|_| drop(ask(&service, "incr k 1 noreply\r\n"))));
        }
    });
    assert_eq!(ask(&service, "get k\r\n"), "VALUE k 0 4\r\n4000\r\nEND\r\n");
}

#[test]
fn datagrams_have_a_frame_of_eight_bytes() {
    let service = service();
    let ask = |frame: [u8; 8], body: &str| {
        service.memcached_datagram(&[&frame[..], body.as_bytes()].concat())
    };
    let (frame, replied) = ([1, 2, 0, 0, 0, 1, 0, 0], [1, 2, 0, 0, 0, 1, 0, 0]);
    let reply = |body: &str| Some([&replied[..], body.as_bytes()].concat());
    assert_eq!(ask(frame, "set k 5 0 1\r\nx\r\n"), reply("STORED\r\n"));
    assert_eq!(ask(frame, "get k\r\n"), reply("VALUE k 5 1\r\nx\r\nEND\r\n"));
    assert_eq!(ask(frame, "set k 5 0 1 noreply\r\nx\r\n"), None);
    assert_eq!(
        ask([1, 2, 0, 0, 0, 2, 0, 0], "get k\r\n"),
        reply("SERVER_ERROR multi-packet request not supported\r\n")
    );
    assert_eq!(ask(frame, "get k"), None, "an incomplete request");
    assert_eq!(service.memcached_datagram(b"get k\r\n"), None);
    ask(frame, &format!("set k 0 0 2000\r\n{}\r\n", "x".repeat(2000)));
    assert_eq!(
        ask(frame, "get k\r\n"),
        reply("SERVER_ERROR the reply is longer than a datagram; use TCP\r\n")
    );
}
