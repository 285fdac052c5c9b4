//! The rules themselves: each takes a file and gives its violations, each a sentence.

use crate::source::Source;

/// A rule with its name in ARCHITECTURE.md.
pub(crate) type Rule = fn(&Source) -> Vec<String>;

/// The rules for the shipping crate.
pub(crate) const SHIPPING: &[Rule] =
    &[layers, purity, waiting, writing_files, pve_knows_no_kubernetes];

/// The rules for every crate here.
pub(crate) const EVERYWHERE: &[Rule] = &[length, module_doc, unfinished, names];

/// Lines a file may have, tests included.
const MAX_LINES: usize = 500;

const VOCABULARY: &[&str] = &["ids", "seen", "fault"];
const CONTROLLERS: &[&str] = &["cluster", "machine", "connection", "embedded_ipam"];
const PROCESS: &[&str] = &["runtime", "cli"];

/// The modules of ours that `module` may use, besides itself; `None` for one that has no place yet.
fn may_use(module: &str) -> Option<Vec<&'static str>> {
    let parts: &[&[&'static str]] = match module {
        "ids" | "seen" | "fault" | "api" | "pve" | "changes" => &[VOCABULARY],
        "bootstrap" | "placement" | "ipam" => &[VOCABULARY, &["api"]],
        "hypervisor" | "preflight" => &[VOCABULARY, &["pve"]],
        "events" => &[],
        "connections" => &[VOCABULARY, &["api", "pve", "hypervisor", "preflight"]],
        "cluster" | "machine" | "connection" | "embedded_ipam" => &[
            VOCABULARY,
            &[
                "api",
                "bootstrap",
                "placement",
                "ipam",
                "pve",
                "hypervisor",
                "preflight",
                "connections",
                "changes",
                "events",
            ],
        ],
        "check" => {
            &[VOCABULARY, &["api", "placement", "pve", "hypervisor", "preflight", "connections"]]
        }
        "webhook" => &[VOCABULARY, &["api", "bootstrap", "placement", "ipam", "runtime"]],
        // The process starts everything; the controllers get its clock and its clients.
        "runtime" => &[
            VOCABULARY,
            CONTROLLERS,
            &[
                "api",
                "bootstrap",
                "placement",
                "ipam",
                "pve",
                "hypervisor",
                "preflight",
                "connections",
                "webhook",
            ],
        ],
        "cli" => &[
            VOCABULARY,
            CONTROLLERS,
            PROCESS,
            &[
                "api",
                "bootstrap",
                "placement",
                "ipam",
                "pve",
                "hypervisor",
                "preflight",
                "connections",
                "check",
                "webhook",
            ],
        ],
        _ => return None,
    };
    Some(parts.concat())
}

/// Dependencies point one way; controllers do not know each other.
pub(crate) fn layers(source: &Source) -> Vec<String> {
    let Some(module) = source.module() else { return Vec::new() };
    // lib.rs names the modules and main.rs starts them.
    let Some(module) = module.first() else { return Vec::new() };
    let Some(allowed) = may_use(module) else {
        return vec![format!(
            "{}: module {module} has no place in tests/architecture/rules.rs; give it one",
            source.path
        )];
    };
    let used = source.names.iter().filter_map(|name| name.strip_prefix("crate::"));
    used.filter(|used| {
        let top = used.split("::").next().unwrap_or_default();
        top != module && may_use(top).is_some() && !allowed.contains(&top)
    })
    .map(|used| format!("{}: {module} must not use crate::{used}", source.path))
    .collect()
}

/// Whether a file is on the pure side: the libraries, and the deciding files of the controllers.
fn is_pure(module: &[String]) -> bool {
    const LIBRARIES: &[&str] =
        &["ids", "seen", "fault", "api", "bootstrap", "placement", "ipam", "preflight"];
    const FILES: &[&str] = &["facts", "decide", "decision", "desired", "report"];
    let Some((top, below)) = module.split_first() else { return false };
    let below_is = |wanted: &[&str]| below.iter().any(|part| wanted.contains(&part.as_str()));
    LIBRARIES.contains(&top.as_str())
        || (CONTROLLERS.contains(&top.as_str()) && below_is(FILES))
        || (top == "check" && below_is(&["wanted", "facts", "judge", "report", "print"]))
        || (top == "webhook" && below.first().is_some_and(|part| part.starts_with("rule")))
}

