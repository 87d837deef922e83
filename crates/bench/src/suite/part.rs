//! Parts and their names.

use std::fmt;

/// What a bench consists of, in the order of its tables.
pub trait Part: Copy + PartialEq + fmt::Debug + fmt::Display + 'static {
    /// All, in order.
    const ALL: &'static [Self];

    /// Its name on the command line.
    fn name(self) -> &'static str;
}

/// The part of that name.
///
/// # Errors
/// There is none; the names of those that there are.
pub fn parse<P: Part>(name: &str) -> Result<P, String> {
    P::ALL.iter().copied().find(|part| part.name() == name).ok_or_else(|| {
        let all: Vec<&str> = P::ALL.iter().map(|part| part.name()).collect();
        format!("no part `{name}`; there are {}", all.join(", "))
    })
}

/// An enum of parts with their names, and what follows from those.
macro_rules! parts {
    ($(#[$doc:meta])* pub enum $name:ident { $($(#[$of:meta])* $part:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$of])* $part,)* }

        impl $crate::suite::Part for $name {
            const ALL: &'static [Self] = &[$($name::$part),*];

            fn name(self) -> &'static str {
                match self { $($name::$part => $text,)* }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad($crate::suite::Part::name(*self))
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;

            fn from_str(name: &str) -> Result<Self, String> {
                $crate::suite::parse(name)
            }
        }
    };
}
pub(crate) use parts;
