//! What a deleted cluster may have left behind, in Kubernetes and in the simulator.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Result, bail};
use kube::ResourceExt as _;
use kube::api::ListParams;

use super::stage::Stage;
use super::view::View;

/// Garbage collection follows the owner's end; this is how long it may take.
const COLLECTED: Duration = Duration::from_mins(1);

/// Kinds of which nothing may be left in the namespace.
const KINDS: &[(&str, &str)] = &[
    ("cluster.x-k8s.io/v1beta1", "Cluster"),
    ("cluster.x-k8s.io/v1beta1", "Machine"),
    ("cluster.x-k8s.io/v1beta1", "MachineSet"),
    ("cluster.x-k8s.io/v1beta1", "MachineDeployment"),
    ("controlplane.cluster.x-k8s.io/v1beta1", "KubeadmControlPlane"),
    ("bootstrap.cluster.x-k8s.io/v1beta1", "KubeadmConfig"),
    ("bootstrap.cluster.x-k8s.io/v1beta1", "KubeadmConfigTemplate"),
    ("infrastructure.cluster.x-k8s.io/v1alpha1", "ProxmoxCluster"),
    ("infrastructure.cluster.x-k8s.io/v1alpha1", "ProxmoxMachine"),
    ("infrastructure.cluster.x-k8s.io/v1alpha1", "ProxmoxMachineTemplate"),
    ("ipam.cluster.x-k8s.io/v1alpha2", "InClusterIPPool"),
    ("ipam.cluster.x-k8s.io/v1beta1", "IPAddressClaim"),
    ("ipam.cluster.x-k8s.io/v1beta1", "IPAddress"),
    ("v1", "Secret"),
];

/// VMs and volumes of the simulator.
pub(crate) fn inventory(stage: &Stage) -> BTreeSet<String> {
    let model = stage.fake().model();
    let vms = model.vms().into_iter().map(|vm| format!("VM {} on {}", vm.vmid, vm.node));
    let volumes = model.volumes().into_iter().map(|(node, id, _)| format!("volume {id} {node}"));
    vms.chain(volumes).collect()
}

/// Shows that nothing is left.
///
/// # Errors
/// With what is left.
pub(crate) async fn check(stage: &Stage, before: &BTreeSet<String>, view: &mut View) -> Result<()> {
    let world = stage.world();
    world
        .wait_for(COLLECTED, "the end of every object", async || {
            let left = objects(stage).await?;
            if left.is_empty() { Ok(Some(())) } else { bail!("left: {}", left.join(", ")) }
        })
        .await?;
    let after = inventory(stage);
    let mut problems: Vec<String> = after.difference(before).cloned().collect();
    problems.extend(before.difference(&after).map(|lost| format!("{lost} is no more")));
    problems.extend(stage.fake().check_no_leaks().into_iter().map(|broken| broken.text));
    problems.extend(stage.guests().violations());
    if !problems.is_empty() {
        bail!("the simulator's inventory is not what it was: {}", problems.join("; "));
    }
    let mut text = String::from("nothing is left:");
    let kinds: Vec<&str> = KINDS.iter().map(|(_, kind)| *kind).collect();
    let _ = write!(text, " no {} in Kubernetes;", kinds.join(", no "));
    let _ =
        write!(text, " at Proxmox the {} VMs and volumes that were there before,", before.len());
    text.push_str(" and none of the simulator's rules was broken");
    view.say(&text);
    Ok(())
}

async fn objects(stage: &Stage) -> Result<Vec<String>> {
    let client = stage.client();
    let mut left = Vec::new();
    for (api_version, kind) in KINDS {
        let api = testbed::apply::find(&client, api_version, kind, stage.namespace()).await?;
        let found = api.list(&ListParams::default()).await?;
        left.extend(found.iter().map(|object| format!("{kind} {}", object.name_any())));
    }
    Ok(left)
}
