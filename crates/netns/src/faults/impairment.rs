//! What one direction of a relay does to frames. Pure: time is passed in.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use super::{INCREMENT, chance, mix};

/// The bytes of an Ethernet header.
const ETHERNET: usize = 14;

/// What a relay does to frames of one direction. Probabilities are from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RelayOptions {
    /// Selects which frames; the two directions of a relay differ.
    pub seed: u64,
    /// The probability that a frame is lost.
    pub loss: f64,
    /// The probability that a frame is sent twice, the copy with a delay of its own.
    pub duplicates: f64,
    /// The probability that a single bit behind the Ethernet header is wrong.
    pub corruption: f64,
    /// The probability that a frame is held back by [`RelayOptions::reordering_delay`], so later frames overtake it.
    pub reordering: f64,
    /// The additional delay of frames that are held back.
    pub reordering_delay: Duration,
    /// The delay of every frame.
    pub delay: Duration,
    /// The longest additional delay, evenly distributed. Frames overtake each other.
    pub jitter: Duration,
    /// The longest IP packet, in bytes: a longer one disappears, and its sender hears nothing of it.
    pub mtu: Option<usize>,
    /// The most frames under way; more are lost.
    pub queue: usize,
}

impl Default for RelayOptions {
    /// Passes every frame on without delay, with a queue of 4,096.
    fn default() -> Self {
        Self {
            seed: 0,
            loss: 0.0,
            duplicates: 0.0,
            corruption: 0.0,
            reordering: 0.0,
            reordering_delay: Duration::ZERO,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            mtu: None,
            queue: 4096,
        }
    }
}

/// What happened in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RelayCounts {
    /// Frames that came in, with those that are neither TCP nor UDP.
    pub frames: u64,
    /// Frames lost at random.
    pub lost: u64,
    /// Frames sent twice.
    pub duplicated: u64,
    /// Frames with a wrong bit.
    pub corrupted: u64,
    /// Frames held back.
    pub reordered: u64,
    /// Frames longer than the MTU, lost.
    pub too_long: u64,
    /// Frames lost because the queue was full.
    pub overflowed: u64,
    /// Frames lost before the relay saw them, because it was slow. They have no number.
    pub missed: u64,
}

/// The faults of one direction, and the frames under way. Times are since any fixed moment.
#[derive(Debug)]
pub struct Impairment {
    options: RelayOptions,
    counts: RelayCounts,
    /// The number of the next frame of TCP or UDP.
    number: u64,
    waiting: BinaryHeap<Reverse<Waiting>>,
    /// Keeps frames of the same time in order.
    order: u64,
}

/// A frame under way.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    due: Duration,
    order: u64,
    frame: Vec<u8>,
}

/// The random decisions about a frame: each has its own number, so a probability changes its own faults only.
#[derive(Clone, Copy)]
enum Decision {
    Loss,
    Duplicate,
    Corrupt,
    Bit,
    Reorder,
    Jitter,
    JitterOfCopy,
}

impl Impairment {
    /// Creates a direction without any frame.
    #[must_use]
    pub fn new(options: RelayOptions) -> Self {
        Self {
            options,
            counts: RelayCounts::default(),
            number: 0,
            waiting: BinaryHeap::new(),
            order: 0,
        }
    }

    /// Changes what happens to later frames.
    pub fn set(&mut self, options: RelayOptions) {
        self.options = options;
    }

    /// Returns what happened so far.
    #[must_use]
    pub fn counts(&self) -> RelayCounts {
        self.counts
    }

    /// Takes a frame that comes in at time `now`.
    pub fn offer(&mut self, now: Duration, mut frame: Vec<u8>) {
        self.counts.frames += 1;
        if self.options.mtu.is_some_and(|mtu| frame.len() > mtu + ETHERNET) {
            self.counts.too_long += 1;
            return;
        }
        if !is_impaired(&frame) {
            self.put(now + self.options.delay, frame);
            return;
        }
        let options = self.options;
        let number = self.number;
        self.number += 1;
        if self.happens(number, Decision::Loss, options.loss) {
            self.counts.lost += 1;
            return;
        }
        if self.happens(number, Decision::Corrupt, options.corruption) {
            self.counts.corrupted += 1;
            flip(&mut frame, self.draw(number, Decision::Bit));
        }
        if self.happens(number, Decision::Duplicate, options.duplicates) {
            self.counts.duplicated += 1;
            let due = now + options.delay + self.jitter(number, Decision::JitterOfCopy);
            self.put(due, frame.clone());
        }
        let mut due = now + options.delay + self.jitter(number, Decision::Jitter);
        if self.happens(number, Decision::Reorder, options.reordering) {
            self.counts.reordered += 1;
            due += options.reordering_delay;
        }
        self.put(due, frame);
    }

    /// Returns the next frame that goes out at time `now` or before.
    pub fn take(&mut self, now: Duration) -> Option<Vec<u8>> {
        if self.next()? > now {
            return None;
        }
        self.waiting.pop().map(|Reverse(waiting)| waiting.frame)
    }

    /// Returns when the next frame goes out.
    #[must_use]
    pub fn next(&self) -> Option<Duration> {
        self.waiting.peek().map(|Reverse(waiting)| waiting.due)
    }

    /// Counts frames that were lost before [`Impairment::offer`].
    pub fn miss(&mut self, frames: u64) {
        self.counts.missed += frames;
    }

    fn put(&mut self, due: Duration, frame: Vec<u8>) {
        if self.waiting.len() >= self.options.queue {
            self.counts.overflowed += 1;
            return;
        }
        self.order += 1;
        self.waiting.push(Reverse(Waiting { due, order: self.order, frame }));
    }

