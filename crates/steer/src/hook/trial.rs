//! Trials: a policy decides about synthetic inputs, in the kernel, without traffic.

use std::io;

use heddle_bpf::{Program, ProgramKind};
use heddle_steer_abi::Input;

use crate::policy::{LoadError, Maps, Object, frame, link, load};

/// A policy loaded for trials.
#[derive(Debug)]
pub struct Trial {
    program: Program,
    maps: Maps,
}

/// The result of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrialResult {
    /// What the policy returned: an index, `HD_PASS` or `HD_DROP`.
    pub choice: u32,
    /// The mean time of a decision including its frame, nanoseconds.
    pub nanoseconds: u32,
}

impl Trial {
    /// Loads `policy`, for `executors` executors.
    ///
    /// # Errors
    /// Those of linking and loading.
    pub fn load(policy: &Object, executors: u32) -> Result<Self, LoadError> {
        let (hook, common, observe) = (frame("trial"), frame("common"), frame("observe"));
        let image = link(&[&hook, &common, &observe, policy])?;
        let mut maps = Maps::new();
        super::observe::prepare(&image, &mut maps)?;
        let program = load("hd_trial", ProgramKind::Xdp, &image, &mut maps)?;
        let trial = Self { program, maps };
        trial
            .set_executors(executors)
            .map_err(|error| LoadError::Map { name: "hd_control".into(), error })?;
        Ok(trial)
    }

    /// Changes the number of executors.
    ///
    /// # Errors
    /// The kernel's.
    pub fn set_executors(&self, executors: u32) -> io::Result<()> {
        // A policy that does not use it has no such map.
        self.maps
            .get("hd_control")
            .map_or(Ok(()), |map| map.update(&0_u32.to_ne_bytes(), &executors.to_ne_bytes()))
    }

    /// Has it decide about `input`, `repeat` times; returns the last choice.
    ///
    /// # Errors
    /// The kernel's.
    pub fn decide(&self, input: &Input, repeat: u32) -> io::Result<TrialResult> {
        let run = self.program.test_run(&input.bytes(), repeat)?;
        Ok(TrialResult { choice: run.verdict, nanoseconds: run.nanoseconds })
    }

    /// Returns its maps, including `hd_lines` if the policy reads lines.
    #[must_use]
    pub fn maps(&self) -> &Maps {
        &self.maps
    }

    /// Returns the program in the kernel.
    #[must_use]
    pub fn program(&self) -> &Program {
        &self.program
    }
}
