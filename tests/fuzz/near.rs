//! Texts and values that are nearly right: far more telling than noise, which the first check
//! refuses.

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde_json::Value;

/// A text in which one piece was left out, doubled, or replaced by noise.
pub(crate) fn spoiled(sound: &'static [&'static str]) -> impl Strategy<Value = String> {
    let noise =
        prop_oneof![Just(String::new()), ".{0,4}", "[,;:=/@!%\\\\\u{0}-]{1,3}", "[0-9]{20}"];
    (proptest::sample::select(sound), any::<(usize, usize)>(), noise).prop_map(
        |(text, (from, length), noise)| {
            let letters: Vec<char> = text.chars().collect();
            let from = from % (letters.len() + 1);
            let to = (from + length % 6).min(letters.len());
            let mut out: String = letters[..from].iter().collect();
            out.push_str(&noise);
            out.extend(&letters[to..]);
            out
        },
    )
}

/// Bytes of which some were changed, left out or put in.
pub(crate) fn damaged(sound: Vec<u8>) -> impl Strategy<Value = Vec<u8>> {
    let length = sound.len();
    let changes = vec((0..length.max(1), any::<u8>()), 0..12);
    (changes, proptest::option::weighted(0.2, 0..length.max(1))).prop_map(move |(changes, cut)| {
        let mut bytes = sound.clone();
        for (place, byte) in changes {
            if let Some(there) = bytes.get_mut(place) {
                *there = byte;
            }
        }
        bytes.truncate(cut.unwrap_or(bytes.len()));
        bytes
    })
}

/// Any JSON value, with numbers at the edges and texts that look like numbers.
pub(crate) fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        Just(Value::from(u64::MAX)),
        any::<f64>().prop_map(Value::from),
        Just(Value::from("")),
        "-?[0-9]{1,25}(\\.[0-9]{1,3})?([eE][0-9]{1,3})?".prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            btree_map(".{0,6}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// An object in which every key may be missing or hold anything.
pub(crate) fn object(keys: &'static [&'static str]) -> impl Strategy<Value = Value> {
    btree_map(proptest::sample::select(keys), json(), 0..=keys.len())
        .prop_map(|map| Value::Object(map.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()))
}
