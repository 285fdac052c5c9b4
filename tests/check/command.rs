//! The program as a process, and its answer.

use std::process::Stdio;

use pve_fake::Fake;
use serde_json::Value;
use tokio::process::Command;

/// What it said.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: i32,
    pub(crate) text: String,
    pub(crate) errors: String,
}

impl Answer {
    /// Findings that are not good, as `check subject: found → remedy`.
    pub(crate) fn bad(&self) -> Vec<String> {
        let checks = self.json()["checks"].as_array().unwrap().clone();
        let bad = checks.into_iter().filter(|check| check["result"] != "good");
        bad.map(|check| {
            let text = |key: &str| check[key].as_str().unwrap_or_default().to_owned();
            let (result, check, subject) = (text("result"), text("check"), text("subject"));
            format!("{result} {check} {subject}: {} → {}", text("found"), text("remedy"))
        })
        .collect()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|why| panic!("{why}: {self:?}"))
    }

    /// Exactly one finding is bad, and says all of the words.
    pub(crate) fn only(&self, code: i32, words: &[&str]) {
        let bad = self.bad();
        assert_eq!((bad.len(), self.code), (1, code), "{bad:#?}");
        for word in words {
            assert!(bad[0].contains(word), "no {word:?} in {}", bad[0]);
        }
    }
}

/// Runs it with nothing of this process's environment that it might read. No secret given is ever
/// printed.
pub(crate) async fn check(environment: &[(&str, &str)], arguments: &[&str]) -> Answer {
    let mut command = Command::new(env!("CARGO_BIN_EXE_capmox"));
    for name in ["URL", "TOKEN", "SECRET", "INSECURE"] {
        command.env_remove(format!("PROXMOX_{name}"));
    }
    command.env_remove("KUBECONFIG").envs(environment.iter().copied());
    command.arg("check").args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    let output = command.output().await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let answer = Answer {
        code: output.status.code().unwrap(),
        text: text(output.stdout),
        errors: text(output.stderr),
    };
    let flag = arguments.iter().position(|&argument| argument == "--secret");
    let secret = flag.and_then(|at| arguments.get(at + 1)).copied();
    let secret =
        secret.or(environment.iter().find(|(name, _)| *name == "PROXMOX_SECRET").map(|e| e.1));
    if let Some(secret) = secret.filter(|secret| secret.len() > 8) {
        assert!(!format!("{answer:?}").contains(secret), "{answer:?}");
    }
    answer
}

/// Runs it against a simulator, in JSON.
pub(crate) async fn check_fake(fake: &Fake, arguments: &[&str]) -> Answer {
    let (url, token) = (fake.url(), fake.token());
    let given = ["--url", &url, "--token", &token.id, "--secret", &token.secret, "-o", "json"];
    check(&[], &[&given, arguments].concat()).await
}
