//! The machine's addresses: what a claim for any address means.

use std::collections::HashSet;
use std::io;
use std::net::IpAddr;

use crate::hook::xdp::map;
use crate::policy::Maps;

/// Bytes of `struct hd_address`.
const ADDRESS: usize = 24;

/// Makes `addresses` those of `hd_local`. New ones are added before old ones are removed.
pub(super) fn set(maps: &Maps, addresses: &[IpAddr]) -> io::Result<()> {
    let map = map(maps, "hd_local")?;
    let is_remote = |ip: &&IpAddr| !ip.is_loopback() && !ip.is_unspecified();
    let wanted: HashSet<[u8; ADDRESS]> = addresses.iter().filter(is_remote).map(key).collect();
    for key in &wanted {
        map.update(key, &[0; 4])?;
    }
    for key in map.keys()? {
        if !wanted.iter().any(|wanted| wanted[..] == key) {
            map.remove(&key)?;
        }
    }
    Ok(())
}

fn key(ip: &IpAddr) -> [u8; ADDRESS] {
    let mut key = [0; ADDRESS];
    let family: u64 = match ip.to_canonical() {
        IpAddr::V4(ip) => {
            key[..4].copy_from_slice(&ip.octets());
            4
        }
        IpAddr::V6(ip) => {
            key[..16].copy_from_slice(&ip.octets());
            6
        }
    };
    key[16..].copy_from_slice(&family.to_ne_bytes());
    key
}
