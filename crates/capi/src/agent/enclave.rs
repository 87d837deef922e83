//! Decisions: commits, recalls, preemptions, offers.

use std::ffi::c_int;

use heddle_agent::Takers;
use heddle_agent::model::{Group, Outcome, Seq, Transaction};
use heddle_core::{Class, CpuId, TaskId};
use heddle_steer::request::{Error, ErrorKind};

use super::words::RawTransaction;
use super::{HdEnclave, opened};
use crate::error::{invalid, number_of};

/// `HD_GROUP_ALL`.
const ALL: u32 = 1;
/// `HD_OFFER_OWN_CPU`.
const OWN_CPU: u32 = 1;

fn group(enclave: &HdEnclave, flags: u32) -> Result<Group, Error> {
    let traits = enclave.backend.traits();
    match flags {
        0 => Ok(Group::Each),
        ALL if traits.groups => Ok(Group::AllOrNothing),
        ALL => {
            let text = format!("the {} backend has no all-or-nothing groups", traits.name);
            Err(Error::new(ErrorKind::Unsupported, text))
        }
        _ => Err(invalid(&format!("{flags} are no flags of hd_enclave_commit"))),
    }
}

/// Commits the transactions whose CPU is the enclave's; with `all`, only if each one's is.
fn commit(enclave: &HdEnclave, raw: &mut [RawTransaction], how: Group) -> usize {
    let cpus: Vec<Option<CpuId>> = raw.iter().map(|one| enclave.cpu(one.cpu)).collect();
    let is_doomed = how == Group::AllOrNothing && cpus.contains(&None);
    let known = raw.iter().zip(&cpus).filter_map(|(one, cpu)| cpu.map(|cpu| one.on(cpu)));
    let mut made: Vec<Transaction> = known.collect();
    let done = if is_doomed { 0 } else { enclave.backend.commit(&mut made, how) };
    let mut made = made.iter();
    for (one, cpu) in raw.iter_mut().zip(&cpus) {
        let outcome = match cpu {
            None => Outcome::Invalid,
            Some(_) if is_doomed => Outcome::Poisoned,
            Some(_) => made.next().map_or(Outcome::Open, |made| made.outcome),
        };
        one.result = outcome as u32;
    }
    done
}

/// See the header.
///
/// # Safety
/// `enclave` is open, `txns` has `count` transactions that may be written to.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_enclave_commit(
    enclave: *mut HdEnclave,
    txns: *mut RawTransaction,
    count: u32,
    flags: u32,
) -> c_int {
    // SAFETY: as the caller promises.
    let committed = || unsafe {
        let enclave = opened(enclave)?;
        let how = group(enclave, flags)?;
        if count == 0 {
            return Ok(0);
        }
        if txns.is_null() {
            return Err(invalid("the array of transactions is NULL"));
        }
        let raw = std::slice::from_raw_parts_mut(txns, count as usize);
        Ok(c_int::try_from(commit(enclave, raw, how)).unwrap_or(c_int::MAX))
    };
    number_of(committed())
}

/// See the header.
///
/// # Safety
/// `enclave` is open.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_enclave_recall(enclave: *mut HdEnclave, cpu: u32) -> c_int {
    // SAFETY: as the caller promises.
    let recall = || unsafe {
        let enclave = opened(enclave)?;
        Ok(c_int::from(enclave.backend.recall(enclave.cpu_or_not(cpu)?).is_some()))
    };
    number_of(recall())
}

/// See the header.
///
/// # Safety
/// `enclave` is open.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_enclave_preempt(enclave: *mut HdEnclave, cpu: u32) -> c_int {
    // SAFETY: as the caller promises.
    let preempt = || unsafe {
        let enclave = opened(enclave)?;
        Ok(c_int::from(enclave.backend.preempt(enclave.cpu_or_not(cpu)?)))
    };
    number_of(preempt())
}

fn offer(enclave: &HdEnclave, slot: u32, tseq: u64, cpu: u32, flags: u32) -> Result<bool, Error> {
    let traits = enclave.backend.traits();
    if !traits.offers {
        let text = format!("the {} backend cannot offer threads to CPUs", traits.name);
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    let cpu = enclave.cpu_or_not(cpu)?;
    let takers = match flags {
        0 => Takers::Node(cpu),
        OWN_CPU => Takers::Cpu(cpu),
        _ => return Err(invalid(&format!("{flags} are no flags of hd_enclave_offer"))),
    };
    Ok(enclave.backend.offer(TaskId(slot), Seq(tseq), takers))
}

/// See the header.
///
/// # Safety
/// `enclave` is open.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_enclave_offer(
    enclave: *mut HdEnclave,
    slot: u32,
    tseq: u64,
    cpu: u32,
    flags: u32,
) -> c_int {
    // SAFETY: as the caller promises.
    let offered = unsafe { opened(enclave) }.and_then(|one| offer(one, slot, tseq, cpu, flags));
    number_of(offered.map(c_int::from))
}

fn describe(enclave: &HdEnclave, slot: u32, class: u32, hint: u64) -> Result<c_int, Error> {
    let class = u8::try_from(class).map_err(|_| invalid("a class is a number up to 255"))?;
    enclave.backend.describe(TaskId(slot), Class(class), hint);
    Ok(0)
}

/// See the header.
///
/// # Safety
/// `enclave` is open.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_enclave_describe(
    enclave: *mut HdEnclave,
    slot: u32,
    class: u32,
    hint: u64,
) -> c_int {
    // SAFETY: as the caller promises.
    let enclave = unsafe { opened(enclave) };
    number_of(enclave.and_then(|enclave| describe(enclave, slot, class, hint)))
}

/// See the header.
///
/// # Safety
/// `enclave` is open.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_enclave_revoke(enclave: *mut HdEnclave, slot: u32) -> c_int {
    // SAFETY: as the caller promises.
    let enclave = unsafe { opened(enclave) };
    number_of(enclave.map(|enclave| c_int::from(enclave.backend.revoke(TaskId(slot)))))
}
