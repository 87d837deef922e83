//! The executors of policies at XDP: CPUs of a set, AF_XDP sockets by queue.

use std::fs;
use std::io;
use std::os::fd::BorrowedFd;

use super::{EXECUTORS, map};
use crate::policy::{FEW_EXECUTORS, Maps};

/// The map of `bpf/steer/hooks/xdp_cpu.c` from executors to CPUs.
const CPUS: &str = "hd_cpus";
/// The maximum number of receive queues of an interface: `HD_MAX_QUEUES` of `bpf/steer/hooks/xdp_xsk.c`.
pub const MAX_QUEUES: u32 = 128;

/// Makes `cpu` executor `index`: at most `queue` packets wait for it, and what arrives when that is full is
/// lost.
///
/// # Errors
/// `InvalidInput` if the CPU is not online or the index is out of range; the kernel's.
pub fn put_cpu(maps: &Maps, index: u32, cpu: u32, queue: u32) -> io::Result<()> {
    let online = online_cpus()?;
    if !online.contains(&cpu) {
        return Err(invalid(format!("CPU {cpu} is not online (there are {online:?})")));
    }
    if index >= FEW_EXECUTORS || queue == 0 {
        return Err(invalid(format!("executor {index} of {FEW_EXECUTORS}, a queue of {queue}")));
    }
    let former = cpu_of(maps, index)?;
    // First the queue, then its user.
    map(maps, EXECUTORS)?.update(&cpu.to_ne_bytes(), &queue.to_ne_bytes())?;
    let value = (u64::from(cpu) + 1).to_ne_bytes();
    map(maps, CPUS)?.update(&index.to_ne_bytes(), &value)?;
    match former.filter(|former| *former != cpu) {
        Some(former) => drop_queue(maps, former),
        None => Ok(()),
    }
}

/// Removes the CPU from executor `index`; returns whether there was one.
///
/// # Errors
/// The kernel's.
pub fn take_cpu(maps: &Maps, index: u32) -> io::Result<bool> {
    let Some(cpu) = cpu_of(maps, index)? else { return Ok(false) };
    map(maps, CPUS)?.update(&index.to_ne_bytes(), &0_u64.to_ne_bytes())?;
    drop_queue(maps, cpu).map(|()| true)
}

/// Returns the CPUs that are executors, with their indices.
///
/// # Errors
/// The kernel's.
pub fn cpus(maps: &Maps) -> io::Result<Vec<(u32, u32)>> {
    let mut cpus = Vec::new();
    for index in 0..FEW_EXECUTORS {
        cpus.extend(cpu_of(maps, index)?.map(|cpu| (index, cpu)));
    }
    Ok(cpus)
}

/// Removes the queue of a CPU that is no longer an executor under any index.
fn drop_queue(maps: &Maps, cpu: u32) -> io::Result<()> {
    if cpus(maps)?.iter().all(|(_, other)| *other != cpu) {
        map(maps, EXECUTORS)?.remove(&cpu.to_ne_bytes())?;
    }
    Ok(())
}

fn cpu_of(maps: &Maps, index: u32) -> io::Result<Option<u32>> {
    let value = map(maps, CPUS)?.lookup(&index.to_ne_bytes())?;
    let number = value.and_then(|value| value.try_into().ok()).map_or(0, u64::from_ne_bytes);
    Ok(number.checked_sub(1).and_then(|cpu| u32::try_from(cpu).ok()))
}

/// Makes an AF_XDP socket on receive queue `queue` the one that executor `index` uses there. An executor
/// receives packets only from queues for which it has a socket; others pass and are counted as failed.
///
/// # Errors
/// `InvalidInput` if executor or queue are out of range; the kernel's, if it is not an AF_XDP socket.
pub fn put_socket(maps: &Maps, index: u32, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
    map(maps, EXECUTORS)?.put_fd(entry(index, queue)?, socket)
}

/// Removes all sockets of executor `index`.
///
/// # Errors
/// The kernel's.
pub fn take_sockets(maps: &Maps, index: u32) -> io::Result<()> {
    for queue in 0..MAX_QUEUES {
        map(maps, EXECUTORS)?.remove(&entry(index, queue)?.to_ne_bytes())?;
    }
    Ok(())
}

fn entry(index: u32, queue: u32) -> io::Result<u32> {
    if index >= FEW_EXECUTORS || queue >= MAX_QUEUES {
        return Err(invalid(format!(
            "executor {index} of {FEW_EXECUTORS} on queue {queue} of {MAX_QUEUES}"
        )));
    }
    Ok(index * MAX_QUEUES + queue)
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

/// Returns the online CPUs.
///
/// # Errors
/// If the kernel does not say.
pub fn online_cpus() -> io::Result<Vec<u32>> {
    list("/sys/devices/system/cpu/online")
}

/// Returns the number of possible CPUs.
pub(super) fn possible_cpus() -> io::Result<u32> {
    Ok(list("/sys/devices/system/cpu/possible")?.into_iter().max().unwrap_or(0) + 1)
}

fn list(path: &str) -> io::Result<Vec<u32>> {
    let text = fs::read_to_string(path)?;
    parse(text.trim()).ok_or_else(|| io::Error::other(format!("{path} says `{}`", text.trim())))
}

/// Parses `0-3,6` and the like.
fn parse(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        cpus.extend(from.parse::<u32>().ok()?..=to.parse().ok()?);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_are_parsed() {
        assert_eq!(parse("0-2,5"), Some(vec![0, 1, 2, 5]));
        assert_eq!(parse("0"), Some(vec![0]));
        assert_eq!(parse(""), None);
        assert_eq!(parse("0-x"), None);
        assert!(online_cpus().unwrap().len() <= possible_cpus().unwrap() as usize);
    }

    #[test]
    fn executors_and_queues_have_separate_entries() {
        let mut seen = std::collections::BTreeSet::new();
        for (index, queue) in (0..FEW_EXECUTORS).flat_map(|i| (0..MAX_QUEUES).map(move |q| (i, q)))
        {
            assert!(seen.insert(entry(index, queue).unwrap()));
        }
        assert!(entry(FEW_EXECUTORS, 0).is_err() && entry(0, MAX_QUEUES).is_err());
    }
}
