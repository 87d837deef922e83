//! One line of a request.

use super::{Condition, Direction, Expiry, Keys, MAX_KEY, Refusal, Reply, Request, Store};

/// The longest data block that a client can announce, in bytes (`INT_MAX - 2` in memcached).
const MAX_ANNOUNCED: u64 = i32::MAX as u64 - 2;

/// What a line asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// The whole request.
    Whole(Request),
    /// A storage command; a data block of this many bytes and a line end follow.
    WithData(Store, usize),
    /// A storage command that is refused; a data block of this many bytes and a line end follow.
    WithoutUse(Refusal, Reply, usize),
}

type Words<'a> = &'a [&'a [u8]];
type Parsed<T> = Result<T, Refusal>;

/// Splits a line at spaces.
pub(super) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| *byte == b' ').filter(|word| !word.is_empty())
}

/// Whether the start of a line is that of a command that reads, whose lines can be long.
pub(super) fn names_many_keys(start: &[u8]) -> bool {
    let start = start.trim_ascii_start();
    [&b"get "[..], b"gets ", b"gat ", b"gats "].iter().any(|name| start.starts_with(name))
}

/// Reads a line without its end.
pub(super) fn parse(line: &[u8]) -> Line {
    let mut rest = line;
    let name = take_word(&mut rest);
    let condition = match name {
        b"get" | b"gets" => return whole(read(rest, name == b"gets", None)),
        b"gat" | b"gats" => return whole(read_and_touch(rest, name == b"gats")),
        b"set" => Condition::Always,
        b"add" => Condition::Missing,
        b"replace" => Condition::Present,
        b"append" => Condition::Append,
        b"prepend" => Condition::Prepend,
        // Its number is read with the others.
        b"cas" => Condition::Unchanged(0),
        _ => {
            let words: Vec<&[u8]> = words(rest).take(MOST_WORDS).collect();
            let reply = reply(&words);
            return match other(name, &words, reply) {
                Ok(request) => Line::Whole(request),
                Err(refusal) => Line::Whole(Request::Refused(refusal, reply)),
            };
        }
    };
    let words: Vec<&[u8]> = words(rest).take(MOST_WORDS).collect();
    storage(condition, &words)
}

/// More words than any command has that is not a read.
const MOST_WORDS: usize = 8;

fn whole(parsed: Parsed<Request>) -> Line {
    // These commands have no `noreply`.
    Line::Whole(parsed.unwrap_or_else(|refusal| Request::Refused(refusal, Reply::Wanted)))
}

/// The first word of `rest`, which is left with what follows.
fn take_word<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    let start = rest.iter().position(|byte| *byte != b' ').unwrap_or(rest.len());
    let line = &rest[start..];
    let end = line.iter().position(|byte| *byte == b' ').unwrap_or(line.len());
    let (word, after) = line.split_at(end);
    *rest = after;
    word
}

fn read(keys: &[u8], with_cas: bool, touch: Option<Expiry>) -> Parsed<Request> {
    let mut none = true;
    for word in words(keys) {
        key(word)?;
        none = false;
    }
    if none {
        return Err(Refusal::Unknown);
    }
    Ok(Request::Get { keys: Keys(keys.to_vec()), with_cas, touch })
}

fn read_and_touch(mut rest: &[u8], with_cas: bool) -> Parsed<Request> {
    let expiry = take_word(&mut rest);
    if expiry.is_empty() || words(rest).next().is_none() {
        return Err(Refusal::Unknown);
    }
    let expiry = signed(expiry).ok_or(Refusal::Expiry)?;
    read(rest, with_cas, Some(Expiry(expiry)))
}

