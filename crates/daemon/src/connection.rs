//! One client: who it is, what it asks, and what becomes of it when it dies meanwhile.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use heddle_steer::client::wire::{Call, Reply, send};
use heddle_steer::engine::{Caller, Engine};
use heddle_steer::request::{Answer, Attachment, Error, ErrorKind, Request};

use crate::places::Place;
use crate::receiver::Receiver;

/// How long a client may be silent, and how long one message may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// One who is served.
struct Client<'a> {
    stream: &'a UnixStream,
    messages: Receiver,
    caller: Caller,
}

/// Serves a client until it goes, is silent for too long or talks nonsense.
pub fn serve(engine: &Engine, stream: &UnixStream, caller: Caller, place: Place) {
    let messages = match Receiver::start(stream, PATIENCE, Arc::new(place)) {
        Ok(messages) => messages,
        Err(error) => {
            eprintln!("heddled: cannot start a thread: {error}");
            return refuse(stream, ErrorKind::Busy, "no room for a thread: try again in a moment");
        }
    };
    let client = &Client { stream, messages, caller };
    loop {
        match client.messages.next() {
            Ok(Some((Call::Ask(request), fds))) => {
                if answer(engine, client, request, fds).is_err() {
                    return;
                }
            }
            Ok(Some((Call::Keep, _))) => {
                refuse(stream, ErrorKind::Invalid, "there is nothing to keep");
            }
            Ok(None) => return,
            Err(error) => {
                // After nonsense nobody knows where the next message begins.
                let _ = send(stream, &Reply::Err(error), &[], PATIENCE);
                return;
            }
        }
    }
}

/// Tells a client that it is refused.
pub fn refuse(client: &UnixStream, kind: ErrorKind, why: &str) {
    let error = Error::new(kind, why);
    let _ = send(client, &Reply::Err(error), &[], Duration::from_millis(100));
}

/// Serves a request; an error if the client is gone.
fn answer(
    engine: &Engine,
    client: &Client<'_>,
    request: Request,
    fds: Vec<OwnedFd>,
) -> Result<(), Error> {
    let Client { stream, caller, .. } = *client;
    let what = describe(&request);
    let log = |text: &str| {
        if !what.is_empty() {
            eprintln!("heddled: user {}: {what}: {}", caller.uid, one_line(text));
        }
    };
    // To take a program off a group, which an attachment that nobody waits for any more needs.
    let sockets: Vec<OwnedFd> = match request {
        Request::Attach { .. } => fds.iter().filter_map(|fd| fd.try_clone().ok()).collect(),
        _ => Vec::new(),
    };
    match engine.serve(caller, request, fds) {
        Ok((Answer::Attached(attachment), fds)) => {
            let id = attachment.id;
            offer(client, attachment, &fds).inspect_err(|error| {
                log(&format!("undone, {error}"));
                if let Err(error) = engine.serve(caller, Request::Detach { id }, sockets) {
                    eprintln!("heddled: attachment {id} cannot be undone: {error}");
                }
            })?;
            log(&format!("attachment {id}"));
            send(stream, &Reply::Ok(Answer::Done), &[], PATIENCE)
        }
        Ok((answer, fds)) => {
            log("done");
            send(stream, &Reply::Ok(answer), &fds, PATIENCE)
        }
        Err(error) => {
            log(&error.text);
            send(stream, &Reply::Err(error), &[], PATIENCE)
        }
    }
}

/// An attachment stays only if the client says that it knows of it.
fn offer(client: &Client<'_>, attachment: Attachment, fds: &[OwnedFd]) -> Result<(), Error> {
    send(client.stream, &Reply::Ok(Answer::Attached(attachment)), fds, PATIENCE)?;
    match client.messages.next()? {
        Some((Call::Keep, _)) => Ok(()),
        Some(_) => Err(Error::new(ErrorKind::Invalid, "the client asks for something else")),
        None => Err(Error::new(ErrorKind::NotFound, "the client is gone")),
    }
}

/// A request for the log; empty for those that change nothing.
fn describe(request: &Request) -> String {
    match request {
        Request::Attach { policy, hook, pid, .. } => {
            format!("attach {} at {hook} for process {pid}", one_line(&policy.name))
        }
        Request::AddExecutor { id, .. } => format!("add an executor to {id}"),
        Request::Replace { id, policy } => format!("replace {id} by {}", one_line(&policy.name)),
        Request::Detach { id } => format!("detach {id}"),
        Request::List { .. } | Request::Stats { .. } | Request::Maps { .. } => String::new(),
    }
}

/// What a client says, so that it fits into one line of a log.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(300).collect()
}
