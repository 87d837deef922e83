//! XDP Offload: whether a NIC runs programs itself.

use std::io;

use heddle_bpf::{Link, LoadError as Refused, Program, ProgramKind, ProgramSpec, xdp_programs};

use super::Interface;

/// `r0 = XDP_PASS; exit`.
pub(crate) const PASS: [u64; 2] = [0x0000_0002_0000_00b7, 0x95];

/// Why packets cannot be steered on the NIC.
#[derive(Debug, thiserror::Error)]
pub enum OffloadRefused {
    /// It runs no programs; almost no NIC does.
    #[error(
        "the card behind {interface} runs no programs ({error}): the hooks xdp-drv \
         and cpu-redirect do the same work in its driver"
    )]
    NoSuchCard {
        /// Its name.
        interface: String,
        /// What the kernel said.
        error: io::Error,
    },
    /// Another failure, which says nothing about the NIC's ability.
    #[error("cannot find out whether the card behind {interface} runs programs: {error}")]
    Unknown {
        /// Its name.
        interface: String,
        /// What the kernel said.
        error: io::Error,
    },
}

/// Tests whether the NIC behind `interface` runs programs: loads one that passes everything, attaches it, and
/// detaches it again. An interface that already has a program on its NIC is left alone.
///
/// # Errors
/// Why it does not.
pub fn probe_offload(interface: &Interface) -> Result<(), OffloadRefused> {
    interface.run(|| try_on_card(interface.index())).map_err(|error| {
        let interface = interface.name().to_owned();
        // EPERM, ENODEV and the like say nothing about the NIC.
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
    let spec = ProgramSpec { name: "hd_offload", kind, instructions: &PASS, functions: &[] };
    let program = Program::load(&spec).map_err(|Refused { error, .. }| error)?;
    Link::xdp_offloaded(&program, interface).map(drop)
}
