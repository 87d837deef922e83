//! One instance of a policy in user space.

use std::io;
use std::path::Path;
use std::sync::Arc;

use heddle_steer_abi::{Input, Lines, MAX_EXECUTORS, NativeMap, NativeObject, View, WINDOW};

use crate::policy::{
    CompileError, Param, ParamError, compile_native, pairs, parse_params, settings, shipped_names,
    shipped_native,
};

/// A policy's decision about an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// To the executor of this index, which is below the number of executors.
    Executor(usize),
    /// Whatever would happen without a policy.
    Pass,
    /// Drop it.
    Drop,
    /// An index that no executor has: a bug in the policy. Treat it as [`Decision::Pass`], and count it.
    Wrong(u32),
}

/// Why a policy cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum NativeError {
    /// No shipped policy has the name.
    #[error("no policy `{name}`; there are: {known}")]
    Unknown {
        /// The name requested.
        name: String,
        /// The existing names.
        known: String,
    },
    /// A parameter.
    #[error(transparent)]
    Param(#[from] ParamError),
    /// The file does not compile.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// The dynamic linker.
    #[error("cannot load the policy: {0}")]
    Load(#[from] io::Error),
}

/// `HD_PASS` and `HD_DROP`.
const PASS: u32 = u32::MAX;
const DROP: u32 = u32::MAX - 1;

/// A policy that decides in this process.
///
/// ```
/// use heddle_steer::native::{Decision, NativePolicy, Random, View, input};
///
/// /// Two executors of which nothing is known.
/// struct Two(Random);
/// impl View for Two {
///     fn executors(&self) -> u32 { 2 }
///     fn idle(&mut self, _k: u32) -> bool { false }
///     fn queue_length(&mut self, _k: u32) -> u32 { 0 }
///     fn now(&mut self) -> u64 { 0 }
///     fn random(&mut self) -> u32 { self.0.number() }
///     fn cpu(&mut self) -> u32 { 0 }
/// }
///
/// let mut policy = NativePolicy::shipped("sita", "type-offset=0,scan=9")?;
/// let mut view = Two(Random::new(1));
/// assert_eq!(policy.decide(&mut input(&[9, 1, 1]), &mut view), Decision::Executor(0));
/// assert_eq!(policy.decide(&mut input(&[1, 9, 9]), &mut view), Decision::Executor(1));
/// # Ok::<(), heddle_steer::native::NativeError>(())
/// ```
#[derive(Debug)]
pub struct NativePolicy {
    object: NativeObject,
}

impl NativePolicy {
    /// Creates an instance of a policy that Heddle ships, with `params` as `name=number,name=number`. Needs
    /// no compiler.
    ///
    /// # Errors
    /// [`NativeError::Unknown`], [`NativeError::Param`], [`NativeError::Load`].
    pub fn shipped(name: &str, params: &str) -> Result<Self, NativeError> {
        let bytes = shipped_native(name).ok_or_else(|| NativeError::Unknown {
            name: name.to_owned(),
            known: shipped_names().collect::<Vec<_>>().join(", "),
        })?;
        Self::load(bytes, params)
    }

    /// Compiles the policy in `file` and creates an instance. Its code is trusted like this program's.
    ///
    /// # Errors
    /// [`NativeError::Compile`], [`NativeError::Param`], [`NativeError::Load`].
    pub fn compile(file: &Path, params: &str) -> Result<Self, NativeError> {
        Self::load(&compile_native(file)?, params)
    }

    fn load(bytes: &[u8], params: &str) -> Result<Self, NativeError> {
        let mut object = NativeObject::load(bytes)?;
        for (index, value) in settings(&parse_params(&object.params()), &pairs(params)?)? {
            object.set_param(index, value);
        }
        Ok(Self { object })
    }

    /// Decides where `input` goes.
    #[inline]
    pub fn decide(&mut self, input: &mut Input, view: &mut dyn View) -> Decision {
        let executors = view.executors();
        debug_assert!((1..=MAX_EXECUTORS as u32).contains(&executors), "{executors} executors");
        match self.object.decide(input, view) {
            PASS => Decision::Pass,
            DROP => Decision::Drop,
            index if index < executors => Decision::Executor(index as usize),
            index => Decision::Wrong(index),
        }
    }

    /// Returns its parameters, as they are set.
    #[must_use]
    pub fn params(&self) -> Vec<Param> {
        parse_params(&self.object.params())
    }

    /// Returns the lines of the executors, for the threads that serve them to write.
    #[must_use]
    pub fn lines(&self) -> &Arc<Lines> {
        self.object.lines()
    }

    /// Returns the array `name` that the policy declares with `HD_MAP` or `HD_TABLE`.
    #[must_use]
    pub fn map(&self, name: &str) -> Option<NativeMap> {
        self.object.map(name)
    }
}

/// Returns an input with this payload; the caller fills in ports, hash and protocol.
#[must_use]
pub fn input(payload: &[u8]) -> Input {
    let seen = payload.len().min(WINDOW);
    let mut window = [0; WINDOW];
    window[..seen].copy_from_slice(&payload[..seen]);
    Input {
        length: u32::try_from(payload.len()).unwrap_or(u32::MAX),
        hash: 0,
        source_port: 0,
        destination_port: 0,
        protocol: 17,
        family: 4,
        seen: u16::try_from(seen).unwrap_or(0),
        window,
    }
}
