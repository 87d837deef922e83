//! The RESP commands.
//!
//! GET, SET, DEL, EXISTS, DBSIZE, PING and ECHO are Redis' own, without options. `RANGE start count` is ours:
//! keys and values alternating, in key order, from the first key that is not below `start`. Redis' SCAN (a
//! cursor over a hash table, unordered) does not exist here. The rest is what redis-cli and redis-benchmark
//! send by themselves.

use std::ops::ControlFlow;

use super::limits::{Limit, Reservation};
use super::service::{MAX_RANGE, MAX_REPLY, Service};
use heddle_proto::resp;
use heddle_store::{Section, StoreError};

type Args<'a> = &'a [Vec<u8>];
type Flow = ControlFlow<()>;
const GO_ON: Flow = ControlFlow::Continue(());

/// Why a command is answered with an error.
enum Refusal {
    Text(String),
    Store(StoreError),
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Refusal {
        Refusal::Store(error)
    }
}

/// Name, least and most arguments after the name, and where the keys are (first, last, step), as COMMAND lists them.
struct Spec {
    name: &'static str,
    args: (usize, usize),
    keys: (i64, i64, i64),
}

const ANY: usize = usize::MAX;
const NO_KEYS: (i64, i64, i64) = (0, 0, 0);

const fn spec(name: &'static str, args: (usize, usize), keys: (i64, i64, i64)) -> Spec {
    Spec { name, args, keys }
}

const COMMANDS: [Spec; 15] = [
    spec("get", (1, 1), (1, 1, 1)),
    spec("set", (2, 2), (1, 1, 1)),
    spec("del", (1, ANY), (1, -1, 1)),
    spec("exists", (1, ANY), (1, -1, 1)),
    spec("range", (2, 2), (1, 1, 1)),
    spec("dbsize", (0, 0), NO_KEYS),
    spec("ping", (0, 1), NO_KEYS),
    spec("echo", (1, 1), NO_KEYS),
    spec("info", (0, ANY), NO_KEYS),
    spec("command", (0, ANY), NO_KEYS),
    spec("config", (1, ANY), NO_KEYS),
    spec("client", (1, ANY), NO_KEYS),
    spec("select", (1, 1), NO_KEYS),
    spec("quit", (0, 0), NO_KEYS),
    spec("hello", (0, ANY), NO_KEYS),
];

impl<S: Section> Service<S> {
    /// Performs one command and appends its reply, for which `hold` must have room; breaks when the client is done.
    pub(super) fn command(
        &self,
        command: Args<'_>,
        hold: &mut Reservation,
        out: &mut Vec<u8>,
    ) -> Flow {
        let done = out.len();
        match self.dispatch(command, hold, out) {
            Ok(flow) => flow,
            Err(refusal) => {
                // Drop the partial reply.
                out.truncate(done);
                self.refuse(refusal, out);
                GO_ON
            }
        }
    }

    fn refuse(&self, refusal: Refusal, out: &mut Vec<u8>) {
        self.counters.request_errors.add();
        match refusal {
            Refusal::Text(text) => resp::error(out, &text),
            // Redis' texts: clients know them.
            Refusal::Store(StoreError::Full { .. }) => {
                self.bounds.hit(Limit::StoreMemory);
                resp::error(out, "OOM command not allowed when used memory > 'maxmemory'.");
            }
            Refusal::Store(error) => {
                self.counters.store_errors.add();
                resp::error(out, &format!("ERR {error}"));
            }
        }
    }

    fn dispatch(
        &self,
        command: Args<'_>,
        hold: &mut Reservation,
        out: &mut Vec<u8>,
    ) -> Result<Flow, Refusal> {
        let Some((name, args)) = command.split_first() else { return Ok(GO_ON) };
        let spec = find(name)?;
        if !(spec.args.0..=spec.args.1).contains(&args.len()) {
            return refused(format!("ERR wrong number of arguments for '{}' command", spec.name));
        }
        match spec.name {
            "get" => self.get(args, hold, out)?,
            "set" => self.set(args, out)?,
            "del" => self.delete(args, out)?,
            "exists" => self.exists(args, out)?,
            "range" => self.range(args, hold, out)?,
            other => return self.housekeeping(other, args, out),
        }
        Ok(GO_ON)
    }

    fn get(
        &self,
        args: Args<'_>,
        hold: &mut Reservation,
        out: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        self.counters.requests_get.add();
        let mut value = Vec::new();
        match self.store.get(self.key(&args[0])?, &mut value)? {
            true => {
                self.counters.get_hits.add();
                hold.reply(out.len() + value.len()).map_err(|limit| self.no_room(limit))?;
                resp::bulk(out, &value);
            }
            false => {
                self.counters.get_misses.add();
                resp::nil(out);
            }
        }
        Ok(())
    }

    fn set(&self, args: Args<'_>, out: &mut Vec<u8>) -> Result<(), Refusal> {
        self.counters.requests_set.add();
        self.store.put(self.key(&args[0])?, &args[1])?;
        resp::simple(out, "OK");
        Ok(())
    }

    fn delete(&self, args: Args<'_>, out: &mut Vec<u8>) -> Result<(), Refusal> {
        self.counters.requests_delete.add();
        args.iter().try_for_each(|key| self.key(key).map(drop))?;
        let mut removed = 0;
        for key in args {
            removed += i64::from(self.store.delete(key)?);
        }
        resp::int(out, removed);
        Ok(())
    }

