//! The command `check`: its flags, and the environment in place of flags.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use k8s_openapi::jiff::Timestamp;

use super::Environment;
use crate::api::{BootVolume, NetworkDevice, NetworkSpec, ProxmoxMachineSpec, VmIdRange};
use crate::check::{self, Access, Finding, Object, Report, print};
use crate::connections::Given;
use crate::hypervisor::ObjectKey;
use crate::runtime;

/// Look whether a Proxmox VE is as the provider needs it; nothing is changed
///
/// Takes address and token by flags or from PROXMOX_URL, PROXMOX_TOKEN and PROXMOX_SECRET, or all
/// from a ProxmoxCluster or ProxmoxConnection. Exit code: 0 all is well, 1 something has to be done, 2 something could
/// not be found out, or the command line is not understood.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Address of a Proxmox node, such as https://pve.example.com:8006
    #[arg(long, value_name = "URL", conflicts_with_all = ["cluster", "connection"], help_heading = "Proxmox")]
    url: Option<String>,

    /// API token, such as capmox@pve!capi
    #[arg(
        long,
        value_name = "USER@REALM!NAME",
        conflicts_with = "cluster",
        help_heading = "Proxmox"
    )]
    token: Option<String>,

    /// The token's secret. PROXMOX_SECRET is better: a command line is seen by others
    #[arg(long, value_name = "UUID", conflicts_with_all = ["cluster", "connection"], help_heading = "Proxmox")]
    secret: Option<String>,

    /// Believe any certificate
    #[arg(long, conflicts_with_all = ["cluster", "connection", "ca"], help_heading = "Proxmox")]
    insecure: bool,

    /// PEM file with the authority to believe, beside the system's
    #[arg(long, value_name = "FILE", conflicts_with_all = ["cluster", "connection"], help_heading = "Proxmox")]
    ca: Option<PathBuf>,

    /// A ProxmoxCluster: its credentials, machine templates and machines
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = key, help_heading = "Management cluster")]
    cluster: Option<ObjectKey>,

    /// A ProxmoxConnection and its credentials
    #[arg(
        long,
        value_name = "NAME",
        conflicts_with = "cluster",
        help_heading = "Management cluster"
    )]
    connection: Option<String>,

    /// Kubeconfig of the management cluster. Without it: KUBECONFIG, then the service account of
    /// the pod, then ~/.kube/config
    #[arg(long, value_name = "FILE", help_heading = "Management cluster")]
    kubeconfig: Option<PathBuf>,

    #[command(flatten)]
    wanted: Wanted,

    /// table or json
    #[arg(short, long, value_name = "FORMAT", default_value = "table", value_parser = ["table", "json"])]
    output: String,
}

#[derive(clap::Args)]
#[command(next_help_heading = "What machines are to be made of")]
struct Wanted {
    /// VMID of the template
    #[arg(long, value_name = "VMID")]
    template: Option<i64>,

    /// Storage for the disks of clones; that of the template when not given
    #[arg(long, value_name = "NAME")]
    storage: Option<String>,

    /// Storages for bootstrap data, as the manager is told them; any when not given
    #[arg(long, default_value = "", value_parser = super::storages, value_name = "NAMES", hide_default_value = true)]
    iso_storage: String,

    /// Bridge, and VLAN if there is one
    #[arg(long, value_name = "NAME[:VLAN]", value_parser = bridge)]
    bridge: Option<(String, Option<u16>)>,

    /// Pool that VMs are put into
    #[arg(long, value_name = "NAME")]
    pool: Option<String>,

    /// VMIDs that VMs get
    #[arg(long, value_name = "FIRST-LAST", value_parser = range)]
    vmid_range: Option<VmIdRange>,

    /// Nodes that VMs may be on, by commas; all when not given
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    nodes: Vec<String>,

    /// Boot disk and the size in GiB that it is grown to
    #[arg(long, value_name = "DISK:GIB", value_parser = volume)]
    boot_volume: Option<BootVolume>,
}

impl std::fmt::Debug for Arguments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Arguments").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

fn key(text: &str) -> Result<ObjectKey, String> {
    match text.split_once('/') {
        Some((namespace, name))
            if !namespace.is_empty() && !name.is_empty() && !name.contains('/') =>
        {
            Ok(ObjectKey { namespace: namespace.to_owned(), name: name.to_owned() })
        }
        _ => Err("expected NAMESPACE/NAME".to_owned()),
    }
}

fn bridge(text: &str) -> Result<(String, Option<u16>), String> {
    let (name, vlan) = match text.split_once(':') {
        Some((name, vlan)) => (name, Some(vlan)),
        None => (text, None),
    };
    let wanted = || "expected a bridge such as vmbr0, or vmbr0:7 with a VLAN from 1 to 4094";
    let vlan = match vlan.map(str::parse) {
        None => None,
        Some(Ok(vlan @ 1..=4094)) => Some(vlan),
        Some(_) => return Err(wanted().to_owned()),
    };
    if name.is_empty() { Err(wanted().to_owned()) } else { Ok((name.to_owned(), vlan)) }
}

