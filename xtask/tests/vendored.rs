//! The package of somebody else's release is made of the recorded bytes, or not at all.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result};
use release::Files;
use testbed::root;

const METADATA: &str = "apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3\nkind: Metadata\n\
                        releaseSeries: [{major: 0, minor: 7, contract: v1beta1}]\n";

/// A server of files that counts what it is asked for.
struct Releases {
    url: String,
    components: Arc<Mutex<String>>,
    asked: Arc<Mutex<usize>>,
}

impl Releases {
    fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let url = format!("http://{}", listener.local_addr()?);
        let components = Arc::new(Mutex::new("kind: Namespace\n".to_owned()));
        let asked = Arc::new(Mutex::new(0));
        let (served, counted) = (Arc::clone(&components), Arc::clone(&asked));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut line = String::new();
                let mut reader = BufReader::new(&stream);
                if reader.read_line(&mut line).is_err() {
                    continue;
                }
                let mut head = String::new();
                while reader.read_line(&mut head).is_ok_and(|read| read > 2) {
                    head.clear();
                }
                *counted.lock().unwrap_or_else(PoisonError::into_inner) += 1;
                let body = if line.contains("metadata") {
                    METADATA.to_owned()
                } else {
                    served.lock().unwrap_or_else(PoisonError::into_inner).clone()
                };
                let _ = write!(
                    &stream,
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                    body.len()
                );
            }
        });
        Ok(Self { url, components, asked })
    }

    fn record(&self, version: &str, sums: [&str; 2]) -> String {
        let [components, metadata] = sums;
        let url = &self.url;
        format!(
            "version: {version}\ncomponents: {{url: {url}/components.yaml, sha256: '{components}'}}\n\
             metadata: {{url: {url}/metadata.yaml, sha256: '{metadata}'}}\n"
        )
    }

    fn asked(&self) -> usize {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs the task: what it says, if it fails.
fn vendor(folder: &Path, record: &str) -> Result<Result<Files, String>> {
    let file = folder.join("record.yaml");
    fs::write(&file, record)?;
    let run = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .arg("vendor")
        .arg("--record")
        .arg(&file)
        .arg("--output")
        .arg(folder.join("out"))
        .env("no_proxy", "127.0.0.1")
        .output()?;
    if !run.status.success() {
        return Ok(Err(String::from_utf8_lossy(&[run.stdout, run.stderr].concat()).into_owned()));
    }
    Ok(Ok(Files::read(&folder.join("out"))?))
}

fn sum(content: &str) -> Result<String> {
    let mut files = Files::default();
    files.add("one", content);
    files.add_sums();
    Ok(files.text(release::SUMS)?.split(' ').next().context("a sum")?.to_owned())
}

#[test]
fn only_the_recorded_bytes_are_packaged() -> Result<()> {
    let releases = Releases::start()?;
    let folder = tempfile::tempdir()?;
    let sums = [sum("kind: Namespace\n")?, sum(METADATA)?];
    let right = [sums[0].as_str(), sums[1].as_str()];

    // Without sums nothing is even fetched.
    let said = vendor(folder.path(), &releases.record("v0.7.7", ["", right[1]]))?;
    let said = said.err().context("was packaged without a sum")?;
    assert!(said.contains("components.sha256"), "{said}");
    assert_eq!(releases.asked(), 0);

    let record = releases.record("v0.7.7", right);
    let made = vendor(folder.path(), &record)?.map_err(anyhow::Error::msg)?;
    let config_map = made.text("operator/configmap.yaml")?;
    assert!(config_map.contains("name: v0.7.7") && config_map.contains("infraprovider-provider"));
    assert!(made.text("chart/Chart.yaml")?.contains("appVersion: v0.7.7"));
    let again = vendor(folder.path(), &record)?.map_err(anyhow::Error::msg)?;
    assert_eq!(made, again);

    // Metadata that does not cover the version is somebody else's.
    let said = vendor(folder.path(), &releases.record("v0.9.0", right))?;
    let said = said.err().context("was packaged as another series")?;
    assert!(said.contains("no release series"), "{said}");

    // The tag is moved: what was packaged before stays.
    "kind: Moved\n"
        .clone_into(&mut *releases.components.lock().unwrap_or_else(PoisonError::into_inner));
    let said = vendor(folder.path(), &record)?.err().context("the moved tag was packaged")?;
    assert!(said.contains("tag was moved"), "{said}");
    assert_eq!(Files::read(&folder.path().join("out"))?, made);
    Ok(())
}

#[test]
fn the_record_of_the_repository_is_complete_or_refused() -> Result<()> {
    let text = fs::read_to_string(root().join("config/package/vendored.yaml"))?;
    match release::vendored::Release::read(&text) {
        Ok(release) => assert!(release.components.url.contains(&release.version)),
        Err(error) => assert!(error.to_string().contains("sha256"), "{error}"),
    }
    Ok(())
}
