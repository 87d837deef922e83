//! What few connections need: that of the others takes no memory.

use super::path::BlackHole;
use crate::config::KeepAlive;
use crate::reassembly::Reassembly;
use crate::scoreboard::Reordering;
use crate::seq::Seq;
use crate::wire::SackBlocks;
use alloc::boxed::Box;
use core::ops::Deref;
use heddle_core::Ns;

/// What is as it was at the beginning while nothing goes wrong and the application asks for nothing special.
#[derive(Debug)]
pub struct Rare {
    pub reordering: Reordering,
    pub black_hole: BlackHole,
    /// The last bits of the second, and challenge ACKs in it.
    pub challenges: (u16, u8),
    /// Segments sent again.
    pub retransmits: u32,
    pub keep_alive: Option<KeepAlive>,
    /// Keep-alive probes without an answer.
    pub probes: u8,
    /// Keep-alive, or the end of FIN_WAIT_2.
    pub idle_at: Ns,
    /// The number of the other end's FIN, if it came before all that it ends.
    pub fin: Option<Seq>,
    pub reassembly: Reassembly,
    /// Data that arrived twice (RFC 2883); empty if there is none.
    pub duplicate: (Seq, Seq),
}

impl Rare {
    const NONE: Rare = Rare {
        reordering: Reordering::NONE,
        black_hole: BlackHole::NONE,
        challenges: (0, 0),
        retransmits: 0,
        keep_alive: None,
        probes: 0,
        idle_at: Ns::MAX,
        fin: None,
        reassembly: Reassembly::new(),
        duplicate: (Seq(0), Seq(0)),
    };

    /// Whether data arrived twice that no acknowledgement has named.
    fn has_duplicate(&self) -> bool {
        self.duplicate.0 != self.duplicate.1
    }

    /// Whether there are SACK blocks to send.
    pub fn has_blocks(&self) -> bool {
        self.has_duplicate() || !self.reassembly.is_empty()
    }

    /// The SACK blocks to send: a D-SACK first, then the latest ranges.
    pub fn blocks(&self, most: usize, blocks: &mut SackBlocks) {
        if self.has_duplicate() {
            blocks.push(self.duplicate);
        }
        self.reassembly.blocks(most, blocks);
    }
}

/// A [`Rare`] that has memory from its first change on.
#[derive(Debug, Default)]
pub struct Lazy(Option<Box<Rare>>);

impl Lazy {
    /// Returns it to be changed.
    pub fn edit(&mut self) -> &mut Rare {
        self.0.get_or_insert_with(|| Box::new(Rare::NONE))
    }

    /// Returns it if it was changed before: the test that each segment pays.
    #[inline]
    pub fn known(&self) -> Option<&Rare> {
        self.0.as_deref()
    }

    /// Returns it, to be changed again, if it was before.
    #[inline]
    pub fn changed(&mut self) -> Option<&mut Rare> {
        self.0.as_deref_mut()
    }
}

impl Deref for Lazy {
    type Target = Rare;

    #[inline]
    fn deref(&self) -> &Rare {
        static NONE: Rare = Rare::NONE;
        self.0.as_deref().unwrap_or(&NONE)
    }
}
