//! Command line and environment: what the process is asked to do.
//!
//! Reads, and hands on; nothing is started here but the runtime that everything runs on.

mod check;
mod go_flags;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{ArgAction, Parser, Subcommand};
use k8s_openapi::jiff::SignedDuration;

use crate::connection::StatusWriter;
use crate::connections::Given;
use crate::hypervisor::CloneLimits;
use crate::ids::StorageName;
use crate::runtime::{self, Bind, LogFormat, Logging, TlsVersion};

/// Cluster API infrastructure provider for Proxmox VE.
///
/// Takes the flags and the environment of capmox v0.7. Credentials for clusters that name none come
/// from PROXMOX_URL, PROXMOX_TOKEN and PROXMOX_SECRET.
#[derive(Debug, Parser)]
#[command(name = "capmox", version, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    flags: Flags,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the controllers; the same as no command
    Run,
    Check(Box<check::Arguments>),
    /// Print the version
    Version,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Flags")]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
struct Flags {
    /// Kubeconfig of the management cluster. Without it: KUBECONFIG, then the service account of
    /// the pod, then ~/.kube/config
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<String>,

    /// Only objects in this namespace; all when empty
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,

    /// Only objects whose label cluster.x-k8s.io/watch-filter has this value
    #[arg(long, value_name = "VALUE")]
    watch_filter: Option<String>,

    /// Objects of one kind that are worked on at once; of ProxmoxMachines, so many of each Proxmox
    /// endpoint
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000))]
    concurrency: u16,

    /// VMs that are cloned at once at one Proxmox endpoint; 0 for any number
    #[arg(long, value_name = "N", default_value_t = 32)]
    max_clones: usize,

    /// VMs that are cloned at once from templates of one node; 0 for any number
    #[arg(long, value_name = "N", default_value_t = 16)]
    max_clones_per_node: usize,

    /// VMs that are cloned at once to one storage; 0 for any number
    #[arg(long, value_name = "N", default_value_t = 16)]
    max_clones_per_storage: usize,

    /// Storages for the ISO images with bootstrap data, by commas, the preferred one first; no other is
    /// used. Without it: those with content type iso, in Proxmox's order
    #[arg(long, default_value = "", value_parser = storages, value_name = "NAMES", hide_default_value = true)]
    iso_storage: String,

    /// Serve InClusterIPPool and GlobalInClusterIPPool where no IPAM provider is installed
    #[arg(long, default_value_t = false, action = ArgAction::Set, value_name = "BOOL")]
    embedded_ipam: bool,

    /// Who writes the status of ProxmoxConnections: write for this manager, read for another one
    /// such as kubemox, auto for this one unless kubemox is installed
    #[arg(long, default_value = "auto", value_parser = status_writer, value_name = "MODE")]
    connection_status: StatusWriter,

    /// Secret that PROXMOX_URL, PROXMOX_TOKEN and PROXMOX_SECRET come from, as NAMESPACE/NAME or as
    /// NAME in the pod's namespace. A change of it then needs no restart
    #[arg(long, value_name = "SECRET")]
    credentials_secret: Option<String>,

    /// Work only while holding a Lease, so that several replicas can run
    #[arg(long, default_value_t = false, action = ArgAction::Set, value_name = "BOOL")]
    leader_elect: bool,

    /// Namespace of the Lease. Default: the pod's, or that of the kubeconfig's context
    #[arg(long, value_name = "NAME")]
    leader_election_namespace: Option<String>,

    /// How long others wait before they take over a Lease that is not renewed
    #[arg(long, default_value = "15s", value_parser = duration, value_name = "DURATION")]
    leader_elect_lease_duration: Duration,

    /// How long the holder tries to renew before it gives up
    #[arg(long, default_value = "10s", value_parser = duration, value_name = "DURATION")]
    leader_elect_renew_deadline: Duration,

    /// Time between two attempts
    #[arg(long, default_value = "2s", value_parser = duration, value_name = "DURATION")]
    leader_elect_retry_period: Duration,

    /// Address of /healthz and /readyz; "0" for none
    #[arg(long, default_value = ":8081", value_name = "ADDRESS")]
    health_probe_bind_address: Bind,

    /// Address of /metrics; "0" for none
    #[arg(long, default_value = ":8443", value_name = "ADDRESS")]
    diagnostics_address: Bind,

    /// Serve metrics by plain HTTP to anybody, instead of by HTTPS to who may get /metrics
    #[arg(long, default_value_t = false, action = ArgAction::Set, value_name = "BOOL")]
    insecure_diagnostics: bool,

    /// Oldest version of TLS for metrics: VersionTLS12 or VersionTLS13
    #[arg(long, default_value = "VersionTLS12", value_parser = tls_version, value_name = "VERSION")]
    tls_min_version: TlsVersion,

    /// Accepted and not used: rustls offers only suites that are considered safe
    #[arg(long, default_value = "", value_name = "LIST", hide_default_value = true)]
    tls_cipher_suites: String,

    /// Serve the admission webhooks
    #[arg(long, default_value_t = true, action = ArgAction::Set, value_name = "BOOL")]
    enable_webhooks: bool,

    /// Port of the admission webhooks
    #[arg(long, default_value_t = 9443, value_name = "PORT")]
    webhook_port: u16,

    /// Directory with tls.crt and tls.key of the admission webhooks
    #[arg(long, default_value = "/tmp/k8s-webhook-server/serving-certs", value_name = "DIR")]
    webhook_cert_dir: PathBuf,

    /// Believe any certificate of Proxmox at the manager's own endpoint. Default: true unless
    /// PROXMOX_INSECURE is set to something else than true
    #[arg(long, action = ArgAction::Set, value_name = "BOOL")]
    proxmox_insecure: Option<bool>,

    /// PEM file with authorities to trust at the manager's own endpoint, beside the system's
    #[arg(long, value_name = "FILE")]
    proxmox_root_cert_file: Option<String>,

    /// Name=true|false, by commas; accepted for compatibility, no gate changes anything
    #[arg(long, default_value = "", value_parser = feature_gates, value_name = "LIST", hide_default_value = true)]
    feature_gates: String,

    /// How much is logged: 0 steps and faults, 2 decisions, 4 each Proxmox call, 6 everything
    #[arg(long, default_value_t = 0, allow_negative_numbers = true, value_name = "LEVEL")]
    v: i32,

    /// text or json
    #[arg(long, default_value = "text", value_parser = log_format, value_name = "FORMAT")]
    logging_format: LogFormat,
}