    fn draw(&self, number: u64, decision: Decision) -> u64 {
        let of_frame = mix(self.options.seed.wrapping_add(number.wrapping_mul(INCREMENT)));
        mix(of_frame.wrapping_add(decision as u64))
    }

    fn happens(&self, number: u64, decision: Decision, probability: f64) -> bool {
        self.draw(number, decision) >> 32 < chance(probability)
    }

    fn jitter(&self, number: u64, decision: Decision) -> Duration {
        self.options.jitter.mul_f64((self.draw(number, decision) >> 32) as f64 / 2_f64.powi(32))
    }
}

/// Returns whether random faults may happen to a frame: it is TCP or UDP, over IP without extensions.
fn is_impaired(frame: &[u8]) -> bool {
    let protocol = match frame.get(12..ETHERNET) {
        Some([0x08, 0x00]) => frame.get(ETHERNET + 9),
        Some([0x86, 0xdd]) => frame.get(ETHERNET + 6),
        _ => None,
    };
    matches!(protocol, Some(6 | 17))
}

/// Inverts one bit behind Ethernet header.
fn flip(frame: &mut [u8], random: u64) {
    let bits = (frame.len() - ETHERNET) as u64 * 8;
    let bit = random % bits;
    frame[ETHERNET + (bit / 8) as usize] ^= 1 << (bit % 8);
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A UDP frame over IPv4 with a number in it.
    fn frame(number: u32) -> Vec<u8> {
        let mut frame = vec![0; 64];
        frame[12] = 8;
        frame[ETHERNET + 9] = 17;
        frame[60..].copy_from_slice(&number.to_be_bytes());
        frame
    }

    fn number(frame: &[u8]) -> u32 {
        u32::from_be_bytes(frame[60..64].try_into().unwrap())
    }

    /// Passes `count` frames, one a millisecond, and returns their numbers as they come out.
    fn pass(options: RelayOptions, count: u32) -> (Vec<u32>, RelayCounts) {
        let mut direction = Impairment::new(options);
        let mut out = Vec::new();
        for k in 0..count {
            direction.offer(MS * k, frame(k));
            out.extend(std::iter::from_fn(|| direction.take(MS * k)).map(|frame| number(&frame)));
        }
        out.extend(
            std::iter::from_fn(|| direction.take(Duration::MAX)).map(|frame| number(&frame)),
        );
        (out, direction.counts())
    }

    #[test]
    fn without_options_every_frame_passes_in_order() {
        let (out, counts) = pass(RelayOptions::default(), 100);
        assert!(out.iter().copied().eq(0..100));
        assert_eq!(counts, RelayCounts { frames: 100, ..RelayCounts::default() });
    }

    #[test]
    fn the_same_seed_makes_the_same_faults_and_another_one_others() {
        let options =
            RelayOptions { loss: 0.2, duplicates: 0.2, reordering: 0.2, ..RelayOptions::default() };
        assert_eq!(pass(options, 500), pass(options, 500));
        assert_ne!(pass(options, 500), pass(RelayOptions { seed: 1, ..options }, 500));
    }

    #[test]
    fn what_is_lost_does_not_depend_on_other_faults() {
        let options = RelayOptions { loss: 0.3, ..RelayOptions::default() };
        let (with_copies, _) = pass(RelayOptions { duplicates: 0.5, ..options }, 300);
        let (out, _) = pass(options, 300);
        assert!(out.iter().all(|number| with_copies.contains(number)));
        assert!(with_copies.iter().all(|number| out.contains(number)));
    }

    #[test]
    fn frames_that_are_held_back_are_overtaken() {
        let options =
            RelayOptions { reordering: 0.1, reordering_delay: 5 * MS, ..RelayOptions::default() };
        let (mut out, counts) = pass(options, 200);
        assert!(counts.reordered > 0 && !out.is_sorted());
        out.sort_unstable();
        assert!(out.into_iter().eq(0..200));
    }

    #[test]
    fn a_wrong_bit_is_one_bit_behind_the_header() {
        let mut direction =
            Impairment::new(RelayOptions { corruption: 1.0, ..RelayOptions::default() });
        for k in 0..100 {
            direction.offer(MS, frame(k));
            let out = direction.take(MS).unwrap();
            let wrong: u32 = out.iter().zip(frame(k)).map(|(a, b)| (a ^ b).count_ones()).sum();
            assert_eq!((wrong, &out[..ETHERNET]), (1, &frame(k)[..ETHERNET]));
        }
    }

    #[test]
    fn long_packets_vanish_and_the_queue_is_bounded() {
        let options = RelayOptions { mtu: Some(49), ..RelayOptions::default() };
        assert_eq!(pass(options, 5).1.too_long, 5);
        let options = RelayOptions { mtu: Some(50), ..RelayOptions::default() };
        assert_eq!(pass(options, 5).1.too_long, 0);
        let options =
            RelayOptions { delay: Duration::from_secs(1), queue: 3, ..RelayOptions::default() };
        let (out, counts) = pass(options, 5);
        assert_eq!((out, counts.overflowed), (vec![0, 1, 2], 2));
    }

    #[test]
    fn what_is_neither_tcp_nor_udp_is_only_delayed() {
        let mut direction =
            Impairment::new(RelayOptions { loss: 1.0, delay: MS, ..RelayOptions::default() });
        let mut arp = frame(7);
        arp[13] = 6;
        direction.offer(Duration::ZERO, arp.clone());
        assert_eq!((direction.take(Duration::ZERO), direction.next()), (None, Some(MS)));
        assert_eq!(direction.take(MS), Some(arp));
    }
}
