//! DPDK's environment: memory, threads and devices of the process.

use crate::error::Error;
use crate::port::{self, PortOptions};
use crate::shim;
use crate::wire::DpdkWire;
use std::ffi::CString;
use std::marker::PhantomData;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// DPDK, initialised. It stays so until the process ends (I1).
#[derive(Debug)]
pub struct Eal(());

/// Where buffers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// In huge pages, which cards need and which go with the process.
    Huge,
    /// In so many MiB of plain pages: for virtual devices only.
    Plain(u32),
}

/// How DPDK is initialised.
#[derive(Clone, Debug)]
pub struct EalOptions {
    /// Where buffers are.
    pub memory: Memory,
    /// Whether cards on the PCI bus are looked for.
    pub pci: bool,
    /// Further arguments, as DPDK's guide names them.
    pub arguments: Vec<String>,
}

impl Default for EalOptions {
    /// Virtual devices without huge pages, in 64 MiB.
    fn default() -> EalOptions {
        EalOptions { memory: Memory::Plain(64), pci: false, arguments: Vec::new() }
    }
}

impl Eal {
    /// Initialises DPDK, without threads that poll. The calling thread stays on the CPUs that it may use.
    ///
    /// # Errors
    /// If it was called before, or DPDK refuses; its log on stderr then says why.
    pub fn init(options: &EalOptions) -> Result<Eal, Error> {
        static DONE: AtomicBool = AtomicBool::new(false);
        let prefix = format!("heddle-{}", std::process::id());
        let arguments = arguments(options, &prefix);
        let texts = arguments.iter().map(|argument| text(argument)).collect::<Result<_, _>>()?;
        if DONE.swap(true, Ordering::Relaxed) {
            return Err(Error::Initialised);
        }
        let result = shim::init(texts);
        // DPDK leaves its folder, which only other processes would use: it shares nothing with any.
        let _ = std::fs::remove_dir_all(Path::new("/var/run/dpdk").join(prefix));
        result.map(|()| Eal(())).map_err(|code| Error::Init { arguments, code })
    }

    /// Opens a device, named as DPDK's guide does: `net_tap0,iface=x`, `net_af_packet0,iface=eth1`, `0000:03:00.0`.
    /// Interfaces are those of the calling thread's network namespace. Returns a wire for each queue.
    ///
    /// # Errors
    /// There is no such device, it is in use, or its driver refuses.
    pub fn open(&self, device: &str, options: &PortOptions) -> Result<Vec<DpdkWire>, Error> {
        let queues = port::open(device, &text(device)?, options)?;
        Ok(queues.into_iter().map(|(receiver, sender)| DpdkWire::new(receiver, sender)).collect())
    }

    /// Gives the calling thread DPDK's per-thread state, until the result is dropped. Without it calls work, but take
    /// buffers from the shared pool one by one.
    ///
    /// # Errors
    /// Too many threads are registered.
    pub fn register_thread(&self) -> Result<Registration, Error> {
        shim::register_thread().map_err(Error::Register)?;
        Ok(Registration(PhantomData))
    }
}

/// A thread that DPDK knows; see [`Eal::register_thread`]. It stays on its thread.
#[derive(Debug)]
pub struct Registration(PhantomData<*mut ()>);

impl Drop for Registration {
    fn drop(&mut self) {
        shim::unregister_thread();
    }
}

fn text(argument: &str) -> Result<CString, Error> {
    CString::new(argument).map_err(|_| Error::Text(argument.to_owned()))
}

fn arguments(options: &EalOptions, prefix: &str) -> Vec<String> {
    // One thread that DPDK knows from the start, the caller; it would start one for each further CPU.
    let mut arguments = vec!["heddle".to_owned(), format!("--lcores=0@{}", first_cpu())];
    arguments.extend([format!("--file-prefix={prefix}"), "--no-telemetry".into()]);
    match options.memory {
        Memory::Huge => arguments.push("--in-memory".into()),
        // `--no-huge` refuses `--in-memory`, which implies this.
        Memory::Plain(mib) => {
            arguments.extend([
                "--no-huge".into(),
                "--no-shconf".into(),
                "-m".into(),
                mib.to_string(),
            ]);
        }
    }
    arguments.extend((!options.pci).then(|| "--no-pci".into()));
    arguments.push("--log-level=*:warning".into());
    arguments.extend(options.arguments.iter().cloned());
    arguments
}

/// Returns a CPU that the calling thread may use.
fn first_cpu() -> usize {
    let allowed = rustix::thread::sched_getaffinity(None);
    let first = |set: rustix::thread::CpuSet| {
        (0..rustix::thread::CpuSet::MAX_CPU).find(|&cpu| set.is_set(cpu))
    };
    allowed.ok().and_then(first).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_decides_what_is_shared() {
        let with =
            |memory| arguments(&EalOptions { memory, ..EalOptions::default() }, "x").join(" ");
        let plain = with(Memory::Plain(64));
        assert!(
            plain.contains("--no-huge --no-shconf -m 64 --no-pci")
                && !plain.contains("--in-memory"),
            "{plain}"
        );
        let huge = with(Memory::Huge);
        assert!(huge.contains("--in-memory") && !huge.contains("--no-huge"), "{huge}");
    }

    #[test]
    fn an_argument_with_a_zero_byte_is_refused_before_dpdk_sees_it() {
        let options = EalOptions { arguments: vec!["-\0".into()], ..EalOptions::default() };
        let error = Eal::init(&options).unwrap_err().to_string();
        assert!(error.contains("zero byte"), "{error}");
    }
}
