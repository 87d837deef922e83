//! Parameters in text form: `two-queue:quantum=100us,long=1ms`.

use crate::Ns;
use core::fmt;

/// The name and parameters of a chosen policy. Each getter declares a parameter that exists. [`Params::finish`] refuses
/// parameters that no getter has read, so the list in its error is always complete.
///
/// ```
/// use heddle_core::{Ns, Params};
/// let mut params = Params::parse("two-queue:quantum=50us,longg=1ms").unwrap();
/// assert_eq!(params.name(), "two-queue");
/// assert_eq!(params.ns("quantum", Ns::from_us(100)).unwrap(), Ns::from_us(50));
/// assert_eq!(params.ns("long", Ns::from_ms(1)).unwrap(), Ns::from_ms(1));
/// let error = params.finish().unwrap_err().to_string();
/// assert_eq!(error, "no parameter `longg`; there are: quantum, long");
/// ```
#[derive(Clone, Debug)]
pub struct Params<'a> {
    name: &'a str,
    given: [Option<(&'a str, &'a str)>; Params::MOST],
    known: ParamNames,
}

/// The names of the parameters that exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ParamNames([Option<&'static str>; Params::MOST]);

/// What is wrong with parameters, and what is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamError<'a> {
    /// A part is not of the form `key=value`.
    Syntax(&'a str),
    /// More than [`Params::MOST`] parameters.
    TooMany,
    /// The same parameter is given twice.
    Twice(&'a str),
    /// A parameter that does not exist, and the names of those that do.
    Unknown(&'a str, ParamNames),
    /// A value that the parameter cannot take.
    Value {
        /// The parameter.
        key: &'static str,
        /// The value given.
        given: &'a str,
        /// What is allowed; completes "is not".
        allowed: &'static str,
    },
}

impl<'a> Params<'a> {
    /// The maximum number of parameters.
    pub const MOST: usize = 8;

    /// Parses `name` or `name:key=value,key=value`.
    ///
    /// # Errors
    /// [`ParamError::Syntax`], [`ParamError::TooMany`] or [`ParamError::Twice`].
    pub fn parse(text: &'a str) -> Result<Params<'a>, ParamError<'a>> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let mut given = [None; Params::MOST];
        let parts = rest.split(',').map(str::trim).filter(|p| !p.is_empty());
        for (i, part) in parts.enumerate() {
            let (key, value) = part.split_once('=').ok_or(ParamError::Syntax(part))?;
            let (key, value) = (key.trim(), value.trim());
            if given.iter().flatten().any(|&(k, _)| k == key) {
                return Err(ParamError::Twice(key));
            }
            *given.get_mut(i).ok_or(ParamError::TooMany)? = Some((key, value));
        }
        Ok(Params { name: name.trim(), given, known: ParamNames::default() })
    }

    /// Returns the name before the colon.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// Returns the value of `key` as written.
    ///
    /// # Panics
    /// If a policy reads more than [`Params::MOST`] parameters.
    pub fn text(&mut self, key: &'static str) -> Option<&'a str> {
        let free = self.known.0.iter_mut().find(|k| k.is_none_or(|k| k == key));
        *free.expect("a policy has at most 8 parameters") = Some(key);
        self.given.iter().flatten().find(|&&(k, _)| k == key).map(|&(_, v)| v)
    }

    /// Returns a time above zero.
    ///
    /// # Errors
    /// [`ParamError::Value`].
    pub fn ns(&mut self, key: &'static str, default: Ns) -> Result<Ns, ParamError<'a>> {
        let allowed = "a time above zero, for example 100us, 1.5ms or 2s";
        let Some(given) = self.text(key) else { return Ok(default) };
        let parsed = given.parse().ok().filter(|&ns| ns > Ns::ZERO);
        parsed.ok_or(ParamError::Value { key, given, allowed })
    }

    /// Returns a time above zero; `None` if the value is `none`.
    ///
    /// # Errors
    /// [`ParamError::Value`].
    pub fn ns_or_none(
        &mut self,
        key: &'static str,
        default: Option<Ns>,
    ) -> Result<Option<Ns>, ParamError<'a>> {
        match self.text(key) {
            None => Ok(default),
            Some("none") => Ok(None),
            Some(_) => self.ns(key, Ns::ZERO).map(Some).map_err(|e| match e {
                ParamError::Value { key, given, .. } => {
                    let allowed = "a time above zero such as 100us, nor `none`";
                    ParamError::Value { key, given, allowed }
                }
                other => other,
            }),
        }
    }

    /// Returns a whole number of at least one.
    ///
    /// # Errors
    /// [`ParamError::Value`].
    pub fn count(&mut self, key: &'static str, default: u32) -> Result<u32, ParamError<'a>> {
        let Some(given) = self.text(key) else { return Ok(default) };
        let allowed = "a whole number of at least 1";
        let parsed = given.parse().ok().filter(|&n| n > 0);
        parsed.ok_or(ParamError::Value { key, given, allowed })
    }

    /// Refuses parameters that no getter has read. Call it after the getters.
    ///
    /// # Errors
    /// [`ParamError::Unknown`].
    pub fn finish(&self) -> Result<(), ParamError<'a>> {
        let known = |key: &str| self.known.0.iter().flatten().any(|&k| k == key);
        match self.given.iter().flatten().find(|&&(key, _)| !known(key)) {
            Some(&(key, _)) => Err(ParamError::Unknown(key, self.known)),
            None => Ok(()),
        }
    }
}

impl fmt::Display for ParamNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, key) in self.0.iter().flatten().enumerate() {
            write!(f, "{}{key}", if i == 0 { "" } else { ", " })?;
        }
        match self.0[0] {
            Some(_) => Ok(()),
            None => f.write_str("none"),
        }
    }
}

