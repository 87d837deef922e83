//! Parameters of policies: `HD_PARAM` in a policy's source, `sita:type-offset=0,scan=2` at deployment.
//!
//! They lie in a constant section of the object, 128 bytes each, and carry their own descriptions. Setting
//! one changes the section's bytes before a map is made of them, so the verifier sees a number, and code for
//! other numbers is not even loaded.

use super::object::{DeclKind, Object};

/// The section, and the map that it becomes.
const SECTION: &str = "params_constants";
/// Bytes of `struct hd_param` in `heddle/policy.h`.
pub(crate) const SIZE: usize = 128;
const NAME: std::ops::Range<usize> = 24..48;
const MEANING: std::ops::Range<usize> = 48..128;

/// A number of a policy that can be set at deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Its name, with dashes.
    pub name: String,
    /// What it means, in a few words.
    pub meaning: String,
    /// Its value: at first the default.
    pub value: u64,
    /// Its minimum.
    pub least: u64,
    /// Its maximum.
    pub most: u64,
}

/// Why parameters cannot be set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParamError {
    /// A part that is not of the form `name=number`.
    #[error("`{0}` is not of the form name=number")]
    Syntax(String),
    /// A parameter given twice.
    #[error("parameter `{0}` is given twice")]
    Twice(String),
    /// A parameter that the policy does not have, and those that it has.
    #[error("no parameter `{name}`; there are: {known}")]
    Unknown {
        /// What was given.
        name: String,
        /// The existing names.
        known: String,
    },
    /// A number out of range.
    #[error("parameter `{name}`: `{given}` is not a whole number from {least} to {most}")]
    Value {
        /// Which one.
        name: String,
        /// What was given.
        given: String,
        /// The least.
        least: u64,
        /// The most.
        most: u64,
    },
}

/// Splits `sita:type-offset=0,scan=2` into the policy and its parameters. The policy may be a file whose name
/// has a colon.
#[must_use]
pub fn split_params(text: &str) -> (&str, &str) {
    match text.rsplit_once(':') {
        Some((policy, params)) if params.is_empty() || params.contains('=') => (policy, params),
        _ => (text, ""),
    }
}

/// Splits `type-offset=0,scan=2` into names and values.
///
/// # Errors
/// [`ParamError::Syntax`].
pub fn pairs(given: &str) -> Result<Vec<(String, String)>, ParamError> {
    let parts = given.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts
        .map(|part| match part.split_once('=') {
            Some((name, value)) => Ok((name.trim().to_owned(), value.trim().to_owned())),
            None => Err(ParamError::Syntax(part.to_owned())),
        })
        .collect()
}

/// Returns the parameters of `object`, in the order of its source.
#[must_use]
pub fn params(object: &Object) -> Vec<Param> {
    object.map(SECTION).map_or_else(Vec::new, |map| match &map.kind {
        DeclKind::Data { bytes, .. } => parse(bytes),
        _ => Vec::new(),
    })
}

/// Sets parameters of `object` by name; all, or none if one is wrong. Returns what was set, as understood.
///
/// # Errors
/// See [`ParamError`].
pub fn set_params(
    object: &mut Object,
    given: &[(String, String)],
) -> Result<Vec<(String, String)>, ParamError> {
    let params = params(object);
    let settings = settings(&params, given)?;
    let set = settings.iter().map(|(at, value)| (params[*at].name.clone(), value.to_string()));
    let set = set.collect();
    let map = object.maps.iter_mut().find(|map| map.name == SECTION);
    if let Some(DeclKind::Data { bytes, .. }) = map.map(|map| &mut map.kind) {
        for (index, value) in settings {
            bytes[index * SIZE..index * SIZE + 8].copy_from_slice(&value.to_le_bytes());
        }
    }
    Ok(set)
}

/// Parses the parameters in a section. In a malicious object, anything else has no name that could be given.
pub(crate) fn parse(bytes: &[u8]) -> Vec<Param> {
    bytes.chunks_exact(SIZE).map(param).collect()
}

