//! XDP Offload: whether a card runs programs itself.

use std::io;

use heddle_bpf::{Link, LoadError as Refused, Program, ProgramKind, ProgramSpec, xdp_programs};

use super::Interface;

/// `r0 = XDP_PASS; exit`.
pub(crate) const PASS: [u64; 2] = [0x0000_0002_0000_00b7, 0x95];

/// Why packets cannot be steered on the card.
#[derive(Debug, thiserror::Error)]
pub enum OffloadRefused {
    /// It runs no programs; next to no card does.
    #[error(
        "the card behind {interface} runs no programs ({error}): the hooks xdp-drv and cpu-redirect do the same work in its driver"
    )]
    NoSuchCard {
        /// Its name.
        interface: String,
        /// What the kernel said.
        error: io::Error,
    },
    /// Something else, of which the card's ability does not follow.
    #[error("cannot find out whether the card behind {interface} runs programs: {error}")]
    Unknown {
        /// Its name.
        interface: String,
        /// What the kernel said.
        error: io::Error,
    },
}

/// Whether the card behind `interface` runs programs: one that lets everything pass is loaded for it, put on it, and
/// taken off again. Nothing happens on an interface that has a program on its card.
///
/// # Errors
/// Why it does not.
pub fn probe_offload(interface: &Interface) -> Result<(), OffloadRefused> {
    interface.run(|| try_on_card(interface.index())).map_err(|error| {
        let interface = interface.name().to_owned();
        // EPERM, ENODEV and the like say nothing about the card.
        match error.kind() {
            io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported => {
                OffloadRefused::NoSuchCard { interface, error }
            }
            _ => OffloadRefused::Unknown { interface, error },
        }
    })
}

fn try_on_card(interface: u32) -> io::Result<()> {
    if xdp_programs(interface)?.offloaded.is_some() {
        return Ok(());
    }
    let kind = ProgramKind::XdpOffloaded(interface);
    let spec = ProgramSpec { name: "hd_offload", kind, instructions: &PASS };
    let program = Program::load(&spec).map_err(|Refused { error, .. }| error)?;
    Link::xdp_offloaded(&program, interface).map(drop)
}
