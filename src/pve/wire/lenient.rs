//! Deserialisers that take every form of a value that has been seen.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A scalar as text: numbers as they are written, booleans as 1 and 0.
pub(in crate::pve) fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(if *flag { "1" } else { "0" }.to_owned()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn number_of(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) => number.as_i64().or_else(|| whole(number.as_f64()?)),
        Value::String(text) => {
            let text = text.trim();
            text.parse().ok().or_else(|| whole(text.parse().ok()?))
        }
        Value::Bool(flag) => Some(i64::from(*flag)),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Proxmox gives some sizes as floating-point numbers; fractions of bytes and seconds are dropped.
fn whole(number: f64) -> Option<i64> {
    // 2^63 and NaN are not below it.
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    #[expect(clippy::cast_possible_truncation, reason = "in range, and only the fraction goes")]
    (number.abs() < LIMIT).then_some(number as i64)
}

/// A boolean in any form.
pub(in crate::pve) fn boolean_of(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(flag) => Some(*flag),
        Value::Number(number) => number.as_f64().map(|number| number != 0.0),
        Value::String(text) => match text.trim().to_ascii_lowercase().as_str() {
            "" | "0" | "no" | "off" | "false" => Some(false),
            _ => Some(true),
        },
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// A text, number or boolean as text; anything else is none. An empty text is none too.
pub(in crate::pve) fn text<'de, D: Deserializer<'de>>(d: D) -> Result<Option<String>, D::Error> {
    Ok(text_of(&Value::deserialize(d)?).filter(|text| !text.is_empty()))
}

/// A number that is not negative, or its text.
pub(in crate::pve) fn number<'de, D: Deserializer<'de>>(d: D) -> Result<Option<u64>, D::Error> {
    Ok(number_of(&Value::deserialize(d)?).and_then(|number| u64::try_from(number).ok()))
}

/// A number, or its text.
pub(in crate::pve) fn signed<'de, D: Deserializer<'de>>(d: D) -> Result<Option<i64>, D::Error> {
    Ok(number_of(&Value::deserialize(d)?))
}

/// A boolean in any form, if it is there.
pub(in crate::pve) fn boolean<'de, D: Deserializer<'de>>(d: D) -> Result<Option<bool>, D::Error> {
    Ok(boolean_of(&Value::deserialize(d)?))
}

/// A boolean in any form; missing is false.
pub(in crate::pve) fn flag<'de, D: Deserializer<'de>>(d: D) -> Result<bool, D::Error> {
    Ok(boolean_of(&Value::deserialize(d)?).unwrap_or(false))
}

/// A list of texts, or one text with commas.
pub(in crate::pve) fn text_list<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<String>, D::Error> {
    Ok(match Value::deserialize(d)? {
        Value::Array(values) => values.iter().filter_map(text_of).collect(),
        value => text_of(&value)
            .unwrap_or_default()
            .split(',')
            .map(str::trim)
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
            .collect(),
    })
}

/// A list whose elements are read one by one. Anything that is not a list is none: agents of some
/// guests give an error object where others give a list.
pub(in crate::pve) fn option_list<'de, D, T>(d: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    Ok(value_list(Value::deserialize(d)?).unwrap_or_default())
}

/// Takes a list apart. An element that cannot be read is left out, so that one strange guest does
/// not hide all others; it is logged.
pub(in crate::pve) fn value_list<T: DeserializeOwned>(value: Value) -> Result<Vec<T>, String> {
    let values = match value {
        Value::Array(values) => values,
        Value::Null => return Ok(Vec::new()),
        other => return Err(format!("expected a list, got {}", kind(&other))),
    };
    let read = values.into_iter().filter_map(|value| match serde_json::from_value(value) {
        Ok(element) => Some(element),
        Err(error) => {
            tracing::debug!(%error, "an element of a Proxmox list is left out");
            None
        }
    });
    Ok(read.collect())
}

/// What a value is, for messages.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
