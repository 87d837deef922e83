//! memcached's UDP: one request in one datagram, behind a frame header of four numbers in network order: the request's
//! id, which the reply repeats, the datagram's number, the number of datagrams, and zero.
//!
//! memcached splits long replies into several datagrams. Here a reply is one datagram of at most [`MOST`] bytes, and
//! a longer one is refused: servers that answer short datagrams with long ones are used to flood others by forged
//! addresses.

use crate::limits::Reservation;
use crate::service::Service;
use crate::wire::{Turn, Wire};
use heddle_proto::memcached::{Reader, line};
use heddle_store::Section;

/// Bytes of the frame header.
const FRAME: usize = 8;
/// The longest datagram of a reply (`UDP_MAX_PAYLOAD_SIZE` of memcached).
const MOST: usize = 1400;
/// Bytes that a datagram's replies may hold without drawing on the account of all connections.
const OWN: usize = 4 << 10;

impl<S: Section> Service<S> {
    /// Returns the reply to a datagram; `None`, counted, if it has no frame header, and if no reply is wanted.
    pub(crate) fn memcached_datagram(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let Some((frame, body)) = bytes.split_first_chunk::<FRAME>() else {
            self.counters.datagrams_malformed.add();
            return None;
        };
        let [id0, id1, _, _, total0, total1, ..] = *frame;
        let mut out = vec![id0, id1, 0, 0, 0, 1, 0, 0];
        if u16::from_be_bytes([total0, total1]) == 1 {
            self.converse(body, &mut out);
        } else {
            self.counters.request_errors.add();
            line(&mut out, "SERVER_ERROR multi-packet request not supported");
        }
        (out.len() > FRAME).then_some(out)
    }

    fn converse(&self, body: &[u8], out: &mut Vec<u8>) {
        let mut wire = Wire::Memcached(Reader::new());
        wire.push(body);
        let mut hold = Reservation::with(&self.bounds, OWN);
        while matches!(wire.perform(self, &mut hold, out), Turn::Done) {
            if out.len() > MOST {
                self.counters.request_errors.add();
                out.truncate(FRAME);
                line(out, "SERVER_ERROR the reply is longer than a datagram; use TCP");
                return;
            }
        }
    }
}
