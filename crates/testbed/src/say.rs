//! Lines for whoever waits in front of a terminal or reads CI's log: on standard error, at once.

use std::io::Write as _;
use std::time::Duration;

/// One line on standard error. A closed standard error is not worth failing for.
pub fn say(line: impl AsRef<str>) {
    let _ = writeln!(std::io::stderr().lock(), "{}", line.as_ref());
}

/// `4.2 s` below a minute, `3 min 07 s` from there on.
pub fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds < 60 {
        return format!("{:.1} s", duration.as_secs_f64());
    }
    format!("{} min {:02} s", seconds / 60, seconds % 60)
}
