//! Flags in the forms of Go's libraries, made into the one form that clap reads.
//!
//! A Deployment whose image is replaced keeps its arguments: `-v=4`, `--v 4`, `--flag=value`, flags
//! without a value that are true, and the flags of libraries that are not here.

/// Flags of ours that take a value.
const WITH_VALUE: &[&str] = &[
    "concurrency",
    "connection-status",
    "credentials-secret",
    "diagnostics-address",
    "feature-gates",
    "health-probe-bind-address",
    "iso-storage",
    "kubeconfig",
    "leader-elect-lease-duration",
    "leader-elect-renew-deadline",
    "leader-elect-retry-period",
    "leader-election-namespace",
    "logging-format",
    "max-clones",
    "max-clones-per-node",
    "max-clones-per-storage",
    "namespace",
    "proxmox-root-cert-file",
    "tls-cipher-suites",
    "tls-min-version",
    "v",
    "watch-filter",
    "webhook-cert-dir",
    "webhook-port",
];

/// Flags of ours that are true when no value follows by `=`.
const SWITCHES: &[&str] = &[
    "embedded-ipam",
    "enable-webhooks",
    "insecure-diagnostics",
    "leader-elect",
    "proxmox-insecure",
];

/// Flags with a value of klog, of controller-runtime's logger and of Cluster API's managers, which
/// mean nothing here.
const FOREIGN_WITH_VALUE: &[&str] = &[
    "additional-sync-machine-annotations",
    "additional-sync-machine-labels",
    "kube-api-burst",
    "kube-api-qps",
    "log-backtrace-at",
    "log-dir",
    "log-file",
    "log-file-max-size",
    "log-flush-frequency",
    "log-json-info-buffer-size",
    "log-text-info-buffer-size",
    "metrics-bind-addr",
    "metrics-bind-address",
    "profiler-address",
    "proxmoxcluster-concurrency",
    "proxmoxmachine-concurrency",
    "stderrthreshold",
    "sync-period",
    "vmodule",
    "webhook-cert-name",
    "webhook-key-name",
    "zap-encoder",
    "zap-log-level",
    "zap-stacktrace-level",
    "zap-time-encoding",
];

/// The same without a value.
const FOREIGN_SWITCHES: &[&str] = &[
    "add-dir-header",
    "alsologtostderr",
    "contention-profiling",
    "legacy-stderr-threshold-behavior",
    "log-json-split-stream",
    "log-text-split-stream",
    "logtostderr",
    "one-output",
    "skip-headers",
    "skip-log-headers",
    "zap-devel",
];

/// Arguments for clap, and the flags that were left out.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Normalised {
    pub(super) arguments: Vec<String>,
    pub(super) ignored: Vec<String>,
}

/// Reads the arguments after the program's name. What is not known stays as it is: clap complains
/// of it, and names the nearest.
pub(super) fn normalise(arguments: impl IntoIterator<Item = String>) -> Normalised {
    let mut arguments = arguments.into_iter();
    let mut found = Normalised::default();
    while let Some(argument) = arguments.next() {
        if argument == "--" {
            found.arguments.push(argument);
            found.arguments.extend(arguments);
            break;
        }
        let Some((name, value)) = split(&argument) else {
            found.arguments.push(argument);
            continue;
        };
        if WITH_VALUE.contains(&name.as_str()) {
            match value.or_else(|| arguments.next()) {
                Some(value) => found.arguments.push(format!("--{name}={value}")),
                None => found.arguments.push(format!("--{name}")),
            }
        } else if SWITCHES.contains(&name.as_str()) {
            let value = value.as_deref().map_or("true", canonical);
            found.arguments.push(format!("--{name}={value}"));
        } else if FOREIGN_WITH_VALUE.contains(&name.as_str()) {
            if value.is_none() {
                arguments.next();
            }
            found.ignored.push(name);
        } else if FOREIGN_SWITCHES.contains(&name.as_str()) {
            found.ignored.push(name);
        } else {
            found.arguments.push(argument);
        }
    }
    found
}

