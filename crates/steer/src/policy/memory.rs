//! How much kernel memory a map takes: computed here only, for limits, quotas and reports.

use std::io;

use heddle_bpf::{MapKind, MapSpec, possible_cpus};

use super::load::spec;
use super::object::MapDecl;

/// Returns the bytes of kernel memory that a map takes, except the kernel's bookkeeping.
///
/// # Errors
/// If the number of possible CPUs, on which hash maps depend, cannot be read; once read, it is cached.
pub fn map_memory(map: &MapSpec) -> io::Result<u64> {
    let cpus = if map.kind == MapKind::Hash { possible_cpus()? } else { 0 };
    Ok(memory(map, cpus.into()))
}

/// An array created without CAP_PERFMON, as for unprivileged users, is rounded up to a power of two of
/// values, so that indices can be masked. A hash map has a spare value per possible CPU, 48 bytes and its key
/// with each value, and buckets.
fn memory(map: &MapSpec, cpus: u64) -> u64 {
    let value = u64::from(map.value_size).next_multiple_of(8);
    let entries = u64::from(map.entries);
    let rounded = entries.next_power_of_two();
    if map.kind == MapKind::Hash {
        let each = u64::from(map.key_size).next_multiple_of(8) + value + 48;
        let (values, buckets) = (each.saturating_mul(entries + cpus), rounded * 16);
        return values.saturating_add(buckets).saturating_add(cpus * 8);
    }
    value.saturating_mul(rounded).saturating_add(4095) & !4095
}

impl MapDecl {
    /// Returns the bytes of kernel memory that it takes.
    ///
    /// # Errors
    /// If the number of possible CPUs cannot be read.
    pub fn memory(&self) -> io::Result<u64> {
        map_memory(&spec(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(kind: MapKind, key_size: u32, value_size: u32, entries: u32) -> MapSpec {
        let (name, read_only) = (String::new(), false);
        MapSpec { name, kind, key_size, value_size, entries, read_only }
    }

    #[test]
    fn hash_maps_preallocate_a_spare_value_per_cpu() {
        let one = map(MapKind::Hash, 4, 4096, 1);
        assert_eq!(memory(&one, 2) - memory(&one, 1), 8 + 4096 + 48 + 8);
        assert!(memory(&one, 128) >= 129 * 4096);
        let there = possible_cpus().expect("countable");
        assert_eq!(map_memory(&one).expect("countable"), memory(&one, there.into()));
    }

    #[test]
    fn arrays_are_rounded_up_to_a_power_of_two() {
        assert_eq!(memory(&map(MapKind::Array, 4, 4096, 65), 2), 128 * 4096);
        assert_eq!(memory(&map(MapKind::Array, 4, 4096, 64), 2), 64 * 4096);
        assert_eq!(memory(&map(MapKind::Array, 4, 1, 1), 2), 4096);
    }

    #[test]
    fn huge_sizes_do_not_overflow() {
        for kind in [MapKind::Hash, MapKind::Array] {
            let large = map(kind, u32::MAX, u32::MAX, u32::MAX);
            assert!(memory(&large, u32::MAX.into()) >= u64::MAX - 4095);
        }
    }
}