fn param(bytes: &[u8]) -> Param {
    let number = |at: usize| bytes[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
    Param {
        name: text(&bytes[NAME]).replace('_', "-"),
        meaning: text(&bytes[MEANING]),
        value: number(0),
        least: number(8),
        most: number(16),
    }
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Returns which of `params` to set to what.
pub(crate) fn settings(
    params: &[Param],
    given: &[(String, String)],
) -> Result<Vec<(usize, u64)>, ParamError> {
    let mut settings: Vec<(usize, u64)> = Vec::new();
    for (name, value) in given {
        let name = name.replace('_', "-");
        let index = params.iter().position(|param| param.name == name);
        let index = index.ok_or_else(|| unknown(params, &name))?;
        if settings.iter().any(|(other, _)| *other == index) {
            return Err(ParamError::Twice(name));
        }
        settings.push((index, number(&params[index], value)?));
    }
    Ok(settings)
}

fn unknown(params: &[Param], name: &str) -> ParamError {
    let names: Vec<&str> = params.iter().map(|param| param.name.as_str()).collect();
    let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    ParamError::Unknown { name: name.to_owned(), known }
}

fn number(param: &Param, given: &str) -> Result<u64, ParamError> {
    let parsed = match given.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => given.parse(),
    };
    let Param { name, least, most, .. } = param;
    parsed.ok().filter(|value| (*least..=*most).contains(value)).ok_or_else(|| ParamError::Value {
        name: name.clone(),
        given: given.to_owned(),
        least: *least,
        most: *most,
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Object, read, shipped};
    use super::*;

    fn sita() -> Object {
        read(shipped("sita").expect("shipped")).expect("readable")
    }

    fn values(object: &Object) -> Vec<(String, u64)> {
        params(object).into_iter().map(|param| (param.name, param.value)).collect()
    }

    #[test]
    fn parameters_are_listed_with_meaning_and_range() {
        let first = Param {
            name: "type-offset".into(),
            meaning: "which byte of a request is its type".into(),
            value: 2,
            least: 0,
            most: 127,
        };
        assert_eq!(params(&sita())[0], first);
        let round_robin = read(shipped("round-robin").expect("shipped")).expect("readable");
        assert_eq!(params(&round_robin), []);
    }

    #[test]
    fn set_parameters_change_and_others_keep_their_default() {
        let mut object = sita();
        let given = pairs("scan=0x10, type_offset=0").expect("pairs");
        let set = set_params(&mut object, &given).expect("both exist");
        assert_eq!(set, pairs("scan=16,type-offset=0").expect("pairs"));
        let wanted = [("type-offset", 0), ("scan", 16), ("reserved", 1)];
        assert_eq!(values(&object), wanted.map(|(name, value)| (name.to_owned(), value)));
    }

    #[test]
    fn wrong_parameters_are_refused_with_advice_and_change_nothing() {
        let mut object = sita();
        let mut error = |given| {
            let set = pairs(given).and_then(|given| set_params(&mut object, &given));
            set.map(drop).unwrap_err().to_string()
        };
        assert_eq!(
            error("scan=1,length=3"),
            "no parameter `length`; there are: type-offset, scan, reserved"
        );
        assert_eq!(
            error("scan=256"),
            "parameter `scan`: `256` is not a whole number from 0 to 255"
        );
        assert_eq!(error("scan=-1"), "parameter `scan`: `-1` is not a whole number from 0 to 255");
        assert_eq!(error("scan"), "`scan` is not of the form name=number");
        assert_eq!(error("scan=1,scan=1"), "parameter `scan` is given twice");
        assert_eq!(object, sita());
    }

    #[test]
    fn a_colon_in_a_file_name_does_not_start_a_parameter() {
        assert_eq!(split_params("sita:scan=2"), ("sita", "scan=2"));
        assert_eq!(split_params("sita"), ("sita", ""));
        assert_eq!(split_params("./a:b.c"), ("./a:b.c", ""));
        assert_eq!(split_params("./a:b.c:x=1"), ("./a:b.c", "x=1"));
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_and_no_text_make_it_panic(bytes: Vec<u8>, given in ".{0,60}") {
            let _ = pairs(&given).and_then(|given| settings(&parse(&bytes), &given));
        }
    }
}
