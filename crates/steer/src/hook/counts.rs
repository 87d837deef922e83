//! Outcomes of a policy's inputs: the map `hd_counts`.

use std::io;

use heddle_bpf::Map;

use crate::policy::Maps;

/// Inputs of a policy, by outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Per executor: inputs delivered to it.
    pub selected: Vec<u64>,
    /// Per executor: inputs chosen for it that could not be delivered.
    pub failed: Vec<u64>,
    /// Per executor: inputs chosen for it that went to another because its socket is closed.
    pub moved: Vec<u64>,
    /// Left to the kernel.
    pub passed: u64,
    /// Choices of an invalid index, also left to the kernel.
    pub wrong_index: u64,
    /// Dropped.
    pub dropped: u64,
}

/// An entry of the map, all CPUs together: `struct hd_count` of `bpf/include/hooks.h`.
fn line(map: &Map, index: u32) -> io::Result<[u64; 3]> {
    let value = map.lookup(&index.to_ne_bytes())?.unwrap_or_default();
    let words = value.chunks_exact(8).map(|b| b.try_into().map_or(0, u64::from_ne_bytes));
    Ok(words.enumerate().fold([0; 3], |mut sum, (i, word)| {
        sum[i % 3] += word;
        sum
    }))
}

/// Reads the counts. All are zero before a policy is loaded.
pub(crate) fn read(maps: &Maps) -> io::Result<Counts> {
    let Some(map) = maps.get("hd_counts") else { return Ok(Counts::default()) };
    let executors = map.spec().entries.saturating_sub(1);
    let mut counts = Counts::default();
    for index in 0..executors {
        let [selected, failed, moved] = line(map, index)?;
        counts.selected.push(selected);
        counts.failed.push(failed);
        counts.moved.push(moved);
    }
    [counts.passed, counts.wrong_index, counts.dropped] = line(map, executors)?;
    Ok(counts)
}
