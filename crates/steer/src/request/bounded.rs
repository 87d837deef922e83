//! Bounds on the parts of a request. They are enforced while a message is parsed, not once it is in memory:
//! there, a parameter takes ten times its size in the message.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};

use crate::policy::MAX_FILE;

/// Parameters of a policy.
const PARAMETERS: usize = 64;
/// Roles of descriptors: as many executors as there can be, and others. They come with several messages.
pub const ROLES: usize = heddle_core::line::MOST + 96;
/// CPUs, each of which is an executor.
const CPUS: usize = 64;
/// Bytes of a text.
const TEXT: usize = 4096;

/// Accepts `most` elements, and fails at the next.
fn few<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
    most: usize,
    what: &'static str,
) -> Result<Vec<T>, D::Error> {
    struct BoundedVec<T>(usize, &'static str, PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for BoundedVec<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{} {} at most", self.0, self.1)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Vec<T>, A::Error> {
            let mut taken = Vec::new();
            while let Some(one) = from.next_element()? {
                if taken.len() == self.0 {
                    return Err(A::Error::custom(format!("more than {} {}", self.0, self.1)));
                }
                taken.push(one);
            }
            Ok(taken)
        }
    }
    from.deserialize_seq(BoundedVec(most, what, PhantomData))
}

/// A text of bounded length.
struct Text(String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Short;
        impl Visitor<'_> for Short {
            type Value = Text;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a text of {TEXT} bytes at most")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Text, E> {
                if text.len() > TEXT {
                    let n = text.len();
                    return Err(E::custom(format!("a text of {n} bytes, more than {TEXT} bytes")));
                }
                Ok(Text(text.into()))
            }
        }
        from.deserialize_str(Short)
    }
}

pub fn text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Text::deserialize(from).map(|text| text.0)
}

pub fn parameters<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<(String, String)>, D::Error> {
    let given: Vec<(Text, Text)> = few(from, PARAMETERS, "parameters")?;
    Ok(given.into_iter().map(|(name, value)| (name.0, value.0)).collect())
}

pub fn object<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<u8>>, D::Error> {
    struct Bytes(Vec<u8>);
    impl<'de> Deserialize<'de> for Bytes {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            few(from, MAX_FILE, "bytes of a compiled policy").map(Self)
        }
    }
    Ok(Option::<Bytes>::deserialize(from)?.map(|bytes| bytes.0))
}

pub fn roles<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    few(from, ROLES, "roles of descriptors")
}

pub fn cpus<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u32>, D::Error> {
    few(from, CPUS, "CPUs")
}
