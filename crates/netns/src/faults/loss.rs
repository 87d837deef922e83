//! Losses and duplicates at an interface.

use rustix::io::Errno;
use std::io;
use std::sync::atomic::Ordering;

use heddle_bpf::{Link, MapView, OpenObject};

use super::{chance, mix};
use crate::Namespace;

/// The program and its maps (`bpf/faults/faults.bpf.c`).
mod object {
    include!(concat!(env!("OUT_DIR"), "/objects.rs"));
}

/// The words of a direction in the map.
const SEED: usize = 0;
const LOSS: usize = 1;
const DUPLICATES: usize = 2;
const PACKETS: usize = 3;
const LOST: usize = 4;
const DUPLICATED: usize = 5;

/// How often packets are lost or duplicated. Probabilities are from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LossOptions {
    /// Selects which packets; the two directions differ.
    pub seed: u64,
    /// The probability that a packet that arrives is lost.
    pub incoming_loss: f64,
    /// The probability that a packet that leaves is lost.
    pub outgoing_loss: f64,
    /// The probability that a packet that arrives, and was not lost, arrives twice.
    pub incoming_duplicates: f64,
    /// The probability that a packet that leaves, and was not lost, leaves twice.
    pub outgoing_duplicates: f64,
}

impl LossOptions {
    /// Returns the same loss both ways.
    #[must_use]
    pub fn both_ways(seed: u64, loss: f64) -> Self {
        Self { seed, incoming_loss: loss, outgoing_loss: loss, ..Self::default() }
    }
}

/// What happened in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossCounts {
    /// Packets of TCP and UDP, copies not included.
    pub packets: u64,
    /// Packets lost.
    pub lost: u64,
    /// Packets sent or received twice.
    pub duplicated: u64,
}

/// Losses and duplicates at an interface, by programs at tc. They end when it is dropped.
///
/// Segmentation offload must be off (as it is in a [`crate::Pair`]), or one loss is that of many segments.
#[derive(Debug)]
pub struct Loss {
    directions: MapView,
    _incoming: Link,
    _outgoing: Link,
}

impl Loss {
    /// Begins to lose and duplicate packets of an interface.
    ///
    /// # Errors
    /// There is no such interface; a lack of privilege; a kernel before 6.6 is [`Unsupported`](io::ErrorKind).
    pub fn new(namespace: &Namespace, interface: &str, options: LossOptions) -> io::Result<Self> {
        let index = namespace.index_of(interface)?;
        let load = OpenObject::read("faults", object::FAULTS).and_then(OpenObject::load);
        let object = load.map_err(io::Error::other)?;
        let directions = MapView::new(&object.map("directions")?)?;
        write(&directions, options);
        let (incoming, outgoing) = (object.program("incoming")?, object.program("outgoing")?);
        let attach =
            || Ok((Link::tcx(&incoming, index, false)?, Link::tcx(&outgoing, index, true)?));
        let (incoming, outgoing) = namespace.run(attach).map_err(|error: io::Error| {
            let message = format!(
                "cannot attach a program to {interface} at tc (it needs Linux 6.6): {error}"
            );
            let is_old = error.raw_os_error() == Some(Errno::INVAL.raw_os_error());
            let kind = if is_old { io::ErrorKind::Unsupported } else { error.kind() };
            io::Error::new(kind, message)
        })?;
        Ok(Self { directions, _incoming: incoming, _outgoing: outgoing })
    }

    /// Changes how often packets are lost or duplicated. The numbers of packets go on.
    pub fn set(&self, options: LossOptions) {
        write(&self.directions, options);
    }

    /// Returns what happened to packets that arrived.
    #[must_use]
    pub fn incoming(&self) -> LossCounts {
        self.counts(0)
    }

    /// Returns what happened to packets that left.
    #[must_use]
    pub fn outgoing(&self) -> LossCounts {
        self.counts(1)
    }

    fn counts(&self, direction: usize) -> LossCounts {
        let read = |word| self.directions.word(direction, word).load(Ordering::Relaxed);
        LossCounts { packets: read(PACKETS), lost: read(LOST), duplicated: read(DUPLICATED) }
    }
}

fn write(directions: &MapView, options: LossOptions) {
    let of = [
        (options.incoming_loss, options.incoming_duplicates),
        (options.outgoing_loss, options.outgoing_duplicates),
    ];
    for (direction, (loss, duplicates)) in of.into_iter().enumerate() {
        let set = |word, value| directions.word(direction, word).store(value, Ordering::Relaxed);
        set(SEED, mix(options.seed.wrapping_add(direction as u64)));
        set(LOSS, chance(loss));
        set(DUPLICATES, chance(duplicates));
    }
}
