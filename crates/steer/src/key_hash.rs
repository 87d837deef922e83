//! The hash of the policy `key-hash`, for programs that lay out their data by it.

/// The hash of a key; its home is the executor `key_hash(key) % executors`.
///
/// ```
/// assert_eq!(heddle_steer::key_hash(b"key:000000000042") % 4, 3);
/// ```
#[must_use]
pub fn key_hash(key: &[u8]) -> u32 {
    let fnv = key.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    mix(fnv)
}

/// `hd_mix` of `heddle/policy.h`.
fn mix(mut key: u64) -> u32 {
    key ^= key >> 33;
    key = key.wrapping_mul(0xff51_afd7_ed55_8ccd);
    key ^= key >> 33;
    (key.wrapping_mul(0xc4ce_b9fe_1a85_ec53) >> 32) as u32
}
