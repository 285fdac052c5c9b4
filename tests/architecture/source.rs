//! A source file as the rules see it: its module, its tokens without tests, and the paths in them.

use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// One Rust file.
#[derive(Debug)]
pub(crate) struct Source {
    /// Path below the repository, with `/`.
    pub(crate) path: String,
    /// The text as it is on disk.
    pub(crate) text: String,
    /// Every path and identifier outside `#[cfg(test)]`, `crate::…` made absolute, `use` trees
    /// spelled out. A path that is called ends in `()`, a macro in `!`.
    pub(crate) names: Vec<String>,
}

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let tokens: TokenStream =
            text.parse().unwrap_or_else(|error| panic!("{path} is not Rust: {error}"));
        let module = module_of(path);
        let mut names = Vec::new();
        if !is_test(path) {
            collect(&mut names, &module, tokens);
        }
        Self { path: path.into(), text: text.into(), names }
    }

    /// The module of the shipping crate that holds the file, such as `["machine", "decide"]`;
    /// `None` for other crates.
    pub(crate) fn module(&self) -> Option<Vec<String>> {
        self.path.starts_with("src/").then(|| module_of(&self.path))
    }
}

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust file of ours below `folder`.
pub(crate) fn sources(folder: &str) -> Vec<Source> {
    let mut found = Vec::new();
    walk(&root().join(folder), &mut found);
    found.sort();
    found
        .iter()
        .map(|path| {
            let below = path.strip_prefix(root()).expect("is below the root");
            let below = below.to_string_lossy().replace('\\', "/");
            Source::new(&below, &fs::read_to_string(path).expect("is UTF-8"))
        })
        .collect()
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            // "target" of a crate that was built on its own.
            if path.file_name().is_some_and(|name| name != "target") {
                walk(&path, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn is_test(path: &str) -> bool {
    path.starts_with("tests/")
        || path.ends_with("/tests.rs")
        || path.contains("/tests/")
        || path.ends_with("_tests.rs")
}

/// `src/a/b.rs` and `src/a/b/mod.rs` are both `a::b`; the roots are the empty path.
fn module_of(path: &str) -> Vec<String> {
    let below = path.split_once("src/").map_or(path, |(_, below)| below);
    let mut parts: Vec<String> =
        below.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if parts.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        parts.pop();
    }
    parts
}

fn collect(names: &mut Vec<String>, module: &[String], tokens: TokenStream) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        if is_cfg_test(&tokens, at) {
            at = after_item(&tokens, at + 2);
            continue;
        }
        match token {
            TokenTree::Ident(ident) => {
                let first = ident.to_string();
                at = path(names, module, vec![first], &tokens, at + 1);
            }
            TokenTree::Group(group) => {
                collect(names, module, group.stream());
                at += 1;
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => at += 1,
        }
    }
}

/// Reads on from `parts`, records the path, and gives the place after it.
fn path(
    names: &mut Vec<String>,
    module: &[String],
    mut parts: Vec<String>,
    tokens: &[TokenTree],
    mut at: usize,
) -> usize {
    while is_colons(tokens, at) {
        match tokens.get(at + 2) {
            Some(TokenTree::Ident(next)) => {
                parts.push(next.to_string());
                at += 3;
            }
            Some(TokenTree::Group(tree)) if tree.delimiter() == Delimiter::Brace => {
                use_tree(names, module, &parts, tree.stream());
                return at + 3;
            }
            Some(TokenTree::Punct(star)) if star.as_char() == '*' => {
                parts.push("*".into());
                at += 3;
            }
            _ => break,
        }
    }
    let suffix = match tokens.get(at) {
        Some(TokenTree::Group(call)) if call.delimiter() == Delimiter::Parenthesis => "()",
        Some(TokenTree::Punct(bang)) if bang.as_char() == '!' && !is_punct(tokens, at + 1, '=') => {
            "!"
        }
        _ => "",
    };
    names.push(absolute(module, &parts) + suffix);
    at
}

fn use_tree(names: &mut Vec<String>, module: &[String], prefix: &[String], tree: TokenStream) {
    let tokens: Vec<TokenTree> = tree.into_iter().collect();
    let branches =
        tokens.split(|token| matches!(token, TokenTree::Punct(comma) if comma.as_char() == ','));
    for branch in branches {
        let mut parts = prefix.to_vec();
        match branch.first() {
            Some(TokenTree::Ident(first)) if first == "self" => {}
            Some(TokenTree::Ident(first)) => parts.push(first.to_string()),
            Some(TokenTree::Punct(_)) => parts.push("*".into()),
            _ => continue,
        }
        path(names, module, parts, branch, 1);
    }
}

/// Resolves `self` and `super`; the library's own name in the binary means the crate.
fn absolute(module: &[String], parts: &[String]) -> String {
    let mut base: Vec<&str> = module.iter().map(String::as_str).collect();
    let mut rest = parts.iter().map(String::as_str).peekable();
    match rest.peek().copied() {
        Some("super" | "self") if parts.len() > 1 => {
            while let Some(step) = rest.next_if(|step| ["super", "self"].contains(step)) {
                if step == "super" {
                    base.pop();
                }
            }
        }
        Some("crate" | "capmox") if parts.len() > 1 => {
            rest.next();
            base.clear();
        }
        _ => return parts.join("::"),
    }
    std::iter::once("crate").chain(base).chain(rest).collect::<Vec<_>>().join("::")
}

fn is_punct(tokens: &[TokenTree], at: usize, wanted: char) -> bool {
    matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == wanted)
}

fn is_colons(tokens: &[TokenTree], at: usize) -> bool {
    is_punct(tokens, at, ':') && is_punct(tokens, at + 1, ':')
}

fn is_cfg_test(tokens: &[TokenTree], at: usize) -> bool {
    let attribute = match tokens.get(at + 1) {
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Bracket => group.stream(),
        _ => return false,
    };
    is_punct(tokens, at, '#') && attribute.to_string().replace(' ', "") == "cfg(test)"
}

/// The place after the item that starts at `at`: after its block or its semicolon.
fn after_item(tokens: &[TokenTree], at: usize) -> usize {
    let ends = |token: &TokenTree| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Punct(punct) => punct.as_char() == ';',
        TokenTree::Ident(_) | TokenTree::Literal(_) => false,
    };
    let rest = tokens.get(at..).unwrap_or_default();
    rest.iter().position(ends).map_or(tokens.len(), |end| at + end + 1)
}

#[test]
fn paths_are_read_as_the_compiler_resolves_them() {
    let text = "
        use crate::{pve::{self, Client}, seen::*};
        use super::facts::Facts;
        fn f() { tokio::time::sleep(x); if a != b { print!(c) } }
        #[cfg(test)]
        mod tests { use crate::runtime; }
        #[cfg(test)]
        use crate::cli;
    ";
    let source = Source::new("src/machine/decide.rs", text);
    for name in [
        "crate::pve",
        "crate::pve::Client",
        "crate::seen::*",
        "crate::machine::facts::Facts",
        "tokio::time::sleep()",
        "print!",
        "a",
    ] {
        assert!(source.names.iter().any(|known| known == name), "{name}: {:?}", source.names);
    }
    assert!(!source.names.iter().any(|name| name.contains("runtime") || name.contains("cli")));
}
