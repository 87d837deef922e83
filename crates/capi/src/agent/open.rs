//! Making, opening and closing enclaves.

use std::ffi::{c_char, c_int};
use std::sync::{Arc, Mutex};

use heddle_agent::guardian::{Backends as _, KernelBackends, Kind};
use heddle_agent::{Backend, EnclaveSpec, PickNext};
use heddle_steer::policy;
use heddle_steer::request::{Error, ErrorKind};

use super::{HdEnclave, failed, opened, refused};
use crate::error::{self, invalid, number_of};
use crate::text::{text, values};

fn unsupported(text: String) -> Error {
    Error::new(ErrorKind::Unsupported, text)
}

fn missing(kind: Kind) -> impl Fn(String) -> Error {
    move |why| unsupported(format!("the {kind} backend does not work here: {why}"))
}

/// Returns the requested backend, if it works here.
fn kind(backend: &str) -> Result<Kind, Error> {
    let probe = |kind| KernelBackends.probe(kind).map(|()| kind);
    match backend {
        "scx" => probe(Kind::Scx).map_err(missing(Kind::Scx)),
        "rt" => probe(Kind::Rt).map_err(missing(Kind::Rt)),
        "auto" => probe(Kind::Scx).or_else(|no_scx| {
            let neither =
                |no_rt| unsupported(format!("no backend works here. scx: {no_scx}. rt: {no_rt}"));
            probe(Kind::Rt).map_err(neither)
        }),
        "fair" => Err(invalid("the fair backend has no agents; there are: scx, rt, auto")),
        other => Err(invalid(&format!("no backend `{other}`; there are: scx, rt, auto"))),
    }
}

fn open(kind: Kind, name: &str) -> Result<Arc<dyn Backend>, String> {
    heddle_agent::guardian::open(kind, name).map_err(|error| error.to_string())
}

/// Names become file names.
fn check(name: &str) -> Result<(), Error> {
    let is_known = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    if name.is_empty() || !name.chars().all(is_known) {
        return Err(invalid(&format!("`{name}` names no enclave: letters, digits, - and _ do")));
    }
    Ok(())
}

fn create(
    name: &str,
    backend: &str,
    cpus: &[u32],
    pick_next: Option<&str>,
) -> Result<HdEnclave, Error> {
    check(name)?;
    let kind = kind(backend)?;
    if pick_next.is_some() && kind != Kind::Scx {
        return Err(unsupported(format!(
            "over {kind} no CPU takes threads: there is no pick_next"
        )));
    }
    let pick_next = pick_next.map(compile_pick_next).transpose()?;
    // An agent in C may be slow: debugging one would otherwise lose the enclave.
    let spec = EnclaveSpec { patience: None, pick_next, ..EnclaveSpec::new(name, cpus) };
    let keeper = KernelBackends.create(kind, &spec).map_err(|error| failed(&error))?;
    let backend = open(kind, name).map_err(|why| Error::new(ErrorKind::System, why))?;
    Ok(HdEnclave { backend, keeper: Some(Mutex::new(keeper)), machine: None })
}

fn compile_pick_next(given: &str) -> Result<PickNext, Error> {
    let code = policy::pick_next(given).map_err(|error| invalid(&format!("{given}: {error}")))?;
    Ok(PickNext::new(code))
}

fn find(name: &str) -> Result<HdEnclave, Error> {
    check(name)?;
    let none = |no_rt| {
        move |no_scx| {
            let text = format!("no enclave `{name}`. rt: {no_rt}. scx: {no_scx}");
            Error::new(ErrorKind::NotFound, text)
        }
    };
    let backend =
        open(Kind::Rt, name).or_else(|no_rt| open(Kind::Scx, name).map_err(none(no_rt)))?;
    Ok(HdEnclave { backend, keeper: None, machine: None })
}

/// Returns C's handle of an enclave.
pub fn given(enclave: Result<HdEnclave, Error>) -> *mut HdEnclave {
    match enclave {
        Ok(enclave) => Box::into_raw(Box::new(enclave)),
        Err(error) => {
            error::failed(&error);
            std::ptr::null_mut()
        }
    }
}

