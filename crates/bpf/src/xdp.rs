//! The XDP programs on an interface, and the features of its driver.

use std::io;

use libbpf_rs::libbpf_sys as sys;

use super::check;

/// The ids of the XDP programs on an interface, and the features of its driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpPrograms {
    /// In the driver.
    pub native: Option<u32>,
    /// In the stack behind it.
    pub generic: Option<u32>,
    /// On the card.
    pub offloaded: Option<u32>,
    /// The features that the driver reports (`NETDEV_XDP_ACT_...`); 0 if it reports none, or before kernel 6.3.
    pub features: u64,
}

impl XdpPrograms {
    /// The driver can run programs.
    pub const NATIVE: u64 = 1;
    /// Its programs can redirect packets.
    pub const REDIRECT: u64 = 1 << 1;
    /// The driver supports AF_XDP sockets without copies.
    pub const ZERO_COPY: u64 = 1 << 3;
    /// The card can run programs.
    pub const OFFLOAD: u64 = 1 << 4;
}

/// Returns the programs on an interface of the calling thread's network namespace.
///
/// # Errors
/// `ENODEV` if there is no such interface.
pub fn xdp_programs(interface: u32) -> io::Result<XdpPrograms> {
    let mut opts = sys::bpf_xdp_query_opts {
        sz: size_of::<sys::bpf_xdp_query_opts>() as _,
        ..Default::default()
    };
    // SAFETY: `opts` outlives the call and `opts.sz` is its size.
    check(unsafe { sys::bpf_xdp_query(interface.cast_signed(), 0, &raw mut opts) })?;
    let id = |id: u32| (id != 0).then_some(id);
    Ok(XdpPrograms {
        native: id(opts.drv_prog_id),
        generic: id(opts.skb_prog_id),
        offloaded: id(opts.hw_prog_id),
        features: opts.feature_flags,
    })
}
