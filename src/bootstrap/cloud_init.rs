//! What `cloud-init status` says of a guest's first boot.
//!
//! Exit codes: 0 for "fine so far" whatever the status line says, 1 for an unrecoverable error,
//! since cloud-init 23.4 also 2 for "done, with recoverable errors". The texts are those of
//! cloud-init 22.4 to 25.1; `cargo xtask test-boot` captures them from real guests.

/// Exit code for "done, with recoverable errors", since cloud-init 23.4.
const DEGRADED: i64 = 2;

/// Exit code for an unrecoverable error.
const ERROR: i64 = 1;

/// Characters of the guest's output that go into a message.
const EXCERPT: usize = 500;

/// How `cloud-init status` ended in the guest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Answer<'a> {
    /// Exit code, if it ended by itself.
    pub exit_code: Option<i64>,
    /// Signal that ended it.
    pub signal: Option<i64>,
    /// Standard output.
    pub output: &'a str,
    /// Standard error.
    pub errors: &'a str,
}

/// How far cloud-init is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// It has not finished.
    Running,
    /// It is done; the text tells of recoverable errors, if any.
    Done(Option<String>),
    /// It failed, with its words.
    Failed(String),
    /// The answer says nothing about cloud-init, and why.
    Unknown(String),
}

/// What the end of `cloud-init status` means.
pub fn judge(answer: &Answer<'_>) -> Progress {
    if let Some(signal) = answer.signal {
        return Progress::Unknown(format!("`cloud-init status` was ended by signal {signal}"));
    }
    let words = excerpt(&[answer.output, answer.errors].join("\n"));
    let says = |word: &str| answer.output.to_ascii_lowercase().contains(word);
    match answer.exit_code.unwrap_or(0) {
        0 | DEGRADED if says("running") || says("not started") || says("not run") => {
            Progress::Running
        }
        0 => Progress::Done(None),
        DEGRADED => Progress::Done(Some(words)),
        code if code == ERROR || says("error") => {
            Progress::Failed(format!("`cloud-init status` exited with {code}: {words}"))
        }
        // The command itself could not run: that says nothing about cloud-init.
        code => Progress::Unknown(format!(
            "`cloud-init status` could not be run in the guest (exit code {code}: {words}): the \
             template needs cloud-init and an agent that may execute it, or set \
             spec.checks.skipCloudInitStatus"
        )),
    }
}

/// The part of `cloud-init status --long` that tells of errors; none when it tells of none.
pub fn errors_of(text: &str) -> Option<String> {
    let known = ["status:", "extended_status:", "boot_status_code:", "last_update:"];
    let telling = text
        .lines()
        .filter(|line| !known.iter().any(|key| line.starts_with(key)))
        .filter(|line| !line.trim_end().ends_with("[]") && !line.trim_end().ends_with("{}"));
    let words = excerpt(&telling.collect::<Vec<_>>().join("\n"));
    (!words.is_empty()).then_some(words)
}

/// One line of at most [`EXCERPT`] characters.
fn excerpt(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut short: String = line.chars().take(EXCERPT).collect();
    if short.len() < line.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(code: i64, output: &str) -> Progress {
        judge(&Answer { exit_code: Some(code), output, ..Answer::default() })
    }

    #[test]
    fn cloud_init_is_judged_by_exit_code_and_status_line() {
        assert_eq!(ended(0, "status: running\n"), Progress::Running);
        assert_eq!(ended(0, "status: not started"), Progress::Running);
        assert_eq!(ended(2, "status: running\n"), Progress::Running);
        assert_eq!(ended(0, "status: done\n"), Progress::Done(None));
        assert_eq!(
            ended(2, "status: done\nextended_status: degraded done"),
            Progress::Done(Some("status: done extended_status: degraded done".to_owned()))
        );
        let failed = ended(1, "status: error\n");
        assert!(matches!(failed, Progress::Failed(why) if why.contains("status: error")));
        let missing = ended(127, "sh: cloud-init: not found");
        assert!(matches!(missing, Progress::Unknown(why) if why.contains("not found")));
    }

    #[test]
    fn of_all_that_cloud_init_says_its_errors_are_told() {
        let long = "status: error\nextended_status: error - done\nboot_status_code: enabled\n\
                    last_update: Thu\ndetail: DataSourceNoCloud\nerrors:\n\t- ('scripts_user', \
                    RuntimeError('1 failures'))\nrecoverable_errors: {}\n";
        let wanted = "detail: DataSourceNoCloud errors: - ('scripts_user', RuntimeError('1 \
                      failures'))";
        assert_eq!(errors_of(long).as_deref(), Some(wanted));
        assert_eq!(errors_of("status: done\nerrors: []\n"), None);
    }

    /// As captured from Debian 12: the template had no locales. cloud-init said so while it was still
    /// running, and `status --wait` did not wait.
    #[test]
    fn the_cause_is_found_where_cloud_init_22_4_puts_it() {
        let long = "status: error\nboot_status_code: enabled-by-generator\nlast_update: Wed, 02 Dec \
                    2026 06:02:36 +0000\ndetail:\n('locale', ProcessExecutionError(\"Unexpected error \
                    while running command.\\nCommand: ['update-locale']\\nExit code: 255\"))\n";
        let cause = errors_of(long).unwrap_or_default();
        assert!(cause.starts_with("detail: ('locale', ProcessExecutionError("), "{cause}");
        let waited = ended(1, "........................................\nstatus: error\n");
        assert!(matches!(waited, Progress::Failed(_)), "{waited:?}");
    }

    #[test]
    fn a_killed_command_says_nothing_about_cloud_init() {
        let killed = judge(&Answer { signal: Some(9), ..Answer::default() });
        assert!(matches!(killed, Progress::Unknown(_)));
    }

    proptest::proptest! {
        #[test]
        fn whatever_a_guest_says_is_judged_in_few_words(
            exit_code in proptest::option::of(proptest::num::i64::ANY), out in ".{0,80}",
            word in "(status: (done|running|error|disabled))?",
        ) {
            let said = format!("{word}\n{}", out.repeat(20));
            let _ = errors_of(&said);
            let answer = Answer { exit_code, output: &said, ..Answer::default() };
            if let Progress::Failed(text) | Progress::Unknown(text) = judge(&answer) {
                proptest::prop_assert!(text.chars().count() < EXCERPT + 300 && !text.contains('\n'));
            }
        }
    }
}
