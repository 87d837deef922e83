//! Turns the text of a scenario file into its values and their places.

use super::draft::Item;
use super::error::{ScenarioError, ValueSource};
use super::value::RawValue;
use toml::de::{DeTable, DeValue};

/// Returns the values of a file with nested tables flattened: `machine.cpus`.
pub(super) fn items(text: &str, name: &str) -> Result<Vec<Item>, ScenarioError> {
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        ScenarioError {
            place: Some(ValueSource::at(name, text, at)),
            problem: error.message().trim_end().replace('\n', "; "),
        }
    })?;
    let mut items = Vec::new();
    flatten(&mut items, "", table.get_ref(), &|at| ValueSource::at(name, text, at));
    Ok(items)
}

fn flatten(
    items: &mut Vec<Item>,
    path: &str,
    table: &DeTable<'_>,
    place: &dyn Fn(usize) -> ValueSource,
) {
    for (name, value) in table {
        let key = if path.is_empty() {
            name.get_ref().to_string()
        } else {
            format!("{path}.{}", name.get_ref())
        };
        match value.get_ref() {
            DeValue::Table(inner) if !inner.is_empty() => flatten(items, &key, inner, place),
            single => {
                // For an unknown key, the error points at the key; otherwise at the value.
                let known = super::keys::find(&key).is_some();
                let at = if known { value.span().start } else { name.span().start };
                items.push(Item { key, place: place(at), given: RawValue::from_toml(single) });
            }
        }
    }
}
