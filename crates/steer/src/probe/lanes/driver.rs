//! What an interface's driver and its interrupts mean for lanes.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use heddle_sys::cpu_list;
use heddle_sys::interface::{driver, merges};

use super::{Probe, State};

pub fn kind(name: &str) -> Probe {
    let Ok(driver) = driver(name) else {
        return Probe::new("kind", State::Yes, "driver unknown", "it carries Ethernet frames");
    };
    let found = match driver.as_str() {
        // Lanes tell unfinished checksums from wrong ones only on a veth.
        "veth" => "driver veth, whose peer may leave checksums unfinished".to_owned(),
        _ => format!("driver {driver}"),
    };
    Probe::new("kind", State::Yes, found, "it carries Ethernet frames")
}

/// Merged segments are longer than a frame of a lane. The kernel merges (GRO) behind the program, so that is no
/// matter; a card merges before it.
pub fn merging(name: &str) -> Option<Probe> {
    let (_, card) = merges(name).ok()?;
    card.then(|| {
        let follows = format!("native XDP takes `ethtool -K {name} lro off`");
        Probe::new("merging", State::Partly, "its card merges segments (LRO)", follows)
    })
}

/// Whether the queues' interrupts are spread over CPUs. `None` if the machine does not say.
pub fn interrupts(name: &str, queues: u32) -> Option<Probe> {
    let cpus: BTreeSet<u32> = numbers(name)?.into_iter().filter_map(affinity).flatten().collect();
    let online = crate::hook::xdp::online_cpus().ok()?.len();
    let wanted = (queues as usize).min(online);
    if cpus.is_empty() {
        return None;
    }
    let found = format!("interrupts on CPU {}", cpu_list::format(&cpus));
    if cpus.len() < wanted {
        let follows = "packets are faster if each queue's interrupt is on its worker's CPU \
            (/proc/irq/N/smp_affinity_list)";
        return Some(Probe::new("interrupts", State::Partly, found, follows));
    }
    Some(Probe::new("interrupts", State::Yes, found, "queues have CPUs of their own"))
}

/// Returns the interrupts of the device behind an interface; a virtual device's are its bus's.
fn numbers(name: &str) -> Option<Vec<String>> {
    let device = PathBuf::from(format!("/sys/class/net/{name}/device"));
    let entries = ["msi_irqs", "../msi_irqs"].map(|path| fs::read_dir(device.join(path)));
    let entries = entries.into_iter().find_map(Result::ok)?;
    Some(entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
}

fn affinity(number: String) -> Option<BTreeSet<u32>> {
    let text = fs::read_to_string(format!("/proc/irq/{number}/effective_affinity_list")).ok()?;
    cpu_list::parse(text.trim()).ok()
}
