//! The package for the Cluster API operator: the components gzipped into a ConfigMap that an
//! InfrastructureProvider fetches by label, as plain manifests and as a Helm chart.

use std::fs;
use std::io::Write as _;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::{Compression, GzBuilder};
use serde_json::json;

use crate::components::Recipe;
use crate::files::Files;

/// Label by which the operator finds the ConfigMap, and nobody else's: an operator that matches
/// several reads all of them, and fails for all when one is malformed.
pub const LABEL: (&str, &str) = ("infraprovider-provider", "proxmox");

/// Label with the version. Part of the selector, since the operator wants exactly one match.
pub const VERSION_LABEL: &str = "provider.cluster.x-k8s.io/version";

/// Tells the operator that the components are gzipped.
pub const COMPRESSED: &str = "provider.cluster.x-k8s.io/compressed";

/// Namespace of the provider and of the package.
pub const NAMESPACE: &str = "capmox-system";

/// Bytes that the ConfigMap's manifest may have. An object may have 1 MiB in etcd, and a client-side
/// `kubectl apply` copies it into an annotation, which may have 256 KiB.
pub const LIMIT: usize = 192 * 1024;

/// Put in place of this in the sources below `config/package`.
const VERSION_MARK: &str = "v0.0.0-version";

/// `operator/` and `chart/`, and what the package needs to be there.
pub(crate) fn build(recipe: &Recipe, components: &str, metadata: &str) -> Result<Files> {
    let source = recipe.root.join("config/package");
    let compressed = gzip(components.as_bytes())?;
    let mut files = Files::default();
    files.add("operator/configmap.yaml", config_map(&recipe.version, &compressed, metadata)?);
    let provider = fs::read_to_string(source.join("provider.yaml"));
    let provider = provider.context("config/package/provider.yaml")?;
    files.add("operator/provider.yaml", provider.replace(VERSION_MARK, &recipe.version));
    let requires = fs::read(source.join("requires.yaml"));
    files.add("requires.yaml", requires.context("config/package/requires.yaml")?);
    files.add_all("chart", chart(recipe, compressed, metadata)?);
    Ok(files)
}

/// The ConfigMap, as YAML.
fn config_map(version: &str, components: &[u8], metadata: &str) -> Result<String> {
    let object = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": version,
            "namespace": NAMESPACE,
            "labels": { LABEL.0: LABEL.1, VERSION_LABEL: version },
            "annotations": { COMPRESSED: "true" },
        },
        "data": { "metadata": metadata },
        "binaryData": { "components": STANDARD.encode(components) },
    });
    let text = serde_yaml::to_string(&object).context("cannot write the ConfigMap")?;
    ensure!(
        text.len() <= LIMIT,
        "the ConfigMap has {} bytes, more than the {LIMIT} that leave room in etcd and kubectl; \
         shorten the descriptions in the definitions, or split the components",
        text.len()
    );
    Ok(text)
}

/// The chart: its sources, with the version put in, and the package's two files.
fn chart(recipe: &Recipe, components: Vec<u8>, metadata: &str) -> Result<Files> {
    let number = recipe.version.trim_start_matches('v');
    let mut files = Files::default();
    for (path, content) in Files::read(&recipe.root.join("config/package/chart"))?.iter() {
        let text = std::str::from_utf8(content)
            .with_context(|| format!("{} is not text", path.display()))?;
        let text = text.replace(VERSION_MARK, &recipe.version);
        files.add(path, text.replace(VERSION_MARK.trim_start_matches('v'), number));
    }
    files.add("files/components.gz", components);
    files.add("files/metadata.yaml", metadata);
    Ok(files)
}

/// With neither name nor time nor operating system in the header, so that equal input is equal
/// output.
pub(crate) fn gzip(content: &[u8]) -> Result<Vec<u8>> {
    /// RFC 1952's number for an unknown one.
    const UNKNOWN_SYSTEM: u8 = 255;
    let builder = GzBuilder::new().mtime(0).operating_system(UNKNOWN_SYSTEM);
    let mut encoder = builder.write(Vec::new(), Compression::best());
    encoder.write_all(content).context("cannot compress")?;
    encoder.finish().context("cannot compress")
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn the_gzip_header_has_no_name_and_no_time_and_the_content_comes_back() -> Result<()> {
        let packed = gzip(b"content")?;
        // Magic, deflate, no flags, no time.
        assert_eq!(packed.get(..8), Some(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0][..]));
        assert_eq!(packed.get(9), Some(&255));
        let mut text = String::new();
        flate2::read::GzDecoder::new(packed.as_slice()).read_to_string(&mut text)?;
        assert_eq!(text, "content");
        Ok(())
    }

    #[test]
    fn a_package_that_outgrows_kubectl_is_refused_before_etcd_would() {
        let large = vec![0; LIMIT];
        let error = config_map("v0.7.100", &large, "").expect_err("too large").to_string();
        assert!(error.contains("shorten"), "{error}");
        assert!(config_map("v0.7.100", &large[..LIMIT / 2], "").is_ok());
    }
}
