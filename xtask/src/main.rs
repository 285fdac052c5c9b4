//! The project's task runner: what the Makefile's targets do.

mod bench;
mod bench_hot;
mod book;
mod boot;
mod components;
mod demo;
mod flavours;
mod generate;
mod image;
mod image_check;
mod installed;
mod packages;
mod program;
mod provider;
mod reference;
mod steps;
mod suite;
mod vendor;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use testbed::say::say;

#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask", about = "The project's tasks")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Writes the files that are generated from the library's types and tables
    Generate,
    /// Writes components/: everything that installs the provider
    Components(components::Arguments),
    /// Compiles static programs and lays out the OCI image in dist/image
    Image(image::ImageArguments),
    /// Makes image and release a second time, as on another machine, and compares
    ImageCheck(image::ImageArguments),
    /// Lays out a release in dist: clusterctl's repository, chart, bills of materials, sums
    Release(image::ReleaseArguments),
    /// Writes the documentation as HTML to dist/book, by mdBook
    Book,
    /// Packages a pinned release of capmox itself for the Cluster API operator, in dist/vendored
    Vendor(vendor::Arguments),
    /// Checks that the generated files are up to date
    Verify,
    /// Format, lints, documentation
    Lint,
    /// Builds the control plane's programs into .cache, or those that are named
    Tools { names: Vec<String> },
    /// Installs the Debian packages and the Python environment that tests need
    Packages,
    /// From nothing to a finished cluster and back
    Demo {
        /// Stays up once the cluster is there
        #[arg(long, env = "KEEP", num_args = 0..=1, default_missing_value = "true",
              value_parser = clap::builder::FalseyValueParser::new(), default_value = "false")]
        keep: bool,
    },
    /// What many machines cost, measured on the real API server and the simulator
    Bench(bench::Arguments),
    /// What is computed most often, in instructions
    BenchHot,
    /// Random machines and random trouble against the real program, then quiet
    Soak {
        /// How long the trouble lasts, in minutes
        #[arg(default_value_t = 5)]
        minutes: u64,
        /// Seed of all choices; by chance when not given, and printed in any case
        seed: Option<u64>,
    },
    /// Everything that CI runs
    Test,
    /// The seed on real Debian guests in QEMU
    TestBoot(boot::Arguments),
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<()> {
    let root = testbed::root();
    match &cli.task {
        Task::Generate => {
            for path in generate::write(&root)? {
                say(format!("wrote {}", path.display()));
            }
            Ok(())
        }
        Task::Components(arguments) => components::write(arguments),
        Task::Image(arguments) => image::image(arguments),
        Task::ImageCheck(arguments) => image_check::compare(arguments),
        Task::Release(arguments) => image::release(arguments),
        Task::Vendor(arguments) => vendor::write(arguments),
        Task::Book => book::write(&root),
        Task::Verify => suite::verify().and_then(|()| components::verify()),
        Task::Lint => steps::run(&root, "lint", &suite::lint()),
        Task::Tools { names } => suite::tools(names),
        Task::Packages => packages::install(),
        Task::Demo { keep } => demo::run(*keep),
        Task::Bench(arguments) => bench::run(arguments),
        Task::BenchHot => bench_hot::measure(&root),
        Task::Soak { minutes, seed } => steps::run(&root, "soak", &[suite::soak(*minutes, *seed)]),
        Task::TestBoot(arguments) => boot::run(arguments),
        Task::Test => steps::run(&root, "test", &suite::test()),
    }
}
