//! TCP headers and options. What is read and written again is read as the same.
#![no_main]

use heddle_tcp::wire::{Flags, Header, Options, Outgoing, OutgoingOptions, parse};
use libfuzzer_sys::fuzz_target;

/// The same header as one that is sent; `None` if its options do not fit there.
fn outgoing(header: &Header) -> Option<Outgoing> {
    let Options { mss, window_scale, sack_permitted, timestamps, sack } = header.options;
    let options = OutgoingOptions { mss, window_scale, sack_permitted, timestamps, sack };
    let &Header { source_port, destination_port, seq, ack, flags, window, .. } = header;
    let out = Outgoing { source_port, destination_port, seq, ack, flags, window, options };
    (out.length() <= 60).then_some(out)
}

fuzz_target!(|input: &[u8]| {
    let Ok((header, payload)) = parse(input) else { return };
    assert!(payload.len() <= input.len() - 20 && input.ends_with(payload));
    assert!(header.length(payload) >= payload.len() as u32);
    assert!(header.options.window_scale.is_none_or(|shift| shift <= 14));
    assert_eq!(header.is(Flags::RST), input[13] & 4 != 0);
    let Some(out) = outgoing(&header) else { return };
    let mut bytes = vec![0; out.length()];
    out.write(&mut bytes);
    assert_eq!(parse(&bytes), Ok((header, &[][..])));
});