/// See the header.
///
/// # Safety
/// `name` and `backend` are strings, `cpus` has `count` numbers.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_enclave_create(
    name: *const c_char,
    backend: *const c_char,
    cpus: *const u32,
    count: u32,
) -> *mut HdEnclave {
    // SAFETY: as the caller promises.
    let made = || unsafe {
        let (name, backend) = (text(name, "the name")?, text(backend, "the backend")?);
        create(name, backend, values(cpus, count as usize, "the array of CPUs")?, None)
    };
    given(made())
}

/// See the header.
///
/// # Safety
/// `name`, `backend` and `pick_next` are strings, `cpus` has `count` numbers.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_enclave_create_picking(
    name: *const c_char,
    backend: *const c_char,
    cpus: *const u32,
    count: u32,
    pick_next: *const c_char,
) -> *mut HdEnclave {
    // SAFETY: as the caller promises.
    let made = || unsafe {
        let (name, backend) = (text(name, "the name")?, text(backend, "the backend")?);
        let pick_next = text(pick_next, "the pick_next")?;
        let cpus = values(cpus, count as usize, "the array of CPUs")?;
        create(name, backend, cpus, Some(pick_next))
    };
    given(made())
}

/// See the header.
///
/// # Safety
/// `name` is a string.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_enclave_open(name: *const c_char) -> *mut HdEnclave {
    // SAFETY: as the caller promises.
    given(unsafe { text(name, "the name") }.and_then(find))
}

fn undo(name: &str) -> Result<c_int, Error> {
    check(name)?;
    let of = |kind| KernelBackends.undo(kind, name).map_err(|error| failed(&error));
    let threads =
        of(Kind::Rt)? + if KernelBackends.probe(Kind::Scx).is_ok() { of(Kind::Scx)? } else { 0 };
    Ok(c_int::try_from(threads).unwrap_or(c_int::MAX))
}

/// See the header.
///
/// # Safety
/// `name` is a string.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_enclave_undo(name: *const c_char) -> c_int {
    // SAFETY: as the caller promises.
    number_of(unsafe { text(name, "the name") }.and_then(undo))
}

/// See the header.
///
/// # Safety
/// `enclave` is null, or open and no longer in use.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_enclave_close(enclave: *mut HdEnclave) {
    if enclave.is_null() {
        return;
    }
    // SAFETY: made by `Box::into_raw`, and the caller gives it up.
    let enclave = unsafe { Box::from_raw(enclave) };
    if enclave.backend.enclave().agent == Some(std::process::id()) {
        enclave.backend.detach();
    }
}

/// See the header.
///
/// # Safety
/// `enclave` is open.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_enclave_attach(enclave: *mut HdEnclave) -> c_int {
    // SAFETY: as the caller promises.
    let attach = || unsafe { opened(enclave) }?.backend.attach().map_err(|error| refused(&error));
    number_of(attach().map(|()| 0))
}

/// See the header.
///
/// # Safety
/// `enclave` is open.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_enclave_detach(enclave: *mut HdEnclave) -> c_int {
    // SAFETY: as the caller promises.
    let detach = || unsafe { opened(enclave) }.map(|enclave| enclave.backend.detach());
    number_of(detach().map(|()| 0))
}

fn joining(
    enclave: Result<&HdEnclave, Error>,
    join: impl FnOnce(
        &dyn heddle_agent::guardian::Keeper,
    ) -> Result<usize, heddle_agent::guardian::GuardianError>,
) -> c_int {
    let joined = || {
        let keeper = enclave?.keeper.as_ref();
        let keeper = keeper.ok_or_else(|| invalid("threads join where the enclave was created"))?;
        let keeper = keeper.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let count = join(&**keeper).map_err(|error| failed(&error))?;
        Ok(c_int::try_from(count).unwrap_or(c_int::MAX))
    };
    number_of(joined())
}

/// See the header.
///
/// # Safety
/// `enclave` is open.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_enclave_join(enclave: *mut HdEnclave, tid: u32) -> c_int {
    // SAFETY: as the caller promises.
    joining(unsafe { opened(enclave) }, |keeper| keeper.join(tid).map(|()| 1))
}

/// See the header.
///
/// # Safety
/// `enclave` is open.
// SAFETY: the header declares it, and no other library has a name that begins with hd_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hd_enclave_join_process(enclave: *mut HdEnclave, pid: u32) -> c_int {
    // SAFETY: as the caller promises.
    joining(unsafe { opened(enclave) }, |keeper| keeper.join_process(pid))
}
