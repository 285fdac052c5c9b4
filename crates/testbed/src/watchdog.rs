//! Children must not outlive this process, even if it is killed.
//!
//! A shell in a process group of its own reads a pipe whose writing end only this process has. Each
//! line names a process group that came (`+ PID`) or went (`- PID`), or a directory to remove at the
//! end (`d PATH`). When this process ends, in whatever way, the pipe closes, and the shell kills
//! what is left.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

use anyhow::{Context as _, Result};

const SCRIPT: &str = r#"
groups=" "
while read -r op what; do
  case "$op" in
    +) groups="$groups$what " ;;
    -) case "$groups" in *" $what "*) groups="${groups%% $what *} ${groups#* $what }" ;; esac ;;
    d) dirs="$dirs
$what" ;;
  esac
done
for group in $groups; do kill -s KILL -- "-$group" 2>/dev/null; done
printf '%s\n' "$dirs" | while read -r dir; do [ -n "$dir" ] && rm -rf -- "$dir"; done
"#;

static PIPE: OnceLock<Mutex<Option<ChildStdin>>> = OnceLock::new();

/// From now on the process group dies with this process.
pub(crate) fn watch(group: u32) -> Result<()> {
    tell(&format!("+ {group}\n"))
}

/// The process group is gone; its number may be used again by others.
pub(crate) fn forget(group: u32) {
    // Without the shell there is nothing to forget.
    let _ = tell(&format!("- {group}\n"));
}

/// The directory is removed after the children's end.
pub(crate) fn remove_at_end(dir: &Path) -> Result<()> {
    tell(&format!("d {}\n", dir.display()))
}

fn tell(line: &str) -> Result<()> {
    let pipe = PIPE.get_or_init(|| Mutex::new(None));
    let mut pipe = pipe.lock().unwrap_or_else(PoisonError::into_inner);
    let stdin = match &mut *pipe {
        Some(stdin) => stdin,
        none => none.insert(start()?),
    };
    stdin.write_all(line.as_bytes()).context("the watchdog of child processes is gone")
}

fn start() -> Result<ChildStdin> {
    let mut child = Command::new("/bin/sh")
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .context("cannot start /bin/sh as the watchdog of child processes")?;
    child.stdin.take().context("the watchdog has no standard input")
}
