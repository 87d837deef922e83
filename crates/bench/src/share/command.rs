//! The commands that run the two programs under a system.

use super::batch::{Placement, THREADS};
use super::options::{BATCH_POLICY, CRITICAL_POLICY, ShareOptions};
use super::setup::{Realtime, Share};
use super::system::System;
use crate::posix::{self, launch};
use heddle_sys::scheduling::Scheduling;
use std::path::Path;
use std::process::Command;

/// Returns the command of the latency-critical program.
pub(super) fn critical(
    options: &ShareOptions,
    system: System,
    share: Option<&Share>,
    program: &Path,
    args: &[String],
) -> Command {
    match (share, system) {
        (Some(share), _) => {
            shared(&options.program, &share.file(), ("lc", CRITICAL_POLICY), program, args)
        }
        (None, System::Alone) => {
            let heddle = posix::System::Heddle(CRITICAL_POLICY.into());
            launch::command(&options.program, &heddle, program, args)
        }
        (None, _) => launch::command(&options.program, &posix::System::Kernel, program, args),
    }
}

/// Returns the command of the batch program, and how the kernel schedules it.
pub(super) fn batch(
    options: &ShareOptions,
    system: System,
    share: Option<&Share>,
    program: &Path,
) -> (Command, Placement) {
    let args = [THREADS.to_string()];
    let command = match share {
        Some(share) => {
            shared(&options.program, &share.file(), ("be", BATCH_POLICY), program, &args)
        }
        None => launch::command(&options.program, &posix::System::Kernel, program, &args),
    };
    let ordinary = Placement::on(&cpus(options, system));
    let placement = match system {
        System::Nice => Placement { nice: 19, ..ordinary },
        System::Idle => Placement { scheduling: Scheduling::IDLE, ..ordinary },
        _ => ordinary,
    };
    (command, placement)
}

fn shared(
    heddle: &Path,
    file: &Path,
    (class, policy): (&str, &str),
    program: &Path,
    args: &[String],
) -> Command {
    let mut command = Command::new(heddle);
    command.args(["run", "--share"]).arg(file).args(["--class", class, "--policy", policy, "--"]);
    command.arg(program).args(args).env_remove("LD_PRELOAD");
    command
}

/// The CPUs that the programs may use. A share has the shared one for their workers; what else they do, little, users
/// leave to the other CPUs.
pub(super) fn cpus(options: &ShareOptions, system: System) -> Vec<u32> {
    match system.is_shared() {
        true => vec![options.cpu(), options.cpus.load],
        false => vec![options.cpu()],
    }
}

/// Whether the workers of a system's share are real-time threads; `None` if it has no share.
pub(super) fn realtime(system: System) -> Option<Realtime> {
    let realtime = if system.is_realtime() { Realtime::Always } else { Realtime::Never };
    system.is_shared().then_some(realtime)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::Cpus;
    use heddle_sys::scheduling::Class;

    fn words(command: &Command) -> String {
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_share_is_named_with_the_class_and_the_policy() {
        let command = shared(
            Path::new("/h"),
            Path::new("/s.toml"),
            ("be", BATCH_POLICY),
            Path::new("/batch"),
            &["2".into()],
        );
        assert_eq!(
            words(&command),
            "/h run --share /s.toml --class be --policy work-stealing -- /batch 2"
        );
    }

    #[test]
    fn the_kernels_systems_differ_in_the_placement_of_the_batch_program() {
        let cpus = Cpus { server: vec![0], load: 1, shared: false };
        let options = ShareOptions::new(&System::ALL, cpus, "/h".into(), true);
        let of = |system| {
            let (command, placement) = batch(&options, system, None, Path::new("/batch"));
            assert_eq!(words(&command), "/batch 2");
            (placement.nice, placement.scheduling.class)
        };
        assert_eq!(of(System::Kernel), (0, Class::Other));
        assert_eq!(of(System::Nice), (19, Class::Other));
        assert_eq!(of(System::Idle), (0, Class::Idle));
        let alone = critical(&options, System::Alone, None, Path::new("/server"), &[]);
        assert!(words(&alone).starts_with("/h run --policy two-queue"));
        assert_eq!(words(&critical(&options, System::Fifo, None, Path::new("/s"), &[])), "/s");
    }

    #[test]
    fn a_share_is_in_real_time_unless_its_name_says_otherwise() {
        assert_eq!(realtime(System::Share), Some(Realtime::Always));
        assert_eq!(realtime(System::ShareFutex), Some(Realtime::Always));
        assert_eq!(realtime(System::ShareOrdinary), Some(Realtime::Never));
        assert_eq!(realtime(System::SchedYield), None);
    }
}
