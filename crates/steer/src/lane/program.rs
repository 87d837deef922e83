//! The lanes' program: the policy in its frame, with what it needs to know from the start.

use heddle_bpf::{Program, ProgramKind};

use super::{Cidr, DeployError, MAX_LANES, Options};
use crate::client::policy_of;
use crate::engine::{object_of, read_here};
use crate::hook::xdp::{framed, map, put_constants, seed};
use crate::policy::{Image, LoadError, Maps, load as load_image, verify_strictly};

const CONSTANTS: &str = "hd_lanes_constants";
const CONTROL: &str = "hd_control";
const FLOWS: &str = "hd_flows";
/// The policy whose answer the frame computes itself.
const BY_HASH: &str = "hash";
/// Entries of `hd_flows` if no flow is ever put there. The kernel gives each CPU some.
const FEW: u32 = 1024;

/// Loads the program with its maps. It passes all packets until there are claims.
pub(super) fn load(options: &Options) -> Result<(Program, Maps), DeployError> {
    let lanes = options.lanes;
    if !(1..=MAX_LANES).contains(&lanes) {
        return Err(DeployError::Options(format!("{lanes} lanes: 1 to {MAX_LANES} are possible")));
    }
    let policy = policy_of(&options.policy)?;
    let (object, _) = object_of(&policy, read_here)?;
    let by_hash = policy.object.is_none() && policy.name == BY_HASH;
    let mut image = framed("xdp_lane", &object).map_err(LoadError::from)?;
    if by_hash {
        shrink_flows(&mut image);
    }
    let mut maps = Maps::new();
    verify_strictly(&object, &mut maps)?;
    seed(&mut maps)?;
    let constants = [u32::from(by_hash), u32::from(!options.allow.is_empty())];
    put_constants(&mut maps, CONSTANTS, constants.map(u32::to_ne_bytes).as_flattened())?;
    let program = load_image("hd_lanes", ProgramKind::Xdp, &image, &mut maps)?;
    let control = map(&maps, CONTROL);
    control
        .and_then(|map| map.update(&0_u32.to_ne_bytes(), &lanes.to_ne_bytes()))
        .map_err(|error| LoadError::Map { name: CONTROL.into(), error })?;
    allow(&maps, &options.allow)?;
    Ok((program, maps))
}

fn shrink_flows(image: &mut Image) {
    for map in image.maps.iter_mut().filter(|map| map.name == FLOWS) {
        map.entries = FEW;
    }
}

fn allow(maps: &Maps, sources: &[Cidr]) -> Result<(), DeployError> {
    for source in sources {
        let name = if source.is_ipv4() { "hd_allow4" } else { "hd_allow6" };
        let put = map(maps, name).and_then(|map| map.update(&source.key(), &[0; 4]));
        put.map_err(|error| {
            let text =
                format!("cannot allow {source}: {error} (1024 ranges of a family are the most)");
            DeployError::Options(text)
        })?;
    }
    Ok(())
}
