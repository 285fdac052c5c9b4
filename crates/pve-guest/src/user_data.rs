//! user-data: the files it writes and the commands it runs.
//!
//! Knows cloud-config as far as kubeadm's bootstrap data uses it; does not know kubeadm.

use std::collections::BTreeMap;
use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::MultiGzDecoder;
use serde::Deserialize;

use crate::fault::{Fault, Stage};
use crate::meta_data::MetaData;

/// An end to what a compressed file may grow to.
const MAX_UNPACKED: u64 = 64 << 20;

/// What user-data does to a guest.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct CloudConfig {
    /// Files by path.
    pub files: BTreeMap<String, Vec<u8>>,
    /// Commands as shell lines.
    pub commands: Vec<String>,
}

impl std::fmt::Debug for CloudConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The files hold the cluster's private keys.
        let files: Vec<&String> = self.files.keys().collect();
        f.debug_struct("CloudConfig").field("files", &files).finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    write_files: Option<Vec<WriteFile>>,
    #[serde(default)]
    runcmd: Option<Vec<Command>>,
}

#[derive(Deserialize)]
struct WriteFile {
    path: String,
    #[serde(default)]
    content: String,
    #[serde(default)]
    encoding: Option<String>,
    #[serde(default)]
    append: bool,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Command {
    Line(String),
    Words(Vec<String>),
}

fn fault(text: impl Into<String>) -> Fault {
    Fault::new(Stage::UserData, text)
}

impl CloudConfig {
    /// Parses user-data: unpacked, rendered if it is a jinja template, and read as cloud-config.
    ///
    /// # Errors
    /// [`Fault`] when any of it fails, or it is of a kind that this guest does not run.
    pub fn parse(user_data: &[u8], meta_data: &MetaData) -> Result<Self, Fault> {
        let unpacked;
        let user_data = if user_data.starts_with(&[0x1f, 0x8b]) {
            unpacked = gunzip(user_data).map_err(|error| fault(format!("is no gzip: {error}")))?;
            &unpacked
        } else {
            user_data
        };
        let text = std::str::from_utf8(user_data).map_err(|_| fault("is no UTF-8"))?;
        let rendered;
        let text = match text.split_once('\n') {
            Some((header, template)) if is_jinja(header) => {
                rendered = meta_data.render(template)?;
                &rendered
            }
            _ => text,
        };
        let header = text.lines().next().unwrap_or_default().trim_end();
        if header != "#cloud-config" {
            return Err(fault(format!("begins with {header:?}, not with #cloud-config")));
        }
        let document: Option<Document> =
            serde_yaml::from_str(text).map_err(|error| fault(format!("is no YAML: {error}")))?;
        let document = document.ok_or_else(|| fault("says nothing"))?;
        let mut config = Self::default();
        for file in document.write_files.unwrap_or_default() {
            let content = decode(file.encoding.as_deref().unwrap_or_default(), &file.content)
                .map_err(|error| fault(format!("write_files of {}: {error}", file.path)))?;
            let place = config.files.entry(file.path).or_default();
            if !file.append {
                place.clear();
            }
            place.extend(content);
        }
        let commands = document.runcmd.unwrap_or_default().into_iter();
        config.commands = commands
            .map(|command| match command {
                Command::Line(line) => line,
                Command::Words(words) => words.join(" "),
            })
            .collect();
        Ok(config)
    }
}

fn is_jinja(header: &str) -> bool {
    let header = header.strip_prefix("##").map(|rest| rest.trim().to_ascii_lowercase());
    let kind = header.as_deref().and_then(|rest| rest.strip_prefix("template:"));
    kind.is_some_and(|kind| kind.trim() == "jinja")
}

fn decode(encoding: &str, content: &str) -> Result<Vec<u8>, String> {
    let base64 = || {
        let packed: String = content.split_whitespace().collect();
        STANDARD.decode(packed).map_err(|error| format!("is no base64: {error}"))
    };
    match encoding.to_ascii_lowercase().as_str() {
        "" | "text/plain" => Ok(content.as_bytes().to_vec()),
        "b64" | "base64" => base64(),
        "gz+b64" | "gz+base64" | "gzip+b64" | "gzip+base64" => {
            gunzip(&base64()?).map_err(|error| format!("is no gzip: {error}"))
        }
        // Plain gzip cannot stand in YAML other than as !!binary, which nobody writes.
        other => Err(format!("its encoding {other:?} is unknown")),
    }
}

fn gunzip(data: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut out = Vec::new();
    MultiGzDecoder::new(data).take(MAX_UNPACKED).read_to_end(&mut out)?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn parse(text: &str) -> Result<CloudConfig, Fault> {
        let meta_data = MetaData::parse("local-hostname: lab-0").unwrap();
        CloudConfig::parse(text.as_bytes(), &meta_data)
    }

    fn gzip(data: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn files_come_in_every_encoding() {
        let packed = STANDARD.encode(gzip(b"three"));
        let text = format!(
            "#cloud-config\nwrite_files:\n- {{path: /a, content: one}}\n- {{path: /b, encoding: base64, content: dHdv}}\n- {{path: /c, encoding: gzip+base64, content: {packed}}}\n- {{path: /a, append: true, content: ' more'}}\nruncmd:\n- echo a\n- [echo, b]\n"
        );
        let config = parse(&text).unwrap();
        let files: Vec<_> =
            config.files.values().map(|data| String::from_utf8_lossy(data)).collect();
        assert_eq!(files, ["one more", "two", "three"]);
        assert_eq!(config.commands, ["echo a", "echo b"]);
    }

    #[test]
    fn templates_are_rendered_and_packed_data_is_unpacked() {
        let text = "## template: jinja\n#cloud-config\nruncmd:\n- echo {{ ds.meta_data.local_hostname }}\n";
        assert_eq!(parse(text).unwrap().commands, ["echo lab-0"]);
        let meta_data = MetaData::parse("local-hostname: lab-0").unwrap();
        let packed = CloudConfig::parse(&gzip(text.as_bytes()), &meta_data).unwrap();
        assert_eq!(packed.commands, ["echo lab-0"]);
        let plain = parse("#cloud-config\nruncmd: ['echo {{ x }}']\n").unwrap();
        assert_eq!(plain.commands, ["echo {{ x }}"]);
    }

    #[test]
    fn what_cloud_init_would_not_run_is_a_fault() {
        for (text, said) in [
            ("", "not with #cloud-config"),
            ("{\"ignition\": {}}", "not with #cloud-config"),
            ("#cloud-config\n", "says nothing"),
            ("#cloud-config\na: [", "is no YAML"),
            (
                "#cloud-config\nwrite_files: [{path: /x, encoding: b64, content: '*'}]",
                "write_files of /x: is no base64",
            ),
            ("#cloud-config\nwrite_files: [{path: /x, encoding: rot13}]", "\"rot13\" is unknown"),
            ("## template: jinja\n#cloud-config\na: {{ nobody }}\n", "undefined"),
        ] {
            let fault = parse(text).unwrap_err();
            assert!(fault.text.contains(said), "{text:?} gave {fault}");
        }
    }
}
