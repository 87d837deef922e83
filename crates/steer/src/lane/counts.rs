//! What became of the packets of lanes.

use std::io;

use super::Deployment;
use crate::hook::{counts, xdp::map};

/// Packets since the deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Per lane: packets redirected to it.
    pub selected: Vec<u64>,
    /// Per lane: packets for it that passed to the kernel, because it has no socket on their queue.
    pub failed: Vec<u64>,
    /// Packets that the policy left to the kernel.
    pub passed: u64,
    /// Choices of a lane that there is not, also left to the kernel.
    pub wrong_lane: u64,
    /// Packets that the policy dropped.
    pub dropped: u64,
    /// Segments of outgoing connections, which no policy sees.
    pub outgoing: u64,
    /// ICMP errors about packets of the process, redirected to lane 0.
    pub errors: u64,
    /// First fragments of TCP segments, dropped.
    pub fragments: u64,
    /// Packets from sources that are not allowed, dropped.
    pub denied: u64,
    /// Packets of claims that no socket proves any longer, left to the kernel.
    pub unproven: u64,
    /// SYNs whose lane was recorded.
    pub flows: u64,
    /// SYNs whose lane could not be recorded: the connection is in its home lane, by its hash.
    pub flows_full: u64,
}

impl Deployment {
    /// Returns the counts, of all CPUs together.
    ///
    /// # Errors
    /// The kernel's.
    pub fn counts(&self) -> io::Result<Counts> {
        let mut lanes = counts::read(&self.maps)?;
        lanes.selected.truncate(self.lanes as usize);
        lanes.failed.truncate(self.lanes as usize);
        let [outgoing, errors, fragments, denied, unproven, flows, flows_full] = self.sums()?;
        Ok(Counts {
            selected: lanes.selected,
            failed: lanes.failed,
            passed: lanes.passed,
            wrong_lane: lanes.wrong_index,
            dropped: lanes.dropped,
            outgoing,
            errors,
            fragments,
            denied,
            unproven,
            flows,
            flows_full,
        })
    }

    /// `struct hd_lane_count`.
    fn sums(&self) -> io::Result<[u64; 7]> {
        let bytes = map(&self.maps, "hd_lane_counts")?.lookup(&0_u32.to_ne_bytes())?;
        let mut sums = [0; 7];
        for (at, word) in bytes.unwrap_or_default().chunks_exact(8).enumerate() {
            sums[at % 7] += word.try_into().map_or(0, u64::from_ne_bytes);
        }
        Ok(sums)
    }
}
