//! Parameters shared by several policies.

use heddle_core::{Ns, ParamError, Params};

/// `long`, the quantum of tasks that delay no short ones: at least `quantum`; by default 1 ms, or
/// `quantum` if that is longer.
pub fn long<'a>(params: &mut Params<'a>, quantum: Ns) -> Result<Ns, ParamError<'a>> {
    let long = params.ns("long", quantum.max(Ns::from_ms(1)))?;
    match params.text("long") {
        Some(given) if long < quantum => {
            let allowed = "at least as long as `quantum`";
            Err(ParamError::Value { key: "long", given, allowed })
        }
        _ => Ok(long),
    }
}

/// The upper limit of [`few`]: for policies that keep or do something per item.
pub const FEW: usize = 8;

/// A whole number from 1 to [`FEW`].
pub fn few<'a>(
    params: &mut Params<'a>,
    key: &'static str,
    default: u32,
) -> Result<usize, ParamError<'a>> {
    let count = params.count(key, default)? as usize;
    match params.text(key) {
        Some(given) if count > FEW => {
            Err(ParamError::Value { key, given, allowed: "a whole number from 1 to 8" })
        }
        _ => Ok(count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn few_are_at_most_eight() {
        let read = |text| few(&mut Params::parse(text).unwrap(), "n", 3).map_err(|e| e.to_string());
        assert_eq!((read("x"), read("x:n=8")), (Ok(3), Ok(8)));
        assert_eq!(
            read("x:n=9"),
            Err("parameter `n`: `9` is not a whole number from 1 to 8".into())
        );
        assert!(read("x:n=0").is_err());
    }
}
