//! Deploying, replacing and detaching policies.

use std::ffi::{c_char, c_int};

use heddle_steer::client::{Deployment, policy_of};
use heddle_steer::hook::Hook;
use heddle_steer::request::Error;

use crate::error::{invalid, number_of};
use crate::map::HdMap;
use crate::steering::{id, steering};
use crate::text::{copy, text, values};

/// `struct hd_share`.
#[repr(C)]
pub struct Share {
    name: *const c_char,
    map: *const HdMap,
}

/// Converts a number to C's.
pub fn to_c(number: u32) -> Result<c_int, Error> {
    c_int::try_from(number).map_err(|_| invalid("the number is too large for a C int"))
}

/// See the header.
///
/// # Safety
/// `policy` and `hook` are strings, `fds` has `count` descriptors.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_deploy(
    policy: *const c_char,
    hook: *const c_char,
    fds: *const c_int,
    count: u32,
) -> c_int {
    // SAFETY: as the caller promises; no shares are read.
    unsafe { hd_deploy_sharing(policy, hook, fds, count, std::ptr::null(), 0) }
}

/// See the header.
///
/// # Safety
/// As [`hd_deploy`], and `shares` has `share_count` entries with names and open maps.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_deploy_sharing(
    policy: *const c_char,
    hook: *const c_char,
    fds: *const c_int,
    count: u32,
    shares: *const Share,
    share_count: u32,
) -> c_int {
    // SAFETY: as the caller promises.
    let given = unsafe {
        text(policy, "the policy").and_then(|policy| {
            let hook = text(hook, "the hook")?;
            let fds = values(fds, count as usize, "the array of descriptors")?;
            Ok((policy, hook, fds, values(shares, share_count as usize, "the array of maps")?))
        })
    };
    number_of(given.and_then(|(policy, hook, fds, shares)| deploy(policy, hook, fds, shares)))
}

/// Returns the hook called `name`.
pub fn hook_of(name: &str) -> Result<Hook, Error> {
    Hook::from_name(name).ok_or_else(|| {
        let names: Vec<&str> = Hook::ALL.iter().map(|hook| hook.name()).collect();
        invalid(&format!("no hook `{name}`; there are: {}", names.join(", ")))
    })
}

/// Returns the deployment with these maps instead of the policy's own.
pub fn sharing(mut deployment: Deployment, shares: &[Share]) -> Result<Deployment, Error> {
    for share in shares {
        // SAFETY: the caller of the C function promised names and open maps.
        let (name, map) = unsafe { (text(share.name, "a map's name")?, share.map.as_ref()) };
        let map = map.ok_or_else(|| invalid("a map is NULL"))?;
        deployment = deployment.share(name, map.descriptor()?);
    }
    Ok(deployment)
}

fn deploy(policy: &str, hook: &str, fds: &[c_int], shares: &[Share]) -> Result<c_int, Error> {
    let hook = hook_of(hook)?;
    match hook {
        Hook::CpuRedirect | Hook::XdpDrv | Hook::XdpSkb => {
            return Err(invalid(&format!(
                "{hook} is for hd_deploy_packets, which takes an interface"
            )));
        }
        Hook::Stream => return Err(invalid("stream is for hd_stream_open, which takes a framing")),
        // The engine says what there is instead of xdp-offload.
        Hook::SocketSelect | Hook::XdpOffload => {}
    }
    let mut deployment = Deployment::new(policy_of(policy)?, hook);
    for fd in fds {
        deployment = deployment.executor(format!("pid {} fd {fd}", std::process::id()), copy(*fd)?);
    }
    to_c(steering()?.attach(sharing(deployment, shares)?)?.id)
}

/// See the header.
///
/// # Safety
/// `policy` is a string.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_replace(attachment: c_int, policy: *const c_char) -> c_int {
    // SAFETY: as the caller promises.
    let policy = unsafe { text(policy, "the policy") };
    let replace = |policy| steering()?.replace(id(attachment)?, policy_of(policy)?);
    number_of(policy.and_then(replace).map(|()| 0))
}

/// See the header.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub extern "C" fn hd_detach(attachment: c_int, fd: c_int) -> c_int {
    let detach = || {
        let sockets = if fd < 0 { Vec::new() } else { vec![copy(fd)?] };
        steering()?.detach(id(attachment)?, sockets)
    };
    number_of(detach().map(|()| 0))
}

/// See the header.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub extern "C" fn hd_executor_add(attachment: c_int, fd: c_int, index: c_int) -> c_int {
    let add = || {
        let label = format!("pid {} fd {fd}", std::process::id());
        let index = u32::try_from(index).ok();
        steering()?.add_executor(id(attachment)?, index, label, copy(fd)?).and_then(to_c)
    };
    number_of(add())
}
