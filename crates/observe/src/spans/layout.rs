//! What the span programs share (`bpf/observe/include/spans.h`), as words of eight bytes.

use heddle_core::Ns;

use crate::{Off, Span};

/// Keys in a set of a table.
pub(crate) const WAYS: usize = 8;
/// System calls with a reason of their own.
pub(super) const SYSCALLS: usize = 512;

/// Words of a request.
pub(super) const REQUEST: usize = 19;
/// The word of a socket that holds its state, and the value for a request in work.
pub(super) const STATE: usize = 24;
pub(super) const OPEN: u64 = 1;

/// Words of `ob_control`.
pub(super) mod control {
    pub(crate) const ON: usize = 0;
    pub(crate) const RESTRICTED: usize = 1;
    pub(crate) const LOST: usize = 2;
    pub(crate) const REFUSED: usize = 3;
    pub(crate) const UNANSWERED: usize = 4;
    pub(crate) const REQUESTS: usize = 5;
    pub(crate) const UNKNOWN: usize = 6;
}

const FIRST: u64 = 1;
const OVERLAPPED: u64 = 2;
const UNCONFIRMED: u64 = 4;
const PIPELINED: u64 = 8;

/// Reads a request as the kernel's programs wrote it.
pub(super) fn span(words: &[u64; REQUEST]) -> Span {
    let ns = |at: usize| Ns(words[at]);
    let half = |at: usize| (words[14 + at / 2] >> (32 * (at % 2))) as u32;
    let flags = words[17] >> 48;
    Span {
        connection: words[0],
        queue: words[1],
        port: (words[17] >> 32) as u16,
        arrived: ns(2),
        ready: ns(3),
        received: ns(4),
        answered: ns(5),
        cpu: ns(6),
        run_queue: ns(7),
        off: Off {
            futex: ns(8),
            sleep: ns(9),
            read: ns(10),
            write: ns(11),
            file: ns(12),
            other: ns(13),
        },
        wake_delay: ns(18).min(ns(4) - ns(3)),
        reader: half(0),
        writer: half(1),
        process: half(2),
        reads: half(3),
        writes: half(4),
        bytes_in: half(5),
        bytes_out: half(6),
        first: flags & FIRST != 0,
        overlapped: flags & OVERLAPPED != 0,
        pipelined: flags & PIPELINED != 0,
        unconfirmed: flags & UNCONFIRMED != 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_the_header_has_them() {
        let mut words = [0; REQUEST];
        (0..14).for_each(|at| words[at] = at as u64 + 1);
        words[14] = 0x22 << 32 | 0x11;
        words[15] = 0x44 << 32 | 0x33;
        words[16] = 0x66 << 32 | 0x55;
        words[17] = 5 << 48 | 8080 << 32 | 0x77;
        let span = span(&words);
        assert_eq!((span.connection, span.queue, span.arrived), (1, 2, Ns(3)));
        assert_eq!((span.answered, span.cpu, span.run_queue), (Ns(6), Ns(7), Ns(8)));
        assert_eq!((span.off.futex, span.off.other), (Ns(9), Ns(14)));
        assert_eq!((span.reader, span.writer, span.process, span.reads), (0x11, 0x22, 0x33, 0x44));
        assert_eq!((span.writes, span.bytes_in, span.bytes_out), (0x55, 0x66, 0x77));
        assert_eq!((span.port, span.first), (8080, true));
        assert!(span.unconfirmed && !span.overlapped);
    }
}
