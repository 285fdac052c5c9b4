//! Composes manifests with kustomize.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::json;

use crate::files::Files;

/// The folder `config` with an overlay for one image, in a place of its own: kustomize reads
/// nothing outside, and no path of this machine can get into what it writes.
pub(crate) struct Config {
    program: PathBuf,
    folder: tempfile::TempDir,
    image: String,
}

impl Config {
    /// `image` is `name:tag`, or `name@digest`.
    pub(crate) fn new(program: &Path, config: &Path, image: &str) -> Result<Self> {
        let folder = tempfile::tempdir().context("cannot make a folder for kustomize")?;
        Files::read(config)?.write(&folder.path().join("config"))?;
        Ok(Self { program: program.to_path_buf(), folder, image: image.to_owned() })
    }

    /// What `config/<base>` gives, as a YAML stream.
    pub(crate) fn build(&self, base: &str) -> Result<String> {
        let overlay = self.folder.path().join(format!("overlay-{base}"));
        fs::create_dir_all(&overlay).context("cannot make an overlay")?;
        let text = json!({
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [format!("../config/{base}")],
            "images": [image(&self.image)?],
        });
        fs::write(overlay.join("kustomization.yaml"), text.to_string())
            .context("cannot write an overlay")?;
        let output = Command::new(&self.program)
            .arg("build")
            .arg(&overlay)
            .env_clear()
            .output()
            .with_context(|| format!("cannot run {}", self.program.display()))?;
        if !output.status.success() {
            bail!("kustomize build config/{base}: {}", String::from_utf8_lossy(&output.stderr));
        }
        String::from_utf8(output.stdout).context("kustomize writes UTF-8")
    }
}

/// The entry that puts `image` where `config/default` has `capmox`.
fn image(image: &str) -> Result<serde_json::Value> {
    if let Some((name, digest)) = image.split_once('@') {
        return Ok(json!({ "name": "capmox", "newName": name, "digest": digest }));
    }
    // A colon before a slash belongs to the port of a registry.
    match image.rsplit_once(':').filter(|(_, tag)| !tag.contains('/')) {
        Some((name, tag)) => Ok(json!({ "name": "capmox", "newName": name, "newTag": tag })),
        None => bail!("image {image} has neither a tag nor a digest; write name:tag"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_has_a_tag_or_a_digest() -> Result<()> {
        let entry = image("registry.example:5000/a/capmox:v1")?;
        assert_eq!(entry["newName"], "registry.example:5000/a/capmox");
        assert_eq!(entry["newTag"], "v1");
        assert_eq!(image("capmox@sha256:00")?["digest"], "sha256:00");
        assert!(image("registry.example:5000/capmox").is_err());
        Ok(())
    }
}
