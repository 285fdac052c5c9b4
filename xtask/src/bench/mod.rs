//! `make bench`: many machines on the real API server and the simulator with fixed latencies, and
//! what they cost. Prints figures and judges nothing: aims and history are in
//! `docs/performance.md`.

mod apiserver;
mod figures;
mod objects;
mod process;
mod run;
mod site;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use testbed::say::say;
use testbed::{Options, World};

/// What is measured.
#[derive(Clone, Debug, Args)]
pub(crate) struct Arguments {
    /// Numbers of machines, by commas
    #[arg(short = 'N', long = "machines", value_delimiter = ',', default_value = "1,25,100")]
    machines: Vec<usize>,
    /// Arguments for the manager, by blanks, such as limits
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    flags: String,
    /// Seconds over which idle calls are counted; 0 leaves that and what follows from it out
    #[arg(long, default_value_t = 60)]
    idle: u64,
    /// Milliseconds that an agent call to a guest without an agent takes; 3000 in a real Proxmox
    #[arg(long, default_value_t = 5)]
    silent_agent: u64,
    /// Another program than the provider that is built here
    #[arg(long)]
    program: Option<PathBuf>,
}

impl Arguments {
    fn idle(&self) -> Duration {
        Duration::from_secs(self.idle)
    }
}

/// Measures, one number of machines after the other.
///
/// # Errors
/// If something cannot be started, or the machines do not come up or go in good time.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let program = match &arguments.program {
        Some(program) => program.clone(),
        None => crate::provider::build()?,
    };
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    runtime.block_on(async {
        say("starting the control plane");
        let world = World::start(Options::default()).await?;
        let client = world.client().await?;
        // Beside the manager, as an IPAM provider is: its work is not the manager's.
        let end = tokio_util::sync::CancellationToken::new();
        tokio::spawn(capmox::embedded_ipam::run(client, end.clone()));
        for &machines in &arguments.machines {
            let figures = run::measure(&world, &program, machines, arguments).await?;
            figures.print()?;
        }
        end.cancel();
        world.stop().await
    })
}
