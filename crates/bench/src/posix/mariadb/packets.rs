//! Packets of MariaDB's protocol: the handshake without a password, and queries as text.

use std::io;

/// Bytes of a packet's head: three of length, one of sequence number.
const HEAD: usize = 4;
/// The length of a packet that goes on in the next one; none of the bench's is so long.
const LONGEST: usize = 0xff_ffff;

/// Names of the protocol's capabilities that the client claims.
const LONG_PASSWORD: u32 = 1;
const CONNECT_WITH_DB: u32 = 1 << 3;
const PROTOCOL_41: u32 = 1 << 9;
const TRANSACTIONS: u32 = 1 << 13;
const SECURE_CONNECTION: u32 = 1 << 15;
const PLUGIN_AUTH: u32 = 1 << 19;

const COM_QUERY: u8 = 3;
/// `utf8mb4_general_ci`
const CHARSET: u8 = 45;

/// How a query ended: the first value of its first row, or the server's message.
pub(super) type Outcome = Result<Option<String>, String>;

/// Appends a packet.
pub(super) fn packet(out: &mut Vec<u8>, sequence: u8, payload: &[&[u8]]) {
    let length: usize = payload.iter().map(|part| part.len()).sum();
    assert!(length < LONGEST, "a packet of {length} bytes");
    out.extend_from_slice(&(length as u32).to_le_bytes()[..3]);
    out.push(sequence);
    payload.iter().for_each(|part| out.extend_from_slice(part));
}

/// Appends a query.
pub(super) fn query(out: &mut Vec<u8>, sql: &str) {
    packet(out, 0, &[&[COM_QUERY], sql.as_bytes()]);
}

/// Returns the payload of the first packet; `None` if it is incomplete.
///
/// # Errors
/// It is longer than the bench's are.
pub(super) fn first(bytes: &[u8]) -> io::Result<Option<(&[u8], usize)>> {
    let Some(head) = bytes.first_chunk::<HEAD>() else { return Ok(None) };
    let length = u32::from_le_bytes([head[0], head[1], head[2], 0]) as usize;
    if length >= LONGEST {
        return Err(invalid("a packet of 16 MiB"));
    }
    Ok(bytes.get(HEAD..HEAD + length).map(|payload| (payload, HEAD + length)))
}

/// Checks the server's greeting.
///
/// # Errors
/// It refuses the connection, or speaks another protocol.
pub(super) fn check_greeting(payload: &[u8]) -> io::Result<()> {
    match payload.first() {
        Some(10) => Ok(()),
        Some(0xff) => Err(io::Error::other(message(payload))),
        _ => Err(invalid("a greeting that is not of protocol 10")),
    }
}

/// Appends the answer to a greeting: `user` without a password.
pub(super) fn log_in(out: &mut Vec<u8>, user: &str, database: &str) {
    let mut claims = LONG_PASSWORD | PROTOCOL_41 | TRANSACTIONS | SECURE_CONNECTION | PLUGIN_AUTH;
    claims |= if database.is_empty() { 0 } else { CONNECT_WITH_DB };
    let largest = (LONGEST as u32).to_le_bytes();
    let database: &[&[u8]] = if database.is_empty() { &[] } else { &[database.as_bytes(), &[0]] };
    let fixed: [&[u8]; 5] =
        [&claims.to_le_bytes(), &largest, &[CHARSET], &[0; 23], user.as_bytes()];
    // The end of the user's name, and an empty answer to the challenge.
    let parts = [&fixed, &[&[0u8, 0][..]] as &[&[u8]], database, &[b"mysql_native_password\0"]];
    packet(out, 1, &parts.concat());
}

/// The answer to one query, packet by packet: an OK or an error; or columns, a mark, rows, a mark.
#[derive(Debug, Default)]
pub(super) struct Reply {
    started: bool,
    marks: u8,
    value: Option<String>,
}

impl Reply {
    /// Takes the next packet. Returns the outcome if it is the last; the next packet begins a new reply then.
    ///
    /// # Errors
    /// It belongs to no answer to a query.
    pub(super) fn take(&mut self, payload: &[u8]) -> io::Result<Option<Outcome>> {
        let outcome = match payload.first() {
            None => return Err(invalid("an empty packet")),
            Some(0xff) => Err(message(payload)),
            Some(0) if !self.started => Ok(None),
            Some(0xfb) if !self.started => return Err(invalid("a request for a file")),
            Some(0xfe) if payload.len() < 9 => {
                self.marks += 1;
                if self.marks < 2 {
                    return Ok(None);
                }
                Ok(self.value.take())
            }
            Some(_) => {
                if self.marks == 1 && self.value.is_none() {
                    self.value = text(payload);
                }
                self.started = true;
                return Ok(None);
            }
        };
        *self = Reply::default();
        Ok(Some(outcome))
    }
}

