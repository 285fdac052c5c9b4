//! The real clusterctl with a repository of its own on disk: nothing is fetched, nothing of the
//! user's configuration is read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::json;

use crate::binaries::{Binaries, root};

/// Version under which the repository has the provider.
pub(crate) const VERSION: &str = "v0.7.100";

/// clusterctl, set up for the provider `proxmox` of this repository.
#[derive(Debug)]
pub struct Clusterctl {
    program: PathBuf,
    folder: PathBuf,
    config: PathBuf,
}

/// What `clusterctl generate cluster` is told.
#[derive(Clone, Debug)]
pub struct ClusterRequest<'a> {
    /// Name of the cluster.
    pub name: &'a str,
    /// Its namespace.
    pub namespace: &'a str,
    /// With the leading `v`.
    pub kubernetes_version: &'a str,
    /// Number of control-plane machines.
    pub control_plane: u32,
    /// Number of workers.
    pub workers: u32,
    /// Flavour of the template; empty for the default one.
    pub flavor: &'a str,
    /// The template's variables.
    pub variables: &'a [(&'a str, &'a str)],
}

impl Clusterctl {
    /// Lays out a repository in `folder` with the templates as they are in the working tree.
    ///
    /// # Errors
    /// If clusterctl cannot be built or the folder not be written.
    pub fn new(binaries: &Binaries, folder: &Path) -> Result<Self> {
        let program = binaries.path("clusterctl")?;
        let release = folder.join("infrastructure-proxmox").join(VERSION);
        std::fs::create_dir_all(&release)
            .with_context(|| format!("cannot make {}", release.display()))?;
        let root = root();
        copy(&root.join("metadata.yaml"), &release)?;
        let templates = root.join("templates");
        let entries = std::fs::read_dir(&templates)
            .with_context(|| format!("cannot read {}", templates.display()))?;
        for entry in entries {
            let path = entry.context("cannot read the templates")?.path();
            if path.extension().is_some_and(|ext| ext == "yaml") {
                copy(&path, &release)?;
            }
        }
        let components = release.join("infrastructure-components.yaml");
        // To be installed the provider is run beside the API server, not in it.
        std::fs::write(&components, "").context("cannot write the repository")?;
        let config = folder.join("clusterctl.yaml");
        let text = json!({
            "providers": [{
                "name": "proxmox",
                "type": "InfrastructureProvider",
                "url": components,
            }],
            "overridesFolder": folder.join("overrides"),
            "CLUSTERCTL_DISABLE_VERSIONCHECK": "true",
        });
        std::fs::write(&config, text.to_string()).context("cannot write clusterctl.yaml")?;
        Ok(Self { program, folder: folder.to_path_buf(), config })
    }

    /// The program.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Renders a cluster: a YAML stream.
    ///
    /// # Errors
    /// What clusterctl says, for example which variables are missing.
    pub fn generate(&self, kubeconfig: &Path, request: &ClusterRequest<'_>) -> Result<String> {
        let mut command = self.command(kubeconfig);
        command
            .args(["generate", "cluster", request.name])
            .arg(format!("--infrastructure=proxmox:{VERSION}"))
            .arg(format!("--target-namespace={}", request.namespace))
            .arg(format!("--kubernetes-version={}", request.kubernetes_version))
            .arg(format!("--control-plane-machine-count={}", request.control_plane))
            .arg(format!("--worker-machine-count={}", request.workers))
            .envs(request.variables.iter().copied());
        if !request.flavor.is_empty() {
            command.arg(format!("--flavor={}", request.flavor));
        }
        run(&mut command)
    }

    /// The variables that a flavour of the template asks for, each with its default if it has one.
    /// Those that clusterctl fills from its own arguments have none.
    ///
    /// # Errors
    /// What clusterctl says.
    pub fn variables(&self, flavor: &str) -> Result<BTreeMap<String, Option<String>>> {
        let mut command = self.command(Path::new("none"));
        command.args(["generate", "cluster", "any", "--target-namespace=any", "--list-variables"]);
        command.arg(format!("--infrastructure=proxmox:{VERSION}"));
        if !flavor.is_empty() {
            command.arg(format!("--flavor={flavor}"));
        }
        Ok(read_variables(&run(&mut command)?))
    }

    /// Fills in the variables of a file that is no cluster template.
    ///
    /// # Errors
    /// What clusterctl says, for example which variables are missing.
    pub fn fill_in(&self, file: &Path, variables: &[(&str, &str)]) -> Result<String> {
        let mut command = self.command(Path::new("none"));
        command.args(["generate", "yaml", "--from"]).arg(file);
        run(command.envs(variables.iter().copied()))
    }

    /// The picture that `clusterctl describe cluster` draws.
    ///
    /// # Errors
    /// What clusterctl says.
    pub fn describe(&self, kubeconfig: &Path, namespace: &str, name: &str) -> Result<String> {
        let mut command = self.command(kubeconfig);
        run(command.args(["describe", "cluster", name, "--namespace", namespace]))
    }

    fn command(&self, kubeconfig: &Path) -> Command {
        let mut command = Command::new(&self.program);
        // Every variable of the environment would be one of the templates'.
        command
            .env_clear()
            .arg("--config")
            .arg(&self.config)
            .env("KUBECONFIG", kubeconfig)
            .env("HOME", &self.folder)
            .env("XDG_CONFIG_HOME", &self.folder)
            .env("GOPROXY", "off");
        command
    }
}

/// Reads `--list-variables`: `- NAME (defaults to "value")`, where clusterctl's own are not quoted.
fn read_variables(text: &str) -> BTreeMap<String, Option<String>> {
    let lines = text.lines().filter_map(|line| line.trim().strip_prefix("- "));
    lines
        .map(|line| {
            let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
            let default = rest.trim().strip_prefix("(defaults to ");
            let default = default.and_then(|rest| rest.strip_suffix(')'));
            let default = match default.and_then(|text| text.strip_prefix('"')?.strip_suffix('"')) {
                // The text is two quotes, of which clusterctl shows no more.
                Some("") => Some("\"\"".to_owned()),
                Some(text) => Some(text.to_owned()),
                None => None,
            };
            (name.to_owned(), default)
        })
        .collect()
}

fn copy(file: &Path, folder: &Path) -> Result<()> {
    let target = folder.join(file.file_name().unwrap_or_default());
    std::fs::copy(file, target).with_context(|| format!("cannot copy {}", file.display()))?;
    Ok(())
}

fn run(command: &mut Command) -> Result<String> {
    let output = command.output().context("cannot run clusterctl")?;
    if !output.status.success() {
        bail!("clusterctl failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).context("clusterctl prints UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_read_with_the_templates_defaults() {
        let text = "Required Variables:\n  - BRIDGE\n\nOptional Variables:\n  \
                    - ALLOWED_NODES  (defaults to \"[]\")\n  - CLUSTER_NAME   (defaults to any)\n  \
                    - INTERFACE      (defaults to \"\")\n";
        let read: Vec<_> = read_variables(text).into_iter().collect();
        let expected = [
            ("ALLOWED_NODES", Some("[]")),
            ("BRIDGE", None),
            ("CLUSTER_NAME", None),
            ("INTERFACE", Some("\"\"")),
        ];
        let expected: Vec<_> = expected
            .into_iter()
            .map(|(name, default)| (name.to_owned(), default.map(str::to_owned)))
            .collect();
        assert_eq!(read, expected);
    }
}
