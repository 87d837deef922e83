//! Steering and its attachments, as calls name them.

use std::ffi::c_int;

use heddle_steer::client::Steering;
use heddle_steer::request::Error;

use crate::error::invalid;

/// Opens steering; `HEDDLE_DIRECT` in the environment asks for it without heddled.
pub fn steering() -> Result<Steering, Error> {
    Steering::open(std::env::var_os("HEDDLE_DIRECT").is_some())
}

/// Converts the number of an attachment.
pub fn id(id: c_int) -> Result<u32, Error> {
    u32::try_from(id).map_err(|_| invalid("the attachment number is negative"))
}
