//! Deploying policies below sockets: packets to CPUs and to AF_XDP sockets.

use std::ffi::{c_char, c_int};

use heddle_steer::client::{Deployment, policy_of};
use heddle_steer::hook::Hook;
use heddle_steer::request::{Error, PacketTarget, Role};

use crate::deploy::{Share, hook_of, sharing, to_c};
use crate::error::{invalid, number_of};
use crate::steering::steering;
use crate::text::{copy, text, values};

/// `struct hd_xdp_socket`.
#[repr(C)]
pub struct XdpSocket {
    executor: u32,
    queue: u32,
    fd: c_int,
}

/// `struct hd_packets`.
#[repr(C)]
pub struct Packets {
    interface: *const c_char,
    bound: *const c_int,
    bound_count: u32,
    cpus: *const u32,
    cpu_count: u32,
    sockets: *const XdpSocket,
    socket_count: u32,
}

/// What [`Packets`] has.
struct Arguments<'a> {
    policy: &'a str,
    hook: Hook,
    interface: &'a str,
    bound: &'a [c_int],
    cpus: &'a [u32],
    sockets: &'a [XdpSocket],
    shares: &'a [Share],
}

/// See the header.
///
/// # Safety
/// `policy` and `hook` are strings, `packets` has a string and as many values as it says, and `shares` has
/// `share_count` entries with names and open maps.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_deploy_packets(
    policy: *const c_char,
    hook: *const c_char,
    packets: *const Packets,
    shares: *const Share,
    share_count: u32,
) -> c_int {
    // SAFETY: as the caller promises.
    let given = unsafe {
        packets.as_ref().ok_or_else(|| invalid("the description of packets is NULL")).and_then(
            |p| {
                Ok(Arguments {
                    policy: text(policy, "the policy")?,
                    hook: hook_of(text(hook, "the hook")?)?,
                    interface: text(p.interface, "the interface")?,
                    bound: values(p.bound, p.bound_count as usize, "the array of bound sockets")?,
                    cpus: values(p.cpus, p.cpu_count as usize, "the array of CPUs")?,
                    sockets: values(
                        p.sockets,
                        p.socket_count as usize,
                        "the array of AF_XDP sockets",
                    )?,
                    shares: values(shares, share_count as usize, "the array of maps")?,
                })
            },
        )
    };
    number_of(given.and_then(|given| deploy(&given)))
}

fn deploy(given: &Arguments<'_>) -> Result<c_int, Error> {
    let (cpus, sockets) = (given.cpus.len(), given.sockets.len());
    match given.hook {
        Hook::CpuRedirect if sockets > 0 => {
            return Err(invalid("cpu-redirect takes CPUs and no AF_XDP sockets"));
        }
        Hook::XdpDrv | Hook::XdpSkb if cpus > 0 => {
            return Err(invalid(&format!("{} takes AF_XDP sockets and no CPUs", given.hook)));
        }
        Hook::SocketSelect => return Err(invalid("socket-select is for hd_deploy")),
        Hook::Stream => return Err(invalid("stream is for hd_stream_open")),
        // The engine says what there is instead of xdp-offload.
        _ => {}
    }
    let target = PacketTarget { interface: given.interface.into(), cpus: given.cpus.to_vec() };
    let mut deployment = Deployment::new(policy_of(given.policy)?, given.hook).below(target);
    for fd in given.bound {
        deployment = deployment.with(Role::Claim, copy(*fd)?);
    }
    for XdpSocket { executor, queue, fd } in given.sockets {
        let label = format!("pid {} fd {fd}", std::process::id());
        let role = Role::XdpSocket { index: *executor, queue: *queue, label };
        deployment = deployment.with(role, copy(*fd)?);
    }
    to_c(steering()?.attach(sharing(deployment, given.shares)?)?.id)
}
