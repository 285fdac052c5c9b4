//! Nothing of a world outlives the process that started it, whatever ends that process.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

struct Started {
    parent: Child,
    children: Vec<u32>,
    data: PathBuf,
}

fn start() -> Started {
    let mut parent = Command::new(env!("CARGO_BIN_EXE_testbed-world"))
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut data = PathBuf::new();
    let mut children = Vec::new();
    for line in BufReader::new(parent.stderr.take().unwrap()).lines() {
        let line = line.unwrap();
        if let Some(path) = line.strip_prefix("export KUBECONFIG=") {
            data = Path::new(path).parent().unwrap().to_path_buf();
        } else if let Some((_, id)) = line.split_once(' ')
            && let Ok(id) = id.parse()
        {
            children.push(id);
        } else if line == "ready" {
            break;
        }
    }
    assert_eq!(children.len(), 2, "etcd and kube-apiserver");
    assert!(children.iter().all(|id| is_alive(*id)));
    assert!(data.is_dir());
    Started { parent, children, data }
}

fn is_alive(id: u32) -> bool {
    // A zombie has ended; only nobody has asked yet.
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

fn nothing_is_left(started: &Started) {
    let start = Instant::now();
    while started.data.exists() || started.children.iter().any(|id| is_alive(*id)) {
        assert!(start.elapsed() < Duration::from_secs(20), "something outlives its parent");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn nothing_outlives_sigkill() {
    let mut started = start();
    started.parent.kill().unwrap();
    started.parent.wait().unwrap();
    nothing_is_left(&started);
}

#[test]
fn nothing_outlives_a_soft_end() {
    let mut started = start();
    drop(started.parent.stdin.take());
    assert!(started.parent.wait().unwrap().success());
    nothing_is_left(&started);
}
