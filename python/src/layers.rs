//! Converts Python's dicts to the flags of a [`Draft`](heddle_sim::Draft).

use heddle_sim::Flag;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Returns the values of `dict` with nested dicts flattened: `machine.cpus`. A key may also be written
/// with dots.
///
/// # Errors
/// `TypeError` for a value that no scenario can hold, such as a list.
pub fn flags(dict: &Bound<'_, PyDict>) -> PyResult<Vec<Flag>> {
    let mut flags = Vec::new();
    flatten(&mut flags, "", dict)?;
    Ok(flags)
}

fn flatten(flags: &mut Vec<Flag>, table: &str, dict: &Bound<'_, PyDict>) -> PyResult<()> {
    for (name, value) in dict {
        let name: String = name.extract()?;
        let key = if table.is_empty() { name } else { format!("{table}.{name}") };
        match value.cast::<PyDict>() {
            Ok(inner) => flatten(flags, &key, inner)?,
            Err(_) => {
                let value = text(&key, &value)?;
                flags.push(Flag::new(&format!("{key}={value}"), &key, &value));
            }
        }
    }
    Ok(())
}

/// Returns a value as written on a command line. NumPy's scalars are read like Python's; a float keeps
/// its point, so that 8.0 CPUs are refused here as in a file.
fn text(key: &str, value: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok(truth) = value.extract::<bool>() {
        return Ok(truth.to_string());
    }
    if value.hasattr("__index__")? {
        return Ok(value.call_method0("__index__")?.to_string());
    }
    if let Ok(text) = value.extract::<String>() {
        return Ok(text);
    }
    if let Ok(number) = value.extract::<f64>() {
        return Ok(format!("{number:?}"));
    }
    let given = value.get_type().name()?;
    Err(PyTypeError::new_err(format!("`{key}`: expected a str, int, float or bool, not {given}")))
}