/// A duration as Go writes it, such as `1m30s`.
fn duration(text: &str) -> Result<Duration, String> {
    let wanted = "expected a duration such as 15s or 1m30s";
    let found: SignedDuration = text.trim().parse().map_err(|_| wanted.to_owned())?;
    match Duration::try_from(found) {
        Ok(found) if !found.is_zero() => Ok(found),
        _ => Err(format!("{wanted}, longer than nothing")),
    }
}

fn tls_version(text: &str) -> Result<TlsVersion, String> {
    match text {
        // rustls speaks nothing older, and nobody is harmed by that.
        "VersionTLS10" | "VersionTLS11" | "VersionTLS12" | "" => Ok(TlsVersion::V12),
        "VersionTLS13" => Ok(TlsVersion::V13),
        _ => Err("expected VersionTLS12 or VersionTLS13".to_owned()),
    }
}

fn log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "text" | "" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err("expected text or json".to_owned()),
    }
}

fn status_writer(text: &str) -> Result<StatusWriter, String> {
    match text {
        "auto" | "" => Ok(StatusWriter::Auto),
        "write" => Ok(StatusWriter::Us),
        "read" => Ok(StatusWriter::Others),
        _ => Err("expected auto, write or read".to_owned()),
    }
}

fn storages(text: &str) -> Result<String, String> {
    match names(text).find_map(|name| name.parse::<StorageName>().err()) {
        Some(error) => Err(format!("expected names of storages, by commas: {error}")),
        None => Ok(text.to_owned()),
    }
}

fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|name| !name.is_empty())
}

fn feature_gates(text: &str) -> Result<String, String> {
    let is_gate = |gate: &str| {
        gate.split_once('=').is_some_and(|(name, value)| {
            !name.is_empty() && matches!(value.to_lowercase().as_str(), "true" | "false")
        })
    };
    match text.split(',').map(str::trim).find(|gate| !gate.is_empty() && !is_gate(gate)) {
        Some(gate) => Err(format!("{gate:?} is not of the form Name=true or Name=false")),
        None => Ok(text.to_owned()),
    }
}

/// What the environment says.
#[derive(Default)]
struct Environment {
    url: String,
    token: String,
    secret: String,
    insecure: Option<String>,
}

impl Environment {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
    fn read() -> Self {
        let get = |name| std::env::var(name).ok();
        Self {
            url: get("PROXMOX_URL").unwrap_or_default(),
            token: get("PROXMOX_TOKEN").unwrap_or_default(),
            secret: get("PROXMOX_SECRET").unwrap_or_default(),
            insecure: get("PROXMOX_INSECURE"),
        }
    }

    /// capmox: unset, and exactly `true`, mean true.
    fn insecure(&self) -> bool {
        self.insecure.as_deref().is_none_or(|text| text == "true")
    }
}

