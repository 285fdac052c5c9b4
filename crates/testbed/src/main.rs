//! A world to play with: prints where its kubeconfig is and stays until standard input closes,
//! or Ctrl-C. `--capi` adds Cluster API's managers.

use std::io::sink;

use anyhow::{Context as _, Result};
use testbed::say::say;
use testbed::{Options, World};

#[tokio::main]
async fn main() -> Result<()> {
    let capi = std::env::args().any(|arg| arg == "--capi");
    let world = World::start(Options { capi, ..Options::default() }).await?;
    say(format!("export KUBECONFIG={}", world.kubeconfig().display()));
    for (name, id) in world.children() {
        say(format!("{name} {id}"));
    }
    say("ready");
    let end = tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut sink()));
    end.await?.context("cannot read standard input")?;
    world.stop().await
}