/// The first value of a row; `None` for NULL and for values above 250 bytes, which the bench does not read.
fn text(row: &[u8]) -> Option<String> {
    let (&length, rest) = row.split_first()?;
    if length > 250 {
        return None;
    }
    rest.get(..length.into()).map(|value| String::from_utf8_lossy(value).into_owned())
}

/// The server's message in an error packet: a code of two bytes, the SQL state after `#`, the text.
fn message(payload: &[u8]) -> String {
    let text = payload.get(3..).unwrap_or_default();
    let text = if text.first() == Some(&b'#') { text.get(6..).unwrap_or_default() } else { text };
    format!("MariaDB says: {}", String::from_utf8_lossy(text).trim())
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("MariaDB sent {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds packets; returns the outcome of the last.
    fn outcome(packets: &[&[u8]]) -> io::Result<Option<Outcome>> {
        let mut reply = Reply::default();
        let (last, before) = packets.split_last().unwrap();
        for packet in before {
            assert_eq!(reply.take(packet).unwrap(), None, "{packet:?}");
        }
        reply.take(last)
    }

    const MARK: &[u8] = &[0xfe, 0, 0, 2, 0];
    const COLUMN: &[u8] = b"\x03def\x00\x00\x00\x01k\x00";

    #[test]
    fn replies_end_at_an_ok_an_error_or_the_second_mark() {
        assert_eq!(outcome(&[&[0, 1, 0, 2, 0]]).unwrap(), Some(Ok(None)));
        let error = b"\xff\x7a\x04#42S02Table 'a.b' doesn't exist";
        let said = "MariaDB says: Table 'a.b' doesn't exist";
        assert_eq!(outcome(&[error]).unwrap(), Some(Err(said.into())));
        let rows: [&[u8]; 6] = [&[1], COLUMN, MARK, b"\x0217", b"\x0218", MARK];
        assert_eq!(outcome(&rows).unwrap(), Some(Ok(Some("17".into()))));
        let none: [&[u8]; 4] = [&[1], COLUMN, MARK, MARK];
        assert_eq!(outcome(&none).unwrap(), Some(Ok(None)));
        // An error in the middle of the rows.
        assert_eq!(
            outcome(&[&[1], COLUMN, MARK, b"\x0217", error]).unwrap(),
            Some(Err(said.into()))
        );
    }

    #[test]
    fn an_empty_value_and_null_are_rows() {
        let rows = |value: &[u8]| outcome(&[&[1], COLUMN, MARK, value, MARK]).unwrap();
        assert_eq!(rows(&[0]), Some(Ok(Some(String::new()))));
        assert_eq!(rows(&[0xfb]), Some(Ok(None)));
        assert_eq!(rows(&[5, b'a']), Some(Ok(None)), "shorter than it says");
    }

    #[test]
    fn what_is_no_answer_is_an_error() {
        assert!(outcome(&[&[]]).is_err());
        assert!(outcome(&[b"\xfb/etc/passwd"]).is_err());
        assert!(check_greeting(&[9]).is_err() && check_greeting(&[]).is_err());
        let refused = check_greeting(b"\xff\x10\x04Too many connections").unwrap_err();
        assert_eq!(refused.to_string(), "MariaDB says: Too many connections");
        check_greeting(b"\x0a10.11\0").unwrap();
    }

    #[test]
    fn a_packet_is_read_when_it_is_complete() {
        let mut bytes = Vec::new();
        query(&mut bytes, "SELECT 1");
        assert_eq!(bytes[..5], [9, 0, 0, 0, 3]);
        for cut in 0..bytes.len() {
            assert_eq!(first(&bytes[..cut]).unwrap(), None);
        }
        bytes.push(7);
        assert_eq!(first(&bytes).unwrap(), Some((&b"\x03SELECT 1"[..], 13)));
        assert!(first(&[0xff, 0xff, 0xff, 0]).is_err());
    }

    #[test]
    fn the_answer_to_the_greeting_names_user_database_and_method() {
        let mut bytes = Vec::new();
        log_in(&mut bytes, "root", "bench");
        let (payload, length) = first(&bytes).unwrap().unwrap();
        assert_eq!((length, bytes[3]), (bytes.len(), 1));
        assert_eq!(&payload[32..], b"root\0\0bench\0mysql_native_password\0");
        assert_ne!(payload[0] & CONNECT_WITH_DB as u8, 0);
        let mut bytes = Vec::new();
        log_in(&mut bytes, "root", "");
        assert_eq!(&bytes[36..], b"root\0\0mysql_native_password\0");
        assert_eq!(bytes[4] & CONNECT_WITH_DB as u8, 0);
    }
}