    fn exists(&self, args: Args<'_>, out: &mut Vec<u8>) -> Result<(), Refusal> {
        self.counters.requests_get.add();
        let mut found = 0;
        for key in args {
            found += i64::from(self.store.exists(self.key(key)?)?);
        }
        resp::int(out, found);
        Ok(())
    }

    fn range(
        &self,
        args: Args<'_>,
        hold: &mut Reservation,
        out: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        self.counters.requests_range.add();
        let Some(count) = number(&args[1]).filter(|count| *count <= MAX_RANGE) else {
            return refused(format!("ERR count is not a number from 0 to {MAX_RANGE}"));
        };
        let (mut body, mut room) = (Vec::new(), Ok(()));
        let keys = self.store.scan(self.key(&args[0])?, count, &mut |key, value| {
            resp::bulk(&mut body, key);
            resp::bulk(&mut body, value);
            room = hold.reply(out.len() + body.len());
            body.len() <= MAX_REPLY && room.is_ok()
        })?;
        if body.len() > MAX_REPLY {
            return refused(format!("ERR the reply exceeds {MAX_REPLY} bytes; ask for fewer keys"));
        }
        room.map_err(|limit| self.no_room(limit))?;
        resp::array(out, keys * 2);
        out.extend_from_slice(&body);
        Ok(())
    }

    fn no_room(&self, limit: Limit) -> Refusal {
        Refusal::Text(format!("ERR no room for the reply: {}", self.bounds.explain(limit)))
    }

    /// The key, if it is short enough.
    fn key<'a>(&self, key: &'a [u8]) -> Result<&'a [u8], Refusal> {
        if key.len() <= self.limits.key {
            return Ok(key);
        }
        refused(format!(
            "ERR the key of {} bytes is too long: at most {} bytes",
            key.len(),
            self.limits.key
        ))
    }

    /// Commands that do not touch the store.
    fn housekeeping(&self, name: &str, args: Args<'_>, out: &mut Vec<u8>) -> Result<Flow, Refusal> {
        self.counters.requests_other.add();
        match name {
            "dbsize" => resp::int(out, self.store.store().len_estimate() as i64),
            "ping" if args.is_empty() => resp::simple(out, "PONG"),
            "ping" | "echo" => resp::bulk(out, &args[0]),
            "info" => resp::bulk(out, self.info().as_bytes()),
            "command" => describe(args, out),
            "config" => config(args, out)?,
            "client" => client(args, out),
            "select" if args[0] == b"0" => resp::simple(out, "OK"),
            "select" => return refused("ERR DB index is out of range"),
            "quit" => {
                resp::simple(out, "OK");
                return Ok(ControlFlow::Break(()));
            }
            // A client that wants RESP3 falls back to RESP2 on this answer.
            _ => return refused("NOPROTO only RESP2 is spoken here, without HELLO"),
        }
        Ok(GO_ON)
    }
}

fn refused<T>(text: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::Text(text.into()))
}

fn find(name: &[u8]) -> Result<&'static Spec, Refusal> {
    COMMANDS.iter().find(|spec| name.eq_ignore_ascii_case(spec.name.as_bytes())).ok_or_else(|| {
        let shown = &name[..name.len().min(64)];
        Refusal::Text(format!("ERR unknown command '{}'", shown.escape_ascii()))
    })
}

fn number(text: &[u8]) -> Option<usize> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn is(arg: Option<&Vec<u8>>, word: &str) -> bool {
    arg.is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()))
}

/// COMMAND lists the commands; COMMAND COUNT counts them; COMMAND DOCS returns nothing.
fn describe(args: Args<'_>, out: &mut Vec<u8>) {
    match args.first() {
        None => {
            resp::array(out, COMMANDS.len());
            COMMANDS.iter().for_each(|spec| describe_one(spec, out));
        }
        count if is(count, "count") => resp::int(out, COMMANDS.len() as i64),
        Some(_) => resp::array(out, 0),
    }
}

fn describe_one(spec: &Spec, out: &mut Vec<u8>) {
    let (least, most) = spec.args;
    // Redis counts the name, and marks "at least" with a minus.
    let arity = (least + 1) as i64 * if least == most { 1 } else { -1 };
    resp::array(out, 6);
    resp::bulk(out, spec.name.as_bytes());
    resp::int(out, arity);
    resp::array(out, 0);
    for place in [spec.keys.0, spec.keys.1, spec.keys.2] {
        resp::int(out, place);
    }
}

/// redis-benchmark asks for `save` and `appendonly`; nothing is configured this way here.
fn config(args: Args<'_>, out: &mut Vec<u8>) -> Result<(), Refusal> {
    if !is(args.first(), "get") {
        return refused("ERR only CONFIG GET is answered; options are given to `heddle kv serve`");
    }
    resp::array(out, (args.len() - 1) * 2);
    for name in &args[1..] {
        resp::bulk(out, name);
        resp::bulk(out, b"");
    }
    Ok(())
}

fn client(args: Args<'_>, out: &mut Vec<u8>) {
    match args.first() {
        name if is(name, "getname") => resp::nil(out),
        id if is(id, "id") => resp::int(out, 1),
        _ => resp::simple(out, "OK"),
    }
}

#[cfg(test)]
#[path = "command_tests.rs"]
mod tests;
