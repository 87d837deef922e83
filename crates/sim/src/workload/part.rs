//! One kind of request among several.

use super::grammar::Span;
use super::percent::{self, Percent};
use super::{Service, WorkloadError};
use heddle_core::Class;
use std::fmt;
use std::path::Path;

/// One kind of request.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Its name in results: letters, digits and `-_.`, or exactly the text of `service`.
    pub name: String,
    /// The share of all requests, above 0 and at most 1.
    pub share: f64,
    /// The class that the policy sees.
    pub class: Class,
    /// How long it runs.
    pub service: Service,
}

const EXAMPLE: &str = "get: 95% 1us, scan(class=1): 5% 260us";

impl Part {
    /// Creates a part named after its service, of class 0.
    pub fn new(share: f64, service: Service) -> Part {
        Part { name: service.to_string(), share, class: Class::default(), service }
    }

    /// Returns the part with another name.
    pub fn named(self, name: &str) -> Part {
        Part { name: name.to_string(), ..self }
    }

    pub(super) fn read(span: Span<'_>, alone: bool, folder: &Path) -> Result<Part, WorkloadError> {
        let (label, rest) = span.cut(':').map_or((None, span), |(label, rest)| (Some(label), rest));
        let (share, service) = match rest.cut('%') {
            Some((number, service)) => {
                let expected = "a share above 0% and at most 100%";
                let share = percent::parse(&format!("{}%", number.text()));
                (share.ok_or_else(|| number.not(expected, EXAMPLE))?, service)
            }
            None if alone => (1.0, rest),
            None => return Err(rest.not("a share and a service time", EXAMPLE).into()),
        };
        let mut part = Part::new(share, Service::read(service, folder)?);
        label.map_or(Ok(()), |label| part.label(label))?;
        Ok(part)
    }

    /// Takes name and class from `name`, `name(class=1)` or `(class=1)`.
    fn label(&mut self, label: Span<'_>) -> Result<(), WorkloadError> {
        let (name, inside) = label.call(EXAMPLE)?;
        if let Some(inside) = inside {
            let number = inside.cut('=').filter(|(key, _)| key.text() == "class");
            let class = number.and_then(|(_, number)| number.text().parse().ok());
            self.class = Class(class.ok_or_else(|| inside.not("class= and 0 to 255", EXAMPLE))?);
        }
        match name.text() {
            "" if inside.is_some() => Ok(()),
            text if plain(text) => {
                self.name = text.to_string();
                Ok(())
            }
            _ => Err(name.not("a name of letters, digits and -_.", EXAMPLE).into()),
        }
    }

    /// Writes what [`Part::read`] reads.
    pub(super) fn write(&self, alone: bool, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let service = self.service.to_string();
        let name = if self.name == service { "" } else { &self.name };
        match (name, self.class.0) {
            ("", 0) => {}
            (_, 0) => write!(f, "{name}: ")?,
            (_, class) => write!(f, "{name}(class={class}): ")?,
        }
        if !alone || self.share != 1.0 {
            write!(f, "{} ", Percent(self.share))?;
        }
        f.write_str(&service)
    }
}

/// Returns whether a name needs no quoting.
pub(super) fn plain(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "-_.".contains(c))
}
