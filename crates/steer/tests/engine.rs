//! The engine, end to end: real sockets, the real kernel. Needs root and BPF; otherwise skips, and says so.

#[path = "common/engine.rs"]
mod common;

use std::os::fd::AsFd as _;

use common::{Bench, ask, group, received, shipped};
use heddle_steer::request::Request;

#[test]
fn a_group_is_steered_until_it_is_detached() {
    let Some(bench) = Bench::new("group") else { return };
    for at in ["127.0.0.1:0", "[::1]:0"] {
        let sockets = group(3, at);
        let id = bench.attach("round-robin", &sockets).expect("attached").id;
        ask(&sockets, 30);
        assert_eq!(received(&sockets, 30), [10, 10, 10]);
        let stats = bench.stats(id);
        assert_eq!(stats.executors.iter().map(|e| e.selected).collect::<Vec<_>>(), [10, 10, 10]);
        assert_eq!((stats.failed(), stats.decisions()), (0, 30));

        bench.call(Request::Replace { id, policy: shipped("jiq") }, Vec::new()).expect("replaced");
        ask(&sockets, 30);
        received(&sockets, 30);

        let one = sockets[0].as_fd().try_clone_to_owned().expect("a copy");
        bench.call(Request::Detach { id }, vec![one]).expect("detached");
        ask(&sockets, 30);
        // One flow: the kernel's hash gives it all to one socket.
        assert!(received(&sockets, 30).contains(&30));
        assert_eq!(bench.list(), []);
    }
}
