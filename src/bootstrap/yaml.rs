//! The little of YAML that the seed needs: scalars that every parser reads as the text they are.
//!
//! A general emitter is not enough here. cloud-init reads YAML 1.1, where `12:34:56:01:02:03` is
//! a number to the base of sixty, `no` is a boolean and `2026-01-02` is a date; emitters for YAML
//! 1.2 write all three without quotes.

use std::fmt::Write as _;

/// Words that YAML 1.1 takes for booleans or null, in lower case.
const RESERVED: [&str; 11] =
    ["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"];

/// A double-quoted scalar.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            // Not printable by YAML's own list: C0, DEL, C1, the two separators and the BOM.
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}') => {
                // Writing to a String cannot fail.
                let _ = write!(out, "\\u{:04X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// The scalar without quotes where no parser could mistake it, else quoted.
pub(super) fn scalar(text: &str) -> String {
    if is_plain(text) { text.to_owned() } else { quoted(text) }
}

fn is_plain(text: &str) -> bool {
    let safe = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._:/".contains(&b));
    let starts_as_text = text.starts_with(|c: char| c.is_ascii_alphabetic()) || is_uuid(text);
    safe && starts_as_text
        && !text.ends_with(':')
        && !RESERVED.contains(&text.to_ascii_lowercase().as_str())
}

/// Four dashes keep a UUID from being read as a number or a date, whatever its digits.
fn is_uuid(text: &str) -> bool {
    let groups: Vec<&str> = text.split('-').collect();
    groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12])
        && groups.iter().all(|group| group.bytes().all(|b| b.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_yaml_would_read_as_something_else_is_quoted() {
        for text in ["", "no", "Yes", "NULL", "123", "1.5", "1e3", "0x1f", "2026-01-02", "~", "a:"]
        {
            assert_eq!(scalar(text), format!("\"{text}\""));
        }
        assert_eq!(scalar("12:34:56:01:02:03"), "\"12:34:56:01:02:03\"");
        assert_eq!(scalar("a # b"), "\"a # b\"");
        assert_eq!(scalar("no\u{2028}"), "\"no\\u2028\"");
        assert_eq!(scalar("a\nb\"\\\u{7f}"), "\"a\\nb\\\"\\\\\\u007F\"");
    }

    #[test]
    fn ordinary_names_stay_plain() {
        for text in [
            "node-1.lab",
            "v1.34.4",
            "11111111-2222-3333-4444-555555555555",
            "proxmox://11111111-2222-3333-4444-555555555555",
        ] {
            assert_eq!(scalar(text), text);
        }
    }

    proptest::proptest! {
        #[test]
        fn every_scalar_is_read_back_as_the_text_it_was(text: String) {
            let read: String = serde_yaml::from_str(&scalar(&text)).expect("parses");
            proptest::prop_assert_eq!(read, text);
        }
    }
}
