//! Answering one datagram.

use std::time::Instant;

use heddle_core::Ns;

use super::limits::Limit;
use super::options::Protocol;
use super::service::{MAX_RANGE, Service};
use heddle_proto::udp::{Key, Op, RESPONSE_LEN, Request, Response, Status, digest, id_key};
use heddle_store::{Section, StoreError};

/// The result of an operation.
#[derive(Default)]
struct OperationResult {
    missing: bool,
    keys: u32,
    bytes: usize,
    digest: u32,
}

/// The bytes of an answer.
pub(super) enum Answer {
    /// To the load generator.
    Fixed([u8; RESPONSE_LEN]),
    /// To a client of memcached.
    Text(Vec<u8>),
}

impl std::ops::Deref for Answer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Answer::Fixed(bytes) => bytes,
            Answer::Text(bytes) => bytes,
        }
    }
}

impl<S: Section> Service<S> {
    /// Returns the answer to a datagram received at `received`; `None`, counted, if it is not a request.
    pub(super) fn datagram(&self, bytes: &[u8], received: Instant) -> Option<Answer> {
        match self.protocol {
            Protocol::Memcached => self.memcached_datagram(bytes).map(Answer::Text),
            _ => self.load_datagram(bytes, received).map(Answer::Fixed),
        }
    }

    fn load_datagram(&self, bytes: &[u8], received: Instant) -> Option<[u8; RESPONSE_LEN]> {
        let start = Instant::now();
        let Ok(request) = Request::decode(bytes) else {
            self.counters.datagrams_malformed.add();
            return None;
        };
        let (status, found) = self.perform(&request);
        let response = Response {
            op: request.op,
            status,
            id: request.id,
            sent: request.sent,
            count: found.keys,
            service: Ns::from(start.elapsed()),
            queued: Ns::from(start.saturating_duration_since(received)),
            bytes: u32::try_from(found.bytes).unwrap_or(u32::MAX),
            digest: found.digest,
        };
        Some(response.encode())
    }

    fn perform(&self, request: &Request<'_>) -> (Status, OperationResult) {
        if self.is_refused(request) {
            self.counters.request_errors.add();
            return (Status::Refused, OperationResult::default());
        }
        let id;
        let key = match request.key {
            Key::Bytes(bytes) => bytes,
            Key::Id(number) => {
                id = id_key(number);
                &id
            }
        };
        match self.operate(request, key) {
            Ok(found) if found.missing => (Status::NotFound, found),
            Ok(found) => (Status::Ok, found),
            Err(StoreError::Full { .. }) => {
                self.bounds.hit(Limit::StoreMemory);
                self.counters.request_errors.add();
                (Status::Refused, OperationResult::default())
            }
            Err(_) => {
                self.counters.store_errors.add();
                (Status::StoreError, OperationResult::default())
            }
        }
    }

    fn is_refused(&self, request: &Request<'_>) -> bool {
        let key_len = match request.key {
            Key::Bytes(bytes) => bytes.len(),
            Key::Id(_) => 0,
        };
        key_len > self.limits.key
            || request.value.len() > self.limits.value
            || request.count as usize > MAX_RANGE
    }

    fn operate(&self, request: &Request<'_>, key: &[u8]) -> Result<OperationResult, StoreError> {
        match request.op {
            Op::Get => self.read_one(key),
            Op::Put => {
                self.counters.requests_set.add();
                self.store.put(key, request.value)?;
                Ok(OperationResult { bytes: request.value.len(), ..OperationResult::default() })
            }
            Op::Scan => self.read_many(key, request.count as usize),
            Op::Ping => {
                self.counters.requests_other.add();
                Ok(OperationResult::default())
            }
        }
    }

    fn read_one(&self, key: &[u8]) -> Result<OperationResult, StoreError> {
        self.counters.requests_get.add();
        let mut value = Vec::new();
        let found = self.store.get(key, &mut value)?;
        if found {
            self.counters.get_hits.add()
        } else {
            self.counters.get_misses.add()
        }
        Ok(OperationResult {
            missing: !found,
            keys: found.into(),
            bytes: value.len(),
            digest: digest(0, &value),
        })
    }

    fn read_many(&self, from: &[u8], count: usize) -> Result<OperationResult, StoreError> {
        self.counters.requests_range.add();
        let mut found = OperationResult::default();
        let keys = self.store.scan(from, count, &mut |_, value| {
            found.bytes += value.len();
            found.digest = digest(found.digest, value);
            true
        })?;
        found.keys = keys as u32;
        Ok(found)
    }
}
