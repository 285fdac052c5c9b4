//! The table of facts, read.

use std::collections::BTreeMap;

use serde_json::Value;

/// A kind as capmox serves it.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) name: String,
    /// Plural, singular, short names, categories, scope, version, status subresource.
    pub(crate) names: BTreeMap<String, String>,
    /// Printer columns: name, type, JSONPath.
    pub(crate) columns: Vec<[String; 3]>,
    /// Schema facts by path.
    pub(crate) fields: BTreeMap<String, Field>,
}

/// What is known of a field.
#[derive(Debug, Clone, Default)]
pub(crate) struct Field {
    /// Keywords of the schema, as the CRD writes them, with `type`.
    pub(crate) keywords: BTreeMap<String, Value>,
    /// Rules: message and expression.
    pub(crate) rules: Vec<(String, String)>,
}

type Lines<'a> = Vec<Vec<&'a str>>;

/// Reads the table.
pub(crate) fn read() -> Vec<Kind> {
    let text = include_str!("capmox-0.7.7.tsv");
    let mut rules = BTreeMap::new();
    let mut sections: Vec<(&str, &str, Lines<'_>)> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let cells: Vec<&str> = line.split('\t').collect();
        if let ["rule", key, message, rule] = cells[..] {
            rules.insert(key, (message.to_owned(), rule.to_owned()));
        } else if let Some(name) = line.strip_prefix("block ") {
            sections.push(("block", name, Vec::new()));
        } else if let Some(name) = line.strip_prefix("kind ") {
            sections.push(("kind", name, Vec::new()));
        } else {
            sections.last_mut().expect("a section").2.push(cells);
        }
    }
    let (blocks, kinds): (Vec<_>, Vec<_>) =
        sections.into_iter().partition(|(what, ..)| *what == "block");
    let blocks: BTreeMap<&str, Lines<'_>> =
        blocks.into_iter().map(|(_, name, lines)| (name, lines)).collect();
    kinds.into_iter().map(|(_, name, lines)| kind(name, &lines, &blocks, &rules)).collect()
}

fn kind(
    name: &str,
    lines: &Lines<'_>,
    blocks: &BTreeMap<&str, Lines<'_>>,
    rules: &BTreeMap<&str, (String, String)>,
) -> Kind {
    let mut kind = Kind {
        name: name.to_owned(),
        names: BTreeMap::new(),
        columns: Vec::new(),
        fields: BTreeMap::new(),
    };
    let mut rest = Vec::new();
    for cells in lines {
        match cells[..] {
            ["names", ..] => kind.names = cells[1..].iter().map(|cell| pair(cell)).collect(),
            ["column", name, type_, path] => kind.columns.push([name, type_, path].map(Into::into)),
            _ => rest.push(cells.clone()),
        }
    }
    add("", &rest, blocks, rules, &mut kind.fields);
    kind
}

fn add(
    prefix: &str,
    lines: &Lines<'_>,
    blocks: &BTreeMap<&str, Lines<'_>>,
    rules: &BTreeMap<&str, (String, String)>,
    fields: &mut BTreeMap<String, Field>,
) {
    for cells in lines {
        let path = format!("{prefix}{}", if cells[0] == "." { "" } else { cells[0] });
        if let Some(block) = cells[1].strip_prefix('@') {
            add(&path, &blocks[block], blocks, rules, fields);
            continue;
        }
        let mut field = Field::default();
        field.keywords.insert("type".to_owned(), cells[1].into());
        for cell in &cells[2..] {
            let (key, value) = pair(cell);
            if key == "rule" {
                field.rules.push(rules[value.as_str()].clone());
            } else {
                let value = serde_json::from_str(&value).expect(cell);
                field.keywords.insert(keyword(&key).to_owned(), value);
            }
        }
        assert!(fields.insert(path.clone(), field).is_none(), "{path} is there twice");
    }
}

fn pair(cell: &str) -> (String, String) {
    let (key, value) = cell.split_once('=').expect(cell);
    (key.to_owned(), value.to_owned())
}

fn keyword(short: &str) -> &str {
    match short {
        "min" => "minimum",
        "max" => "maximum",
        "list" => "x-kubernetes-list-type",
        "keys" => "x-kubernetes-list-map-keys",
        "map" => "x-kubernetes-map-type",
        other => other,
    }
}
