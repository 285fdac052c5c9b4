//! The simulator as a process: prints its URL and token as one line of JSON, then serves.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Parser, ValueEnum};
use pve_fake::{Config, Fake, Release, Seed};
use serde_json::json;

/// A stateful simulator of the Proxmox VE HTTP API.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    /// Address to listen on; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// JSON file with nodes, storages, VMs, users; three nodes and a template if not given.
    #[arg(long)]
    seed: Option<PathBuf>,
    /// HTTPS with a certificate of its own (the default).
    #[arg(long, conflicts_with = "plain")]
    tls: bool,
    /// Plain HTTP.
    #[arg(long)]
    plain: bool,
    /// How long a second takes: 1 is a real cluster, 0.02 fifty times as fast.
    #[arg(long, default_value_t = 0.1)]
    time_scale: f64,
    /// The release to be.
    #[arg(long, value_enum, default_value = "9")]
    release: ReleaseArg,
    /// Prints an example of a seed and ends.
    #[arg(long)]
    print_seed: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ReleaseArg {
    #[value(name = "7")]
    V7,
    #[value(name = "8")]
    V8,
    #[value(name = "9")]
    V9,
}

impl From<ReleaseArg> for Release {
    fn from(arg: ReleaseArg) -> Self {
        match arg {
            ReleaseArg::V7 => Self::V7,
            ReleaseArg::V8 => Self::V8,
            ReleaseArg::V9 => Self::V9,
        }
    }
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "the first line tells the caller where to connect")]
async fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    if cli.print_seed {
        println!("{}", serde_json::to_string_pretty(&Seed::three_nodes())?);
        return Ok(());
    }
    let seed = match &cli.seed {
        None => Seed::three_nodes(),
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("cannot read seed {}", path.display()))?;
            serde_json::from_str(&text)
                .with_context(|| format!("seed {} is not understood", path.display()))?
        }
    };
    let mut config = Config::default()
        .with_seed(seed)
        .with_release(cli.release.into())
        .with_time_scale(cli.time_scale);
    config.listen = cli.listen;
    config.tls = !cli.plain;
    let fake = Fake::start(config).await.context("cannot start")?;
    let fingerprint = fake
        .fingerprint()
        .map(|bytes| bytes.iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(":"));
    println!(
        "{}",
        json!({
            "url": fake.url(),
            "token": fake.token().id,
            "secret": fake.token().secret,
            "fingerprint": fingerprint,
            "certificate": fake.certificate_pem(),
        })
    );
    tokio::signal::ctrl_c().await.context("cannot wait for the end")?;
    for broken in fake.take_violations() {
        eprintln_violation(&broken.text);
    }
    Ok(())
}

#[expect(clippy::print_stderr, reason = "the last word of a process")]
fn eprintln_violation(text: &str) {
    eprintln!("rule broken: {text}");
}