/// Runs the program; what it returns is the exit code: 0 after an asked-for end, 1 after a failure,
/// 2 for a command line that is not understood; `check` has its own.
pub fn main() -> ExitCode {
    let arguments = std::env::args_os().skip(1);
    let environment = Environment::read();
    let invocation = match parse(arguments, &environment) {
        Ok(invocation) => invocation,
        Err(error) => {
            // Nothing is left to tell when even that cannot be printed.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    match invocation {
        Invocation::Version => {
            let _ = writeln!(std::io::stdout(), "capmox {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        Invocation::Check(arguments) => check::run(*arguments, &environment),
        Invocation::Run(settings) => runtime::start(*settings),
    }
}

#[derive(Debug)]
enum Invocation {
    Version,
    Check(Box<check::Arguments>),
    Run(Box<runtime::Settings>),
}

fn parse(
    arguments: impl Iterator<Item = OsString>,
    environment: &Environment,
) -> Result<Invocation, clap::Error> {
    let mut texts = vec![];
    for argument in arguments {
        texts.push(argument.into_string().map_err(|_| {
            clap::Error::raw(ErrorKind::InvalidUtf8, "an argument is not valid UTF-8\n")
        })?);
    }
    let found = go_flags::normalise(texts);
    let name = "capmox".to_owned();
    let cli = Cli::try_parse_from(std::iter::once(name).chain(found.arguments))?;
    Ok(match cli.command {
        Some(Command::Version) => Invocation::Version,
        Some(Command::Check(arguments)) => Invocation::Check(arguments),
        Some(Command::Run) | None => {
            Invocation::Run(Box::new(settings(cli.flags, environment, &found.ignored)?))
        }
    })
}

fn settings(
    flags: Flags,
    environment: &Environment,
    ignored: &[String],
) -> Result<runtime::Settings, clap::Error> {
    let notes = notes(&flags, ignored);
    let filled = |text: Option<String>| text.filter(|text| !text.is_empty());
    let lease = runtime::LeaseTimes {
        duration: flags.leader_elect_lease_duration,
        renew_deadline: flags.leader_elect_renew_deadline,
        retry_period: flags.leader_elect_retry_period,
    };
    if let Err(why) = lease.check() {
        return Err(clap::Error::raw(ErrorKind::ValueValidation, format!("{why}\n")));
    }
    Ok(runtime::Settings {
        kubeconfig: filled(flags.kubeconfig).map(PathBuf::from),
        namespace: filled(flags.namespace),
        watch_filter: filled(flags.watch_filter),
        concurrency: flags.concurrency,
        clones: CloneLimits {
            endpoint: flags.max_clones,
            node: flags.max_clones_per_node,
            storage: flags.max_clones_per_storage,
        },
        iso_storages: names(&flags.iso_storage).filter_map(|name| name.parse().ok()).collect(),
        embedded_ipam: flags.embedded_ipam,
        connection_status: flags.connection_status,
        credentials_secret: filled(flags.credentials_secret),
        leader_elect: flags.leader_elect.then_some(lease),
        leader_election_namespace: filled(flags.leader_election_namespace),
        health: flags.health_probe_bind_address,
        diagnostics: flags.diagnostics_address,
        insecure_diagnostics: flags.insecure_diagnostics,
        tls_min_version: flags.tls_min_version,
        webhooks: flags.enable_webhooks.then_some(runtime::Webhooks {
            port: flags.webhook_port,
            cert_dir: flags.webhook_cert_dir,
        }),
        own: Given {
            url: environment.url.clone(),
            token: environment.token.clone().into(),
            secret: environment.secret.clone().into(),
            insecure: flags.proxmox_insecure.unwrap_or_else(|| environment.insecure()),
            root_ca: None,
        },
        root_cert_file: filled(flags.proxmox_root_cert_file).map(PathBuf::from),
        logging: Logging { verbosity: flags.v, format: flags.logging_format },
        notes,
    })
}

/// What was accepted and does nothing, for the log.
fn notes(flags: &Flags, ignored: &[String]) -> Vec<String> {
    let mut notes: Vec<String> = ignored
        .iter()
        .map(|name| format!("flag --{name} is accepted and does nothing here"))
        .collect();
    if !flags.feature_gates.is_empty() {
        let gates = &flags.feature_gates;
        notes.push(format!("feature gates {gates} are accepted; none changes anything here"));
    }
    if !flags.tls_cipher_suites.is_empty() {
        notes.push(
            "--tls-cipher-suites is accepted and does nothing: only safe suites are offered"
                .to_owned(),
        );
    }
    notes
}

#[cfg(test)]
mod tests;
