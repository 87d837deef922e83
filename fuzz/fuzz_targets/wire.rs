//! Messages to heddled and its clients through a socket: bytes, with any number of descriptors. An accepted message
//! is the one that was sent.
#![no_main]

use std::io::{IoSlice, Write as _};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use heddle_steer::client::wire::{Call, MAX_FDS, Reply, receive, send};
use libfuzzer_sys::fuzz_target;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde::{Serialize, de::DeserializeOwned};

/// Never reached: everything is already written.
const LIMIT: Duration = Duration::from_secs(5);
/// The kernel's limit of descriptors for one message.
const MOST: usize = 253;

/// Returns the receiving end of a closed connection that carries `bytes` and this many descriptors.
fn incoming(bytes: &[u8], descriptors: usize) -> UnixStream {
    let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
    if descriptors > 0 && !bytes.is_empty() {
        let all: Vec<BorrowedFd<'_>> = vec![ours.as_fd(); descriptors];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&all)));
        let sent = sendmsg(&ours, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL);
        assert_eq!(sent.expect("sent"), bytes.len());
    } else {
        (&ours).write_all(bytes).expect("written");
    }
    ours.shutdown(Shutdown::Write).expect("the end");
    theirs
}

fn check<T: Serialize + DeserializeOwned>(bytes: &[u8], descriptors: usize) {
    let socket = incoming(bytes, descriptors);
    match receive::<T>(&socket, LIMIT) {
        Ok(None) => assert!(bytes.is_empty()),
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(Some((value, fds))) => {
            assert_eq!(fds.len(), descriptors);
            assert!(descriptors <= MAX_FDS, "more descriptors than are allowed");
            let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
            send(&ours, &value, &[], LIMIT).expect("what was taken can be said");
            let again = receive::<T>(&theirs, LIMIT).expect("understood").expect("something").0;
            let text = |value: &T| serde_json::to_string(value).expect("text");
            assert_eq!(text(&again), text(&value));
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((&count, bytes)) = input.split_first() else { return };
    // Mostly none: each costs a system call.
    let descriptors = if count < 128 { 0 } else { (usize::from(count) - 128) * 2 };
    let descriptors = descriptors.min(MOST);
    check::<Call>(bytes, descriptors);
    check::<Reply>(bytes, descriptors);
});
