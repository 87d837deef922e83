//! The commands of memcached's text protocol (memcached's `doc/protocol.txt`), with its texts.
//!
//! - `item`: an item as the store keeps it. `items`: reads and atomic changes. `stats`: the reply to `stats`.
//! - `datagram`: one request in one datagram.
//!
//! Unlike memcached, a full store evicts nothing: it refuses writes, as `memcached -M` does. `flush_all` has no delay.
//! The length of a number that `decr` shortens shrinks with it.

mod datagram;
mod item;
mod items;
mod stats;

use std::borrow::Cow;
use std::ops::ControlFlow;

use super::item_state::now_ms;
use super::limits::{Limit, Reservation};
use super::service::Service;
use heddle_proto::memcached::{
    Condition, Direction, Expiry, Keys, MAX_VALUE, Reply, Request, Store, line, number, value,
};
use heddle_store::{Section, StoreError};
use item::Item;
pub(super) use item::dataset_header;
use items::{Change, Failure};

/// The version for clients, which derive from it what they may ask for: the last series of memcached without meta
/// commands. libmemcached refuses a version 0.
const VERSION: &str = concat!("1.5.0-heddle-", env!("CARGO_PKG_VERSION"));
const TOO_LARGE: &str = "SERVER_ERROR object too large for cache";
/// What an item takes in a reply beside its key and value: four words, three of them numbers, and the line ends.
const VALUE_LINE: usize = 64;

impl<S: Section> Service<S> {
    /// Performs one request and appends its reply, for which `hold` must have room; breaks when the client is done.
    pub(super) fn memcached(
        &self,
        request: Request,
        hold: &mut Reservation,
        out: &mut Vec<u8>,
    ) -> ControlFlow<()> {
        if request == Request::Quit {
            return ControlFlow::Break(());
        }
        let (done, reply) = (out.len(), request.reply());
        if let Err(failure) = self.answer(request, hold, out) {
            // Drop the partial reply.
            out.truncate(done);
            self.report(failure, out);
        }
        if reply == Reply::Unwanted {
            out.truncate(done);
        }
        ControlFlow::Continue(())
    }

    fn report(&self, failure: Failure, out: &mut Vec<u8>) {
        self.counters.request_errors.add();
        match failure {
            Failure::Store(StoreError::Full { .. }) => {
                self.bounds.hit(Limit::StoreMemory);
                line(out, "SERVER_ERROR out of memory storing object");
            }
            Failure::Store(error) => {
                self.counters.store_errors.add();
                line(out, &format!("SERVER_ERROR {error}"));
            }
            Failure::Foreign => {
                line(out, "SERVER_ERROR the value was not stored over memcached's protocol");
            }
            Failure::Reply => line(out, "SERVER_ERROR out of memory writing get response"),
        }
    }

    fn answer(
        &self,
        request: Request,
        hold: &mut Reservation,
        out: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        match request {
            Request::Get { keys, with_cas, touch } => {
                return self.get_items(&keys, with_cas, touch, hold, out);
            }
            Request::Store { command, value } => {
                line(out, self.store_item(&command, &value)?);
            }
            Request::TooLarge(command) => self.too_large(&command, out)?,
            Request::Delete(key, _) => {
                self.counters.requests_delete.add();
                let found = self.update(&key, |item| (Change::Delete, item.is_some()))?;
                line(out, if found { "DELETED" } else { "NOT_FOUND" });
            }
            Request::Count { key, direction, by, .. } => self.count(&key, direction, by, out)?,
            Request::Touch(key, expiry, _) => {
                self.counters.requests_touch.add();
                line(out, if self.touch(&key, expiry)? { "TOUCHED" } else { "NOT_FOUND" });
            }
            Request::Refused(refusal, _) => {
                self.counters.request_errors.add();
                line(out, &refusal.to_string());
            }
            other => return self.no_item(other, out),
        }
        Ok(())
    }

    /// Requests that name no item.
    fn no_item(&self, request: Request, out: &mut Vec<u8>) -> Result<(), Failure> {
        self.counters.requests_other.add();
        match request {
            Request::FlushAll(0, _) => {
                self.flush()?;
                line(out, "OK");
            }
            // memcached's delay ends in a flush of what exists then.
            Request::FlushAll(..) => {
                self.counters.request_errors.add();
                line(out, "SERVER_ERROR flush_all with a delay is not supported");
            }
            Request::Version => line(out, &format!("VERSION {VERSION}")),
            Request::Stats(group) => self.stats(&group, out),
            // Only verbosity is left, which has no effect.
            _ => line(out, "OK"),
        }
        Ok(())
    }