impl fmt::Display for ParamError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParamError::Syntax(part) => write!(f, "`{part}` is not of the form key=value"),
            ParamError::TooMany => write!(f, "more than {} parameters", Params::MOST),
            ParamError::Twice(key) => write!(f, "parameter `{key}` is given twice"),
            ParamError::Unknown(key, known) => {
                write!(f, "no parameter `{key}`; there are: {known}")
            }
            ParamError::Value { key, given, allowed } => {
                write!(f, "parameter `{key}`: `{given}` is not {allowed}")
            }
        }
    }
}

impl core::error::Error for ParamError<'_> {}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::ToString;

    #[test]
    fn a_name_alone_means_all_defaults() {
        let mut p = Params::parse("fifo").unwrap();
        assert_eq!((p.name(), p.count("n", 3)), ("fifo", Ok(3)));
        assert_eq!(p.ns_or_none("quantum", None), Ok(None));
        assert_eq!(p.finish(), Ok(()));
    }

    #[test]
    fn each_error_says_what_is_allowed() {
        let error = |text: &'static str| {
            let mut p = Params::parse(text).map_err(|e| e.to_string())?;
            p.ns_or_none("quantum", None).map_err(|e| e.to_string())?;
            p.count("n", 1).map_err(|e| e.to_string())?;
            p.finish().map_err(|e| e.to_string())
        };
        let cases = [
            ("a:quantum", "`quantum` is not of the form key=value"),
            ("a:n=1,n=2", "parameter `n` is given twice"),
            ("a:m=1", "no parameter `m`; there are: quantum, n"),
            ("a:n=0", "parameter `n`: `0` is not a whole number of at least 1"),
            (
                "a:quantum=5",
                "parameter `quantum`: `5` is not a time above zero such as 100us, nor `none`",
            ),
        ];
        for (text, message) in cases {
            assert_eq!(error(text), Err(message.to_string()), "{text}");
        }
        assert_eq!(error("a:quantum=none,n=2"), Ok(()));
    }

    proptest::proptest! {
        #[test]
        fn no_text_causes_a_panic(text in ".{0,80}") {
            if let Ok(mut p) = Params::parse(&text) {
                let _ = (p.ns("a", Ns(1)), p.count("b", 1), p.finish());
            }
        }
    }
}
