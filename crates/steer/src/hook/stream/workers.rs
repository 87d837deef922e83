//! The workers: their sockets, and what a policy may see of them.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use crate::hook::observe;
use crate::policy::{Image, Maps};

use super::map;

/// The map of the workers' sockets.
const EXECUTORS: &str = "hd_executor";
/// What Heddle passes to the policy.
const CONTROL: &str = "hd_control";
/// Where the observer finds the sockets; also bounds what waits for them.
const OBSERVED: &str = "hd_workers";
/// The constants of `bpf/steer/hooks/observe_stream.c`, in its order.
const PLACES: &str = "hd_places_constants";
const MEMBERS: [(&str, &str); 5] = [
    ("sock", "sk_user_data"),
    ("sk_psock", "ingress_skb.qlen"),
    ("sk_psock", "ingress_msg"),
    ("sock", "sk_wq"),
    ("socket_wq", "wait.head"),
];
/// The maximum number of workers.
const MOST: usize = 64;

/// Fills in the kernel offsets. Call before loading a policy that observes workers.
pub fn prepare(image: &Image, maps: &mut Maps) -> io::Result<()> {
    if image.maps.iter().any(|map| map.name == PLACES) && !maps.contains_key(PLACES) {
        maps.insert(PLACES.into(), observe::constants(PLACES, &MEMBERS)?);
    }
    Ok(())
}

/// The workers so far, and the kernel addresses of their sockets; 0 if gone or unknown.
#[derive(Debug, Default)]
pub struct Workers(Vec<u64>);

impl Workers {
    /// Adds a worker.
    pub fn add(&mut self, maps: &Maps, socket: BorrowedFd<'_>) -> io::Result<u32> {
        if self.0.len() >= MOST {
            return Err(io::Error::other(format!(
                "there are {MOST} workers, the most there can be"
            )));
        }
        let index = u32::try_from(self.0.len()).map_err(io::Error::other)?;
        self.0.push(0);
        let added = self.put(maps, index, socket).and_then(|()| self.publish(maps));
        if added.is_err() {
            self.0.pop();
        }
        added.map(|()| index)
    }

    /// Gives a worker another socket.
    pub fn put(&mut self, maps: &Maps, index: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        let address = address(socket)?;
        let none = || io::Error::other(format!("there was no worker {index}"));
        let worker = self.0.get_mut(index as usize).ok_or_else(none)?;
        map(maps, EXECUTORS)?.put_fd(index, socket)?;
        *worker = address;
        observed(maps, index, address)
    }

    /// Removes a worker.
    pub fn remove(&mut self, maps: &Maps, index: u32) -> io::Result<bool> {
        if let Some(worker) = self.0.get_mut(index as usize) {
            *worker = 0;
            observed(maps, index, 0)?;
        }
        match map(maps, EXECUTORS)?.remove(&index.to_ne_bytes()) {
            // The error for an empty slot.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(false),
            removed => removed,
        }
    }

    /// Publishes all workers to a policy.
    pub fn publish(&self, maps: &Maps) -> io::Result<()> {
        let count = u32::try_from(self.0.len()).map_err(io::Error::other)?;
        if let Some(control) = maps.get(CONTROL) {
            control.update(&0_u32.to_ne_bytes(), &count.max(1).to_ne_bytes())?;
        }
        (0..count).zip(&self.0).try_for_each(|(index, address)| observed(maps, index, *address))
    }
}

fn observed(maps: &Maps, index: u32, address: u64) -> io::Result<()> {
    maps.get(OBSERVED)
        .map_or(Ok(()), |map| map.update(&index.to_ne_bytes(), &address.to_ne_bytes()))
}

fn address(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let fd = u64::from(socket.as_raw_fd().cast_unsigned());
    let all = observe::addresses().map_err(io::Error::other)?;
    let found = all.into_iter().find(|(of, _)| *of == fd);
    let missing = || io::Error::other("a socket that the kernel does not list");
    found.map(|(_, address)| address).ok_or_else(missing)
}
