//! The datagrams of the bench; the fields that policies read come first.
//!
//! | offset | type | field |
//! |---|---|---|
//! | 0 | u16 | zero |
//! | 2 | u8 | type: GET 1, SCAN 3, where the policies `sita` and `class` look by themselves |
//! | 3 | 5 bytes | zero |
//! | 8 | 7 bytes | request id, echoed |
//! | 15 | u8 | user: 0 latency-sensitive, 1 best-effort, where the policy `token` looks |
//!
//! This is the header of the key-value server's datagram ([`heddle_proto::udp`]). An answer is the id and the
//! service time in ns.

use heddle_core::Ns;

use heddle_load::{Answer, Op};

/// Bytes of a request, and of an answer.
pub const LEN: usize = 16;
/// The type of a GET, and the class of an executor that serves one.
pub const GET: u8 = 1;
/// The same for a SCAN.
pub const SCAN: u8 = 3;
/// The byte with the type, and the one with the user.
const TYPE: usize = 2;
const USER: usize = 15;

fn word(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

/// The datagram of a request.
pub fn request(op: Op, id: u64) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    bytes[8..].copy_from_slice(&id.to_le_bytes());
    bytes[TYPE] = if op == Op::Scan { SCAN } else { GET };
    bytes[USER] = u8::from(op == Op::Set);
    bytes
}

/// The operation of a datagram, and its id; `None` if it is not a request.
pub fn asked(bytes: &[u8]) -> Option<(Op, u64)> {
    if bytes.len() != LEN {
        return None;
    }
    let op = match (bytes[TYPE], bytes[USER]) {
        (GET, 0) => Op::Get,
        (GET, 1) => Op::Set,
        (SCAN, 0) => Op::Scan,
        _ => return None,
    };
    Some((op, word(&bytes[8..]) & (u64::MAX >> 8)))
}

/// The answer to request `id`.
pub fn answer(id: u64, service: Ns) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    bytes[..8].copy_from_slice(&id.to_le_bytes());
    bytes[8..].copy_from_slice(&service.0.to_le_bytes());
    bytes
}

/// Parses an answer; `None` if it is not one.
pub fn answered(bytes: &[u8]) -> Option<Answer> {
    (bytes.len() == LEN).then(|| Answer {
        id: word(&bytes[..8]),
        ok: true,
        service: Some(Ns(word(&bytes[8..]))),
        at: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_answers_come_back() {
        for op in Op::ALL {
            assert_eq!(asked(&request(op, 7)), Some((op, 7)));
        }
        assert_eq!(asked(&[9; LEN]), None);
        assert_eq!(asked(&request(Op::Get, 7)[..15]), None);
        let expected = Answer { id: 9, ok: true, service: Some(Ns(550)), at: None };
        assert_eq!(answered(&answer(9, Ns(550))), Some(expected));
    }
}
