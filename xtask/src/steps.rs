//! Runs steps one after the other, shows their output as it comes, counts tests, tells how long
//! each took. A failed step does not keep the others from running: one run shows all that is wrong.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use testbed::say::{self, say};

/// One thing to run.
pub(crate) struct Step {
    name: &'static str,
    what: What,
}

enum What {
    Command { program: &'static str, args: Vec<String>, env: Vec<(String, String)>, at: String },
    Inside(Box<dyn Fn() -> Result<()>>),
}

/// A call of cargo.
pub(crate) fn cargo(name: &'static str, args: &[&str]) -> Step {
    command(name, "cargo", args)
}

/// A program.
pub(crate) fn command(name: &'static str, program: &'static str, args: &[&str]) -> Step {
    let args = args.iter().map(|&arg| arg.to_owned()).collect();
    Step { name, what: What::Command { program, args, env: Vec::new(), at: String::new() } }
}

/// A task of this program.
pub(crate) fn inside(name: &'static str, task: impl Fn() -> Result<()> + 'static) -> Step {
    Step { name, what: What::Inside(Box::new(task)) }
}

impl Step {
    /// With a variable of the environment.
    pub(crate) fn env(mut self, key: &str, value: &str) -> Self {
        if let What::Command { env, .. } = &mut self.what {
            env.push((key.to_owned(), value.to_owned()));
        }
        self
    }

    /// In a folder, from the root.
    pub(crate) fn at(mut self, folder: &str) -> Self {
        if let What::Command { at, .. } = &mut self.what {
            folder.clone_into(at);
        }
        self
    }

    fn run(&self, root: &Path, counts: &mut Counts) -> Result<()> {
        match &self.what {
            What::Inside(task) => task(),
            What::Command { program, args, env, at } => {
                let mut command = Command::new(program);
                command.args(args).envs(env.iter().cloned()).current_dir(root.join(at));
                stream(&mut command, counts)
            }
        }
    }
}

/// Tests so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    passed: usize,
    failed: usize,
}

impl Counts {
    /// Reads cargo's `test result: ok. 3 passed; 0 failed; …` and go's `ok  package  0.1s`.
    fn read(&mut self, line: &str) {
        if let Some(rest) = line.strip_prefix("test result: ") {
            let words: Vec<&str> = rest.split([' ', ';']).collect();
            for pair in words.windows(2) {
                if let [number, word] = pair {
                    let number = number.parse().unwrap_or(0);
                    match *word {
                        "passed" => self.passed += number,
                        "failed" => self.failed += number,
                        _ => {}
                    }
                }
            }
        } else if line.starts_with("ok  \t") {
            self.passed += 1;
        } else if line.starts_with("FAIL\t") {
            self.failed += 1;
        }
    }
}

/// Runs all steps. The last line is `N passed, N failed`, where a step without tests of its own
/// that fails counts as one.
pub(crate) fn run(root: &Path, title: &str, steps: &[Step]) -> Result<()> {
    let (counts, failed) = run_all(root, title, steps);
    if !failed.is_empty() {
        say(format!("error: failed: {}", failed.join(", ")));
    }
    // The last line on purpose: CI reads it.
    let line = format!("{} passed, {} failed", counts.passed, counts.failed);
    writeln!(std::io::stdout().lock(), "{line}")?;
    if failed.is_empty() { Ok(()) } else { bail!(line) }
}

/// Runs all steps; gives how many tests passed and failed, and the names of the failed steps.
fn run_all<'a>(root: &Path, title: &str, steps: &'a [Step]) -> (Counts, Vec<&'a str>) {
    let start = Instant::now();
    let mut counts = Counts::default();
    let mut results: Vec<(&str, Duration, Option<String>)> = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        say(format!("\n=== {title} {}/{}: {}", index + 1, steps.len(), step.name));
        let begun = Instant::now();
        let before = counts;
        let error = step.run(root, &mut counts).err().map(|error| format!("{error:#}"));
        if let Some(error) = &error {
            say(format!("error: {error}"));
            if counts.failed == before.failed {
                counts.failed += 1;
            }
        }
        results.push((step.name, begun.elapsed(), error));
    }
    summary(title, &results, start.elapsed());
    let failed = results.iter().filter(|result| result.2.is_some()).map(|result| result.0);
    (counts, failed.collect())
}

fn summary(title: &str, results: &[(&str, Duration, Option<String>)], all: Duration) {
    say(format!("\n=== {title}: {}", say::duration(all)));
    for (name, took, error) in results {
        let verdict = if error.is_some() { "FAILED" } else { "ok" };
        say(format!("{verdict:>8}  {:>12}  {name}", say::duration(*took)));
    }
}

/// Runs a program; its standard output passes through and is read for counts.
fn stream(command: &mut Command, counts: &mut Counts) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot run {program}"))?;
    let stdout = child.stdout.take().context("no output to read")?;
    let mut out = std::io::stdout().lock();
    for line in BufReader::new(stdout).split(b'\n') {
        let line = line.with_context(|| format!("cannot read {program}'s output"))?;
        let text = String::from_utf8_lossy(&line);
        counts.read(&text);
        writeln!(out, "{text}")?;
    }
    let status = child.wait().with_context(|| format!("cannot wait for {program}"))?;
    if !status.success() {
        bail!("{program} ended with {status}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_cargo_and_go_are_counted() {
        let mut counts = Counts::default();
        counts.read("test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out");
        counts.read("test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured");
        counts.read("ok  \tcapmox/tools/workload-cluster\t3.1s");
        counts.read("FAIL\tcapmox/tools/other\t0.1s");
        counts.read("test a_test ... ok");
        assert_eq!(counts, Counts { passed: 16, failed: 3 });
    }

    #[test]
    fn a_failed_step_fails_the_run_and_the_others_still_run() {
        let ran = std::rc::Rc::new(std::cell::Cell::new(false));
        let seen = std::rc::Rc::clone(&ran);
        let steps = [
            inside("breaks", || bail!("broken")),
            inside("runs", move || {
                seen.set(true);
                Ok(())
            }),
        ];
        let (counts, failed) = run_all(Path::new("/"), "test", &steps);
        assert_eq!(counts, Counts { passed: 0, failed: 1 });
        assert_eq!(failed, ["breaks"]);
        assert!(ran.get());
    }
}
