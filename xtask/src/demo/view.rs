//! What is shown: one line a machine, drawn again and again on a terminal; a log of changes
//! elsewhere.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _, stdout};
use std::time::Instant;

use super::snapshot::{Row, Snapshot};

/// Columns of a terminal that does not tell.
const WIDTH: usize = 120;

pub(crate) struct View {
    start: Instant,
    is_terminal: bool,
    /// Lines on the screen that the next drawing replaces.
    drawn: usize,
    /// What the log said of each machine last.
    said: BTreeMap<String, String>,
    cluster: String,
}

impl View {
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            is_terminal: stdout().is_terminal(),
            drawn: 0,
            said: BTreeMap::new(),
            cluster: String::new(),
        }
    }

    /// A line of its own.
    pub(crate) fn say(&mut self, line: &str) {
        self.settle();
        let line = format!("{} {line}", self.clock());
        print(&line);
    }

    /// Lines without a clock.
    pub(crate) fn text(&mut self, text: &str) {
        self.settle();
        print(text);
    }

    /// Leaves what is drawn where it is.
    pub(crate) fn settle(&mut self) {
        self.drawn = 0;
    }

    pub(crate) fn show(&mut self, now: &Snapshot) {
        if self.is_terminal { self.draw(now) } else { self.log(now) }
    }

    fn draw(&mut self, now: &Snapshot) {
        let width = width();
        let mut lines = vec![format!("{} {}", self.clock(), title(now)), header()];
        lines.extend(now.rows.iter().map(columns));
        let mut text = String::new();
        if self.drawn > 0 {
            // Up to the first line, and erase from there on.
            let _ = write!(text, "\x1b[{}A\x1b[J", self.drawn);
        }
        for line in &lines {
            text.extend(line.chars().take(width));
            text.push('\n');
        }
        self.drawn = lines.len();
        write(&text);
    }

    fn log(&mut self, now: &Snapshot) {
        let title = title(now);
        if self.cluster != title {
            print(&format!("{} {title}", self.clock()));
            self.cluster = title;
        }
        for row in &now.rows {
            let text = change(row);
            if self.said.get(&row.name) != Some(&text) {
                print(&format!("{} {text}", self.clock()));
                self.said.insert(row.name.clone(), text);
            }
        }
        let gone: Vec<String> =
            self.said.keys().filter(|name| !is_among(name, now)).cloned().collect();
        for name in gone {
            self.said.remove(&name);
            print(&format!("{} {name}: gone", self.clock()));
        }
    }

    fn clock(&self) -> String {
        let seconds = self.start.elapsed().as_secs();
        format!("[{:02}:{:02}]", seconds / 60, seconds % 60)
    }
}

fn is_among(name: &str, now: &Snapshot) -> bool {
    now.rows.iter().any(|row| row.name == name)
}

fn title(now: &Snapshot) -> String {
    let phase = match now.cluster.as_deref() {
        None => "gone",
        Some("") => "new",
        Some(phase) => phase,
    };
    format!("cluster {phase}, {} of {} machines Running", now.running(), now.rows.len())
}

fn header() -> String {
    format!(
        "  {:<32} {:<13} {:<6} {:>5} {:<15} {:>6}  {}",
        "MACHINE", "PHASE", "NODE", "VMID", "ADDRESS", "AGE", "WAITS FOR"
    )
}

fn columns(row: &Row) -> String {
    let dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    let seconds = row.age.as_secs();
    format!(
        "  {:<32} {:<13} {:<6} {:>5} {:<15} {:>3}:{:02}  {}",
        row.name,
        dash(&row.phase),
        dash(&row.node),
        dash(&row.vmid),
        dash(&row.address),
        seconds / 60,
        seconds % 60,
        waiting(row, true)
    )
}

/// What the log says of a machine: everything but what changes all the time.
fn change(row: &Row) -> String {
    let mut text =
        format!("{}: {}", row.name, if row.phase.is_empty() { "new" } else { &row.phase });
    for (name, value) in [("on", &row.node), ("VMID", &row.vmid), ("address", &row.address)] {
        if !value.is_empty() {
            let _ = write!(text, ", {name} {value}");
        }
    }
    let waiting = waiting(row, false);
    if !waiting.is_empty() {
        let _ = write!(text, "; waits for: {waiting}");
    }
    text
}

fn waiting(row: &Row, with_progress: bool) -> String {
    match row.progress.filter(|_| with_progress) {
        Some(percent) => format!("clone {percent} %, {}", row.waits_for),
        None => row.waits_for.clone(),
    }
}

fn width() -> usize {
    rustix::termios::tcgetwinsize(stdout())
        .map(|size| usize::from(size.ws_col))
        .ok()
        .filter(|columns| *columns > 0)
        .unwrap_or(WIDTH)
}

fn print(line: &str) {
    write(&format!("{line}\n"));
}

/// A closed standard output is no reason to fail.
fn write(text: &str) {
    let mut out = stdout().lock();
    let _ = out.write_all(text.as_bytes());
    let _ = out.flush();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_says_what_is_known_and_leaves_out_what_always_changes() {
        let mut row = Row { name: "demo-1".to_owned(), progress: Some(10), ..Row::default() };
        assert_eq!(change(&row), "demo-1: new");
        row.phase = "Provisioning".to_owned();
        row.node = "pve2".to_owned();
        row.vmid = "101".to_owned();
        row.waits_for = "the clone".to_owned();
        let text = "demo-1: Provisioning, on pve2, VMID 101; waits for: the clone";
        assert_eq!(change(&row), text);
        row.progress = Some(20);
        assert_eq!(change(&row), text);
        assert!(columns(&row).ends_with("clone 20 %, the clone"));
    }
}