/// `<key> <flags> <exptime> <bytes> [<cas unique>] [noreply]`
fn storage(condition: Condition, words: Words<'_>) -> Line {
    let count = if matches!(condition, Condition::Unchanged(_)) { 5 } else { 4 };
    let reply = reply(words);
    if words.len() != count && words.len() != count + 1 {
        return Line::Whole(Request::Refused(Refusal::Unknown, reply));
    }
    let Some(len) = unsigned(words[3]).filter(|len| *len <= MAX_ANNOUNCED) else {
        return Line::Whole(Request::Refused(Refusal::Format, reply));
    };
    match store(condition, words, reply) {
        Ok(store) => Line::WithData(store, len as usize),
        Err(refusal) => Line::WithoutUse(refusal, reply, len as usize),
    }
}

fn store(condition: Condition, words: Words<'_>, reply: Reply) -> Parsed<Store> {
    let flags = unsigned(words[1]).and_then(|flags| u32::try_from(flags).ok());
    let condition = match condition {
        Condition::Unchanged(_) => Condition::Unchanged(unsigned(words[4]).ok_or(Refusal::Format)?),
        other => other,
    };
    Ok(Store {
        condition,
        key: key(words[0])?.to_vec(),
        flags: flags.ok_or(Refusal::Format)?,
        expiry: Expiry(signed(words[2]).ok_or(Refusal::Format)?),
        reply,
    })
}

fn other(name: &[u8], words: Words<'_>, reply: Reply) -> Parsed<Request> {
    Ok(match (name, words) {
        (b"delete", [name, rest @ ..]) if rest.len() <= 2 => {
            // Before 1.4.0 a time followed the key; clients still send a 0.
            let usage = match rest {
                [] => true,
                [only] => *only == b"0" || reply == Reply::Unwanted,
                [time, ..] => *time == b"0" && reply == Reply::Unwanted,
            };
            if !usage {
                return Err(Refusal::DeleteUsage);
            }
            Request::Delete(key(name)?.to_vec(), reply)
        }
        (b"incr", [name, by] | [name, by, _]) => count(name, by, Direction::Up, reply)?,
        (b"decr", [name, by] | [name, by, _]) => count(name, by, Direction::Down, reply)?,
        (b"touch", [name, time] | [name, time, _]) => {
            let name = key(name)?.to_vec();
            Request::Touch(name, Expiry(signed(time).ok_or(Refusal::Expiry)?), reply)
        }
        (b"flush_all", [] | [b"noreply"]) => Request::FlushAll(0, reply),
        (b"flush_all", [time] | [time, _]) => {
            Request::FlushAll(signed(time).ok_or(Refusal::Format)?, reply)
        }
        (b"verbosity", [_, ..]) => Request::Verbosity(reply),
        (b"version", _) => Request::Version,
        (b"stats", words) => Request::Stats(words.first().map_or(Vec::new(), |w| w.to_vec())),
        (b"quit", _) => Request::Quit,
        _ => return Err(Refusal::Unknown),
    })
}

fn count(name: &[u8], by: &[u8], direction: Direction, reply: Reply) -> Parsed<Request> {
    let name = key(name)?.to_vec();
    let by = unsigned(by).ok_or(Refusal::Delta)?;
    Ok(Request::Count { key: name, direction, by, reply })
}

/// `noreply` is the last word. A line that is wrong in other ways is answered by it too, as far as it can be known.
fn reply(words: Words<'_>) -> Reply {
    match words {
        [_, .., b"noreply"] | [b"noreply"] => Reply::Unwanted,
        _ => Reply::Wanted,
    }
}

fn key(word: &[u8]) -> Parsed<&[u8]> {
    let is_valid = word.len() <= MAX_KEY && !word.iter().any(u8::is_ascii_control);
    is_valid.then_some(word).ok_or(Refusal::Format)
}

/// A decimal number of digits only.
fn unsigned(word: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(word).ok()?;
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// A decimal number with an optional minus.
fn signed(word: &[u8]) -> Option<i64> {
    let digits = word.strip_prefix(b"-").unwrap_or(word);
    let text = std::str::from_utf8(word).ok()?;
    digits.iter().all(u8::is_ascii_digit).then(|| text.parse().ok())?
}
