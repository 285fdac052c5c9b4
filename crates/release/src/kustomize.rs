//! Composes manifests with kustomize.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::json;

use crate::files::Files;

/// What `config/default` names the image; a registry's name is part of what the operator accepts.
const IMAGE: &str = "localhost/capmox";

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

/// The entry that puts `image` in place of [`IMAGE`].
fn image(image: &str) -> Result<serde_json::Value> {
    ensure!(
        image.split_once('/').is_some_and(|(registry, _)| is_registry(registry)),
        "image {image} names no registry, which the operator wants; write localhost/{image}"
    );
    if let Some((name, digest)) = image.split_once('@') {
        return Ok(json!({ "name": IMAGE, "newName": name, "digest": digest }));
    }
    // A colon before a slash belongs to the port of a registry.
    match image.rsplit_once(':').filter(|(_, tag)| !tag.contains('/')) {
        Some((name, tag)) => Ok(json!({ "name": IMAGE, "newName": name, "newTag": tag })),
        None => bail!("image {image} has neither a tag nor a digest; write name:tag"),
    }
}

/// As containerd tells a registry from the first part of a name.
fn is_registry(part: &str) -> bool {
    part == "localhost" || part.contains(['.', ':'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_has_a_tag_or_a_digest() -> Result<()> {
        let entry = image("registry.example:5000/a/capmox:v1")?;
        assert_eq!(entry["newName"], "registry.example:5000/a/capmox");
        assert_eq!(entry["newTag"], "v1");
        assert_eq!(image("localhost/capmox@sha256:00")?["digest"], "sha256:00");
        assert!(image("capmox:v1").is_err() && image("library/capmox:v1").is_err());
        assert!(image("registry.example:5000/capmox").is_err());
        Ok(())
    }
}