/// Name and value of `-name`, `--name`, `--name=value` and `-v4`. Go's flag sets take `_` for `-`.
fn split(argument: &str) -> Option<(String, Option<String>)> {
    let body = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-'))?;
    let digits = body.strip_prefix('v').filter(|rest| !rest.is_empty());
    if let Some(digits) = digits.filter(|rest| rest.bytes().all(|byte| byte.is_ascii_digit())) {
        return Some(("v".to_owned(), Some(digits.to_owned())));
    }
    let (name, value) = match body.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (body, None),
    };
    (!name.is_empty()).then(|| (name.replace('_', "-"), value))
}

/// Go's words for a truth; others stay, and are refused.
fn canonical(text: &str) -> &str {
    match text {
        "1" | "t" | "T" | "TRUE" | "True" => "true",
        "0" | "f" | "F" | "FALSE" | "False" => "false",
        text => text,
    }
}

/// Whether every flag of the command line is in the tables, for the test that keeps them so.
#[cfg(test)]
pub(super) fn is_known(name: &str, takes_value: bool) -> bool {
    if takes_value { WITH_VALUE.contains(&name) } else { SWITCHES.contains(&name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(arguments: &[&str]) -> (Vec<String>, Vec<String>) {
        let found = normalise(arguments.iter().map(|&argument| argument.to_owned()));
        (found.arguments, found.ignored)
    }

    #[test]
    fn every_form_of_a_flag_is_read_as_go_reads_it() {
        for (given, wanted) in [
            (&["-v=4"][..], &["--v=4"][..]),
            (&["--v", "4"], &["--v=4"]),
            (&["-v", "4"], &["--v=4"]),
            (&["-v4"], &["--v=4"]),
            (&["--v=4", "version"], &["--v=4", "version"]),
            (&["--leader-elect"], &["--leader-elect=true"]),
            (&["-leader-elect"], &["--leader-elect=true"]),
            (&["--leader-elect=False"], &["--leader-elect=false"]),
            (&["--enable-webhooks=0"], &["--enable-webhooks=false"]),
            // As in Go, a word after a switch is not its value.
            (&["--enable-webhooks", "version"], &["--enable-webhooks=true", "version"]),
            (&["--kubeconfig", "/a b"], &["--kubeconfig=/a b"]),
            (&["--kubeconfig="], &["--kubeconfig="]),
            (&["--diagnostics-address=:8443"], &["--diagnostics-address=:8443"]),
            (&["--diagnostics_address=:8443"], &["--diagnostics-address=:8443"]),
            (&["--namespace"], &["--namespace"]),
            (&["--leader-elekt"], &["--leader-elekt"]),
            (&["--", "-v=4"], &["--", "-v=4"]),
            (&["-h"], &["-h"]),
        ] {
            let (arguments, ignored) = of(given);
            assert_eq!(arguments, wanted, "{given:?}");
            assert!(ignored.is_empty(), "{given:?}");
        }
    }

    #[test]
    fn flags_of_libraries_that_are_not_here_are_left_out_with_their_values() {
        for (given, ignored, rest) in [
            (&["--vmodule=a=2", "--v=1"][..], &["vmodule"][..], &["--v=1"][..]),
            (&["--vmodule", "a=2", "--v=1"], &["vmodule"], &["--v=1"]),
            (&["-logtostderr", "--v=1"], &["logtostderr"], &["--v=1"]),
            (&["--skip_headers=true"], &["skip-headers"], &[]),
            (&["--sync-period", "10m"], &["sync-period"], &[]),
        ] {
            let (arguments, found) = of(given);
            assert_eq!(
                (arguments, found),
                (of(rest).0, ignored.iter().map(|&s| s.into()).collect())
            );
        }
    }
}
