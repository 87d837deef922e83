//! Networks that fail: losses, duplicates, delay, reordering, corruption, black holes and bottlenecks.
//!
//! | what | where | faults |
//! |---|---|---|
//! | [`Loss`] | at an interface of either end, in the kernel | losses and duplicates |
//! | [`Relay`] | a program between the ends | all but a limited rate |
//! | [`Bottleneck`] | a router between the ends | a limited rate with a short queue; a smaller MTU, with ICMP |
//!
//! Random faults follow from a seed and the number of the packet, so that the same traffic meets the same faults. They
//! spare packets that are neither TCP nor UDP: a lost ARP or neighbour discovery would only make every test wait.
//!
//! AF_XDP sockets bypass `tc`: a [`Loss`] belongs on the end that uses the kernel's network.

mod bottleneck;
mod impairment;
mod loss;
mod relay;

pub use bottleneck::{Bottleneck, BottleneckOptions};
pub use impairment::{Impairment, RelayCounts, RelayOptions};
pub use loss::{Loss, LossCounts, LossOptions};
pub use relay::Relay;

/// Returns a probability as a number of 2^32.
fn chance(probability: f64) -> u64 {
    (probability.clamp(0.0, 1.0) * 2_f64.powi(32)) as u64
}

/// The increment of SplitMix64, and its output for a state (Steele, Lea and Flood, OOPSLA 2014). `bpf/faults` has the
/// same.
const INCREMENT: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(state: u64) -> u64 {
    let state = state.wrapping_add(INCREMENT);
    let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}