fn range(text: &str) -> Result<VmIdRange, String> {
    let ends = text.split_once('-').and_then(|(start, end)| {
        Some(VmIdRange { start: start.trim().parse().ok()?, end: end.trim().parse().ok()? })
    });
    ends.ok_or_else(|| "expected VMIDs such as 2000-2999".to_owned())
}

fn volume(text: &str) -> Result<BootVolume, String> {
    let parts = text.split_once(':').and_then(|(disk, size)| {
        let size_gb = size.parse().ok()?;
        (!disk.is_empty()).then(|| BootVolume { disk: disk.to_owned(), size_gb })
    });
    parts.ok_or_else(|| "expected a disk and a size such as scsi0:20".to_owned())
}

impl Wanted {
    /// The machine that the flags describe; none when they say nothing.
    fn spec(self) -> Option<ProxmoxMachineSpec> {
        let Self { template, storage, bridge, pool, vmid_range, nodes, boot_volume, .. } = self;
        let network = bridge.map(|(bridge, vlan)| NetworkSpec {
            default: Some(NetworkDevice { bridge, vlan, ..NetworkDevice::default() }),
            ..NetworkSpec::default()
        });
        let spec = ProxmoxMachineSpec {
            template_id: template,
            storage,
            network,
            pool,
            vm_id_range: vmid_range,
            allowed_nodes: Some(nodes).filter(|nodes| !nodes.is_empty()),
            disks: boot_volume.map(|volume| crate::api::Disks { boot_volume: Some(volume) }),
            ..ProxmoxMachineSpec::default()
        };
        (spec != ProxmoxMachineSpec::default()).then_some(spec)
    }
}

/// Checks and prints; gives the exit code.
pub(super) fn run(arguments: Arguments, environment: &Environment) -> ExitCode {
    // Fails when a provider is installed already, which then serves.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let as_json = arguments.output == "json";
    let threads = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let report = match threads {
        Ok(threads) => threads.block_on(report(arguments, environment)),
        Err(error) => {
            let finding = Finding::unknown("api", "Proxmox", format!("cannot start: {error}"));
            Report { findings: vec![finding] }
        }
    };
    let text = if as_json { print::json(&report) } else { print::table(&report) };
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::from(report.exit_code()),
        // Nobody reads the answer.
        Err(_) => ExitCode::from(2),
    }
}

async fn report(arguments: Arguments, environment: &Environment) -> Report {
    let Arguments {
        url, token, secret, insecure, ca, cluster, connection, kubeconfig, wanted, ..
    } = arguments;
    let object = cluster.map(Object::Cluster).or_else(|| connection.map(Object::Connection));
    let by_hand = url.is_some();
    let given = Given {
        url: url.unwrap_or_else(|| environment.url.clone()),
        token: token.unwrap_or_else(|| environment.token.clone()).into(),
        secret: secret.unwrap_or_else(|| environment.secret.clone()).into(),
        // Who asks by hand means the certificate to be checked; the manager has its own default.
        insecure: insecure || (!by_hand && ca.is_none() && environment.insecure()),
        root_ca: ca.as_deref().map(read),
    };
    let access = match object {
        None => Access::Given(given),
        Some(object) => match runtime::client(kubeconfig.as_deref()).await {
            Ok(client) => Access::Object { client, object, own: given },
            Err(error) => {
                let finding = Finding::unknown("object", object.to_string(), error.to_string());
                return Report { findings: vec![finding] };
            }
        },
    };
    let iso_storages = super::names(&wanted.iso_storage);
    let iso_storages = iso_storages.filter_map(|name| name.parse().ok()).collect();
    check::run(check::Request { access, extra: wanted.spec(), iso_storages, now }).await
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

#[expect(clippy::disallowed_methods, reason = "the clock of a command line tool")]
fn now() -> Timestamp {
    Timestamp::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_is_read_as_people_write_it() {
        assert_eq!(bridge("vmbr0:7"), Ok(("vmbr0".to_owned(), Some(7))));
        assert_eq!(bridge("vmbr0"), Ok(("vmbr0".to_owned(), None)));
        assert_eq!(range("200-299"), Ok(VmIdRange { start: 200, end: 299 }));
        let volume = volume("scsi0:20").unwrap();
        assert_eq!((volume.disk.as_str(), volume.size_gb), ("scsi0", 20));
        assert_eq!(key("a/b").unwrap().to_string(), "a/b");
        for bad in ["vmbr0:0", "vmbr0:4095", ":7", "vmbr0:x"] {
            assert!(bridge(bad).is_err(), "{bad}");
        }
        for bad in ["b", "/b", "a/", "a/b/c"] {
            assert!(key(bad).is_err(), "{bad}");
        }
        assert!(range("200").is_err());
    }
}