    fn get_items(
        &self,
        keys: &Keys,
        with_cas: bool,
        touch: Option<Expiry>,
        hold: &mut Reservation,
        out: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        self.counters.requests_get.add();
        let mut bytes = Vec::new();
        for key in keys.iter() {
            if let Some(expiry) = touch {
                self.counters.requests_touch.add();
                self.touch(key, expiry)?;
            }
            let Some(item) = self.item(key, &mut bytes)? else {
                self.counters.get_misses.add();
                continue;
            };
            self.counters.get_hits.add();
            let len = out.len() + key.len() + item.value.len() + VALUE_LINE;
            hold.reply(len).map_err(|_| Failure::Reply)?;
            value(out, key, item.flags, item.value, with_cas.then_some(item.cas));
        }
        line(out, "END");
        Ok(())
    }

    fn store_item(&self, command: &Store, value: &[u8]) -> Result<&'static str, Failure> {
        self.counters.requests_set.add();
        let (key, expires) = (&command.key[..], command.expiry.at_ms(now_ms()));
        if command.condition != Condition::Always {
            return self.update(key, |item| stored(command, expires, value, item));
        }
        let put = self.put(key, command.flags, expires, value);
        if put.is_err() {
            // As in memcached: the old value must not outlive a set that failed. The set's error is the one to report.
            let _ = self.update(key, |_| (Change::Delete, ()));
        }
        put.map(|()| "STORED")
    }

    fn too_large(&self, command: &Store, out: &mut Vec<u8>) -> Result<(), Failure> {
        self.counters.request_errors.add();
        if command.condition == Condition::Always {
            self.update(&command.key, |_| (Change::Delete, ()))?;
        }
        line(out, TOO_LARGE);
        Ok(())
    }

    fn touch(&self, key: &[u8], expiry: Expiry) -> Result<bool, Failure> {
        let expires = expiry.at_ms(now_ms());
        self.update(key, |item| (Change::Expire(expires), item.is_some()))
    }

    fn count(
        &self,
        key: &[u8],
        direction: Direction,
        by: u64,
        out: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        self.counters.requests_set.add();
        match self.update(key, |item| counted(direction, by, item))? {
            Ok(now) => number(out, now),
            Err(text) => line(out, text),
        }
        Ok(())
    }
}

/// Decides about a storage command with a condition; returns the reply too.
fn stored<'v>(
    command: &Store,
    expires: u64,
    value: &'v [u8],
    item: Option<Item<'_>>,
) -> (Change<'v>, &'static str) {
    let put = (Change::Put(command.flags, expires, Cow::Borrowed(value)), "STORED");
    match (command.condition, item) {
        (Condition::Always, _) | (Condition::Missing, None) | (Condition::Present, Some(_)) => put,
        (Condition::Unchanged(cas), Some(item)) if cas == item.cas => put,
        (Condition::Unchanged(_), Some(_)) => (Change::Keep, "EXISTS"),
        (Condition::Unchanged(_), None) => (Change::Keep, "NOT_FOUND"),
        (Condition::Append, Some(item)) => joined(&item, [item.value, value]),
        (Condition::Prepend, Some(item)) => joined(&item, [value, item.value]),
        _ => (Change::Keep, "NOT_STORED"),
    }
}

/// Flags and expiry stay those of the item.
fn joined<'v>(item: &Item<'_>, parts: [&[u8]; 2]) -> (Change<'v>, &'static str) {
    let value = parts.concat();
    if value.len() > MAX_VALUE {
        return (Change::Keep, TOO_LARGE);
    }
    (Change::Put(item.flags, item.expires_ms, Cow::Owned(value)), "STORED")
}

fn counted<'v>(
    direction: Direction,
    by: u64,
    item: Option<Item<'_>>,
) -> (Change<'v>, Result<u64, &'static str>) {
    const NO_NUMBER: &str = "CLIENT_ERROR cannot increment or decrement non-numeric value";
    let Some(item) = item else { return (Change::Keep, Err("NOT_FOUND")) };
    let text = std::str::from_utf8(item.value).unwrap_or_default();
    let Ok(old) = text.trim_end_matches(' ').parse::<u64>() else {
        return (Change::Keep, Err(NO_NUMBER));
    };
    let now = match direction {
        Direction::Up => old.wrapping_add(by),
        Direction::Down => old.saturating_sub(by),
    };
    let value = Cow::Owned(now.to_string().into_bytes());
    (Change::Put(item.flags, item.expires_ms, value), Ok(now))
}

#[cfg(test)]
mod tests;