/// Pure files do nothing but compute: time, randomness and the world come in as arguments.
pub(crate) fn purity(source: &Source) -> Vec<String> {
    const FORBIDDEN: &[&str] = &[
        "async",
        "await",
        "tokio",
        "tokio_util",
        "futures",
        "reqwest",
        "hyper",
        "axum",
        "rand",
        "getrandom",
        "kube::Client",
        "kube::Api",
        "kube::api::Api",
        "kube::client",
        "kube::runtime",
        "std::env",
        "std::fs",
        "std::io",
        "std::process",
        "std::thread",
        "std::time::Instant",
        "std::time::SystemTime",
        "uuid::Uuid::new_v4",
        "crate::pve::Client",
        "crate::pve::client",
        "crate::pve::transport",
        "crate::hypervisor::Endpoint",
        "crate::runtime",
    ];
    if !source.module().is_some_and(|module| is_pure(&module)) {
        return Vec::new();
    }
    let is_forbidden = |name: &str| {
        let name = name.trim_end_matches("()");
        FORBIDDEN.iter().any(|one| {
            name.strip_prefix(one).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
        }) || name.ends_with("::now")
    };
    source
        .names
        .iter()
        .filter(|name| is_forbidden(name))
        .map(|name| format!("{}: pure code must not use {name}", source.path))
        .collect()
}

/// The shipping crate waits for events and deadlines, never for a time that stands for either.
pub(crate) fn waiting(source: &Source) -> Vec<String> {
    let is_sleep = |name: &&String| {
        name.split("::").last().is_some_and(|last| ["sleep()", "sleep_ms()"].contains(&last))
    };
    source
        .names
        .iter()
        .filter(is_sleep)
        .map(|name| format!("{}: {name}: wait for the condition instead", source.path))
        .collect()
}

/// What the manager handles has join secrets in it. It is made in memory and leaves no file behind,
/// and the root file system of its container is read-only.
pub(crate) fn writing_files(source: &Source) -> Vec<String> {
    const WAYS: &[&str] = &[
        "fs::write",
        "fs::copy",
        "fs::rename",
        "fs::create_dir",
        "fs::create_dir_all",
        "File::create",
        "File::create_new",
        "OpenOptions",
        "OpenOptions::new",
        "env::temp_dir",
    ];
    let writes = |name: &&String| {
        let name = name.trim_end_matches("()");
        let is = |way: &&str| name == *way || name.ends_with(&format!("::{way}"));
        name.split("::").next() == Some("tempfile") || WAYS.iter().any(is)
    };
    source
        .names
        .iter()
        .filter(writes)
        .map(|name| format!("{}: {name}: nothing is written to files", source.path))
        .collect()
}

/// The Proxmox side has no idea who asks.
pub(crate) fn pve_knows_no_kubernetes(source: &Source) -> Vec<String> {
    let module = source.module().unwrap_or_default();
    let top = module.first().map(String::as_str).unwrap_or_default();
    // The hypervisor keeps times, which come from k8s_openapi's re-export of jiff.
    let forbidden: &[&str] = match top {
        "pve" => &["kube", "k8s_openapi"],
        "hypervisor" => &["kube"],
        _ => &[],
    };
    source
        .names
        .iter()
        .filter(|name| forbidden.contains(&name.split("::").next().unwrap_or_default()))
        .map(|name| format!("{}: {top} must not use {name}", source.path))
        .collect()
}

/// A file is read in one go.
pub(crate) fn length(source: &Source) -> Vec<String> {
    let lines = source.text.lines().count();
    let too_long = lines > MAX_LINES;
    let message =
        || format!("{}: {lines} lines, at most {MAX_LINES}; split it by topic", source.path);
    too_long.then(message).into_iter().collect()
}

/// Every file says first what it is for, but for the tests that lie beside a module.
pub(crate) fn module_doc(source: &Source) -> Vec<String> {
    if source.path.ends_with("/tests.rs") {
        return Vec::new();
    }
    let docs = source.text.lines().map_while(|line| line.strip_prefix("//!"));
    let doc = docs.collect::<String>();
    let says_something = doc.trim().len() > 8 && !doc.trim().starts_with("Placeholder");
    let message = || format!("{}: no module documentation", source.path);
    (!says_something).then(message).into_iter().collect()
}

/// Nothing half-made is kept, and no test is switched off.
pub(crate) fn unfinished(source: &Source) -> Vec<String> {
    // Spelled in two halves, so that this file does not hold what it looks for.
    let words = [
        concat!("to", "do!("),
        concat!("unimple", "mented!("),
        concat!("#[ig", "nore"),
        concat!("unreach", "able!()"),
        concat!("db", "g!("),
    ];
    let code = source.text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let found = |line: &str| words.iter().find(|word| line.contains(*word));
    code.filter_map(found).map(|word| format!("{}: {word}", source.path)).collect()
}

/// A file is named by what it holds.
pub(crate) fn names(source: &Source) -> Vec<String> {
    const NAMELESS: &[&str] = &["utils", "util", "helpers", "helper", "common", "manager", "misc"];
    let parts = source.path.trim_end_matches(".rs").split('/');
    parts
        .filter(|part| NAMELESS.contains(part))
        .map(|part| format!("{}: {part} says nothing about what is in it", source.path))
        .collect()
}
