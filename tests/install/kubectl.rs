//! `kubectl apply` of the plain manifests, into a cluster that has Cluster API and cert-manager.

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use testbed::Options;

use crate::clusterctl::{VERSION, publish};
use crate::pod::{self, DEPLOYMENT, NAMESPACE};
use crate::site::{PATIENCE, Site};
use crate::{docs, stand_ins};

/// A machine that no schema refuses and the webhook does.
pub(crate) const REFUSED: &str = "
kubectl apply -f - <<'END' && exit 1 || exit 0
apiVersion: infrastructure.cluster.x-k8s.io/v1alpha1
kind: ProxmoxMachine
metadata: {name: refused, namespace: default}
spec:
  sourceNode: pve1
  templateID: 900
  tags: [one]
  network: {default: {bridge: vmbr0, model: virtio, mtu: 1000}}
END";

/// Runs [`REFUSED`] and gives what kubectl says.
pub(crate) fn refusal(site: &Site) -> Result<String> {
    site.shell(&format!("exec 2>&1; {REFUSED}"))
}

// Commands block a thread while the simulator answers on another.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn plain_manifests_make_a_manager_that_admits_and_hands_over() -> Result<()> {
    let site = Site::open(Options::default()).await?;
    std::fs::write(site.folder().join("cert-manager.yaml"), stand_ins::cert_manager())?;
    site.shell("kubectl apply -f cert-manager.yaml")?;
    site.shell("kubectl wait --for=condition=Established crd/certificates.cert-manager.io crd/issuers.cert-manager.io")?;
    site.run("kubectl")?;
    let mut first = pod::run(&site.world).await?;

    // The API server reaches it by its Service's name and believes its certificate.
    let said = refusal(&site)?;
    assert!(said.contains("cannot create proxmox machine"), "{said}");

    // Applying again changes nothing, and leaves the credentials alone.
    let again = site.shell("kubectl diff -f components/install.yaml || true")?;
    let differences = again.lines().filter(|line| line.starts_with("+ ") || line.starts_with("- "));
    let differences: Vec<_> = differences
        .filter(|line| {
            !["generation", "port:", "caBundle", "clusterIP", "externalName", "type:"]
                .iter()
                .any(|ours| line.contains(ours))
        })
        .collect();
    assert!(!differences.iter().any(|line| line.contains("Secret")), "{differences:?}");

    // The namespace lets the pod in, and would no pod that asks for more.
    let deployments = Api::<Deployment>::namespaced(site.client.clone(), NAMESPACE);
    let template = deployments.get(DEPLOYMENT).await?.spec.context("no spec")?.template;
    let pods = Api::<Pod>::namespaced(site.client.clone(), NAMESPACE);
    let mut pod = Pod { spec: template.spec, ..Pod::default() };
    pod.metadata.name = Some("capmox".to_owned());
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    pods.create(&dry, &pod).await.context("the namespace's profile")?;
    let spec = pod.spec.as_mut().context("no spec")?;
    spec.host_network = Some(true);
    let refused = pods.create(&dry, &pod).await.expect_err("hostNetwork").to_string();
    assert!(refused.contains("restricted"), "{refused}");

    // A rolling update: the next one waits, and leads within seconds of the first one's end.
    let leases = Api::<Lease>::namespaced(site.client.clone(), NAMESPACE);
    let holder = async || -> Result<Option<String>> {
        let lease = leases.get_opt("controller-leader-elect-capmox").await?;
        let holder = lease.and_then(|lease| lease.spec?.holder_identity);
        Ok(holder.filter(|holder| !holder.is_empty()))
    };
    let leader = site.world.wait_for(PATIENCE, "a leader", holder).await?;
    site.run("restart")?;
    let mut second = pod::run(&site.world).await?;
    assert_eq!(holder().await?.as_ref(), Some(&leader), "the second did not wait");
    let start = std::time::Instant::now();
    first.stop().await?;
    let next = site.world.wait_for(PATIENCE, "the next leader", async || {
        Ok(holder().await?.filter(|holder| *holder != leader))
    });
    next.await?;
    // Two seconds are the interval at which others look; the rest is a busy machine.
    assert!(start.elapsed().as_secs() < 12, "handing over took {:?}", start.elapsed());
    second.stop().await?;
    Ok(())
}

// Commands block a thread while the simulator answers on another.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn without_credentials_the_plain_manager_runs_and_clusters_name_their_own() -> Result<()> {
    let site = Site::open(Options::default()).await?;
    std::fs::write(site.folder().join("cert-manager.yaml"), stand_ins::cert_manager())?;
    site.shell("kubectl apply -f cert-manager.yaml")?;
    site.shell("kubectl wait --for=condition=Established crd/certificates.cert-manager.io crd/issuers.cert-manager.io")?;
    site.shell("kubectl apply -f components/install.yaml")?;
    let mut pod = pod::run(&site.world).await?;
    assert!(pod.exit_status().is_none());
    pod.stop().await?;

    // As kustomize users have it.
    let text = site.run("kustomize").and_then(|_| site.shell("cat mine.yaml"))?;
    assert!(text.contains("image: registry.example/capmox:v0.7.100"), "the image is not replaced");
    site.run("sums")?;

    // What the README says, over it; the Secret is new.
    publish(&site, VERSION)?;
    site.shell(&docs::commands("readme-credentials readme-kubectl"))?;
    Ok(())
}
