//! Descriptors that heddled has no use for. One may be of a file system whose server never answers, so that to close it takes for ever.

mod common;

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use common::{Daemon, able, copy, group};
use heddle_steer::client::wire::{self, Call, Reply};
use heddle_steer::request::{Answer, ErrorKind, Request};

const SOON: Duration = Duration::from_secs(60);

/// Sends a request with a descriptor; what comes of it.
fn ask_with(daemon: &Daemon, fd: OwnedFd) -> Reply {
    let client = UnixStream::connect(daemon.socket()).expect("connected");
    wire::send(&client, &Call::Ask(Request::List { after: 0 }), &[fd], SOON).expect("sent");
    wire::receive(&client, SOON).expect("an answer").expect("one").0
}

#[test]
fn what_is_no_socket_no_process_and_no_map_is_refused() {
    if !able() {
        return;
    }
    let daemon = Daemon::start(&[]);
    let (reader, _writer) = io::pipe().expect("a pipe");
    for fd in [OwnedFd::from(reader), File::open("/").expect("a folder").into()] {
        let reply = ask_with(&daemon, fd);
        let Reply::Err(error) = reply else { panic!("{reply:?}") };
        assert_eq!(error.kind, ErrorKind::Invalid);
        assert!(error.text.contains("no socket, no process and no map"), "{error}");
    }
    let reply = ask_with(&daemon, copy(&group(1, "127.0.0.1:0")[0]));
    assert!(matches!(reply, Reply::Ok(Answer::List(_))), "{reply:?}");
}
