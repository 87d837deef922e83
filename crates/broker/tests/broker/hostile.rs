//! Clients that do not keep to the protocol: they are refused, and others do not notice.

use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};

use heddle_share::abi::VERSION;
use heddle_share::connect_to;
use heddle_share::wire::{self, Message};
use heddle_test_support::until;
use rustix::net::{SendFlags, Shutdown, send, shutdown};
use rustix::pipe::pipe;

use crate::fixture::Share;

fn join() -> Message {
    Message::Join { version: VERSION, class: 0, name: "x".into() }
}

fn connected(share: &Share) -> OwnedFd {
    connect_to(&share.socket).unwrap()
}

/// Returns the broker's last word to a client.
fn last_word(socket: &OwnedFd) -> String {
    let mut why = String::new();
    while let Ok(Some((message, _))) = wire::receive(socket) {
        if let Message::Refused(text) = message {
            why = text;
        }
    }
    why
}

#[track_caller]
fn refused(share: &Share, messages: &[Message], says: &str) {
    let socket = connected(share);
    for message in messages {
        wire::send(&socket, message, &[]).unwrap();
    }
    let why = last_word(&socket);
    assert!(why.contains(says), "{messages:?}: {why}");
}

#[test]
fn what_is_no_message_ends_the_connection() {
    let share = Share::new();
    for bytes in [&b"x"[..], &[99, 0, 0, 0], &[1, 0, 0, 0, 1]] {
        let socket = connected(&share);
        send(&socket, bytes, SendFlags::empty()).unwrap();
        assert_eq!(last_word(&socket), "that is no message of this protocol");
    }
    let socket = connected(&share);
    send(&socket, &[], SendFlags::empty()).unwrap();
    assert_eq!(last_word(&socket), "", "an empty packet is an end");
    assert!(share.report().apps.is_empty());
}

#[test]
fn messages_at_the_wrong_time_are_refused() {
    let share = Share::new();
    let other_version = Message::Join { version: VERSION + 1, class: 0, name: "x".into() };
    refused(&share, &[other_version], "version");
    refused(
        &share,
        &[Message::Join { version: VERSION, class: 7, name: "x".into() }],
        "no class 7",
    );
    refused(&share, &[Message::Ready], "has not joined");
    refused(&share, &[Message::Alert(0)], "has not joined");
    refused(&share, &[Message::Peer(3)], "only a broker says that");
    refused(&share, &[join(), join()], "has joined already");
    refused(&share, &[join(), Message::Alert(1)], "no shared CPU with index 1");
    refused(&share, &[join(), Message::Ready], "a pipe for each of 1 CPUs");
    until("all are gone", || share.report().apps.is_empty());
}

#[test]
fn what_is_no_pipe_is_not_passed_on() {
    let share = Share::new();
    let (_reader, writer) = pipe().unwrap();
    let file = File::open("/dev/zero").unwrap();
    for fds in [&[file.as_fd()][..], &[writer.as_fd(), writer.as_fd()]] {
        let socket = connected(&share);
        wire::send(&socket, &join(), &[]).unwrap();
        wire::send(&socket, &Message::Ready, fds).unwrap();
        assert!(last_word(&socket).contains("a pipe for each"));
    }
}

#[test]
fn a_process_is_one_member_the_one_that_joined_last() {
    let share = Share::new();
    let join = || {
        let socket = connected(&share);
        wire::send(&socket, &join(), &[]).unwrap();
        let admitted = wire::receive(&socket);
        assert!(matches!(admitted, Ok(Some((Message::Admitted { .. }, _)))), "{admitted:?}");
        socket
    };
    // As if it had executed another program, while a child has a copy of the descriptor.
    let first = join();
    let second = join();
    assert_eq!(last_word(&first), "its process has joined anew");
    assert_eq!((share.report().apps.len(), share.count("removed")), (1, 1));
    // As if there were no child. Children of other tests may have copies of the descriptor.
    shutdown(&second, Shutdown::Both).unwrap();
    let _third = join();
    assert_eq!((share.report().apps.len(), share.count("removed")), (1, 1));
}

#[test]
fn floods_and_clients_that_do_not_read_stop_no_other() {
    let share = Share::new();
    let mut member = share.member("one", 0);
    member.said("admitted");
    member.send("ready");
    // More connections than there may be at a time. The oldest ones end.
    let idle: Vec<_> = (0..70).map(|_| connected(&share)).collect();
    let deaf = connected(&share);
    let packets = (0..5000).take_while(|_| wire::send(&deaf, &Message::Status, &[]).is_ok());
    assert!(packets.count() < 5000, "it was refused, or its answers filled the socket");
    assert_eq!(share.app("one").app, 0);
    assert!(last_word(&deaf).contains("sends more"));
    assert!(last_word(&idle[0]).contains("too many connections"));
    let mut other = share.member("other", 0);
    other.said("admitted");
    other.send("ready");
    member.said("peer 1");
}

#[test]
fn programs_that_come_faster_than_connections_are_accepted_wait() {
    let share = Share::new();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..50).for_each(|_| assert!(share.report().apps.is_empty())));
        }
    });
}
