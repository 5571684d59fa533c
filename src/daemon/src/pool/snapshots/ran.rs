//! What a command did, and how two runs of the proof program differ, in words. Pure.
//!
//! It must never pass on what could harm a terminal or a log: a command may write anything.

use paddock_proto::message::{Limit, Outcome, RunEnd};

use super::take::SAVE_WITHIN;

/// Characters of a command's last words in a reason.
const SHOWN: usize = 200;

/// What a command did.
pub(super) struct Ran {
    pub(super) end: RunEnd,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
}

/// How a command ended, in words.
pub(super) fn how(end: &RunEnd) -> String {
    match (end.limit, end.outcome) {
        (Some(Limit::Wall), _) => format!("took longer than {} s", SAVE_WITHIN.as_secs()),
        (Some(Limit::Memory), _) => "had too little memory".to_owned(),
        (Some(Limit::Disk | Limit::FileSize), _) => "wrote more than a snapshot may have".to_owned(),
        (Some(limit), _) => format!("was ended by a limit ({limit:?})"),
        (None, Outcome::Exited(code)) => format!("ended with code {code}"),
        (None, Outcome::Signaled(signal)) => format!("was ended by signal {signal}"),
        (None, Outcome::NotStarted(errno)) => format!("could not be started (errno {errno})"),
    }
}

/// The last line that a command wrote, as others may read it.
pub(super) fn last_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let line = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    let printable = |c: char| if matches!(c, ' '..='~') { c } else { '?' };
    let line: String = line.trim().chars().map(printable).take(SHOWN).collect();
    if line.is_empty() { line } else { format!(": {line}") }
}

/// Where the two runs of the proof program differ first.
pub(super) fn difference(path: &str, cold: &Ran, restored: &Ran) -> String {
    let what = if (cold.end.outcome, cold.end.limit) != (restored.end.outcome, restored.end.limit) {
        format!("cold it {}, restored it {}", how(&cold.end), how(&restored.end))
    } else if cold.stdout != restored.stdout {
        format!("its output differs{}", different_line(&cold.stdout, &restored.stdout))
    } else {
        format!("its standard error differs{}", different_line(&cold.stderr, &restored.stderr))
    };
    format!("its proof program {path} does not come out alike: {what}")
}

fn different_line(cold: &[u8], restored: &[u8]) -> String {
    let lines = |text: &[u8]| -> Vec<Vec<u8>> { text.split(|b| *b == b'\n').map(<[u8]>::to_vec).collect() };
    let (cold, restored) = (lines(cold), lines(restored));
    let at = cold.iter().zip(&restored).position(|(a, b)| a != b).unwrap_or(cold.len().min(restored.len()));
    let show = |lines: &[Vec<u8>]| last_line(lines.get(at).map_or(&[][..], |line| line));
    format!(" in line {}, cold{}, restored{}", at + 1, show(&cold), show(&restored))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(outcome: Outcome, stdout: &str, stderr: &str) -> Ran {
        let end = RunEnd {
            outcome,
            limit: None,
            warm: true,
            wall_us: 1,
            cpu_us: 1,
            metered_us: 1,
            max_rss_kib: 1,
            stdout_bytes: 0,
            stderr_bytes: 0,
            leftovers: 0,
            survivors: 0,
        };
        Ran { end, stdout: stdout.into(), stderr: stderr.into() }
    }

    #[test]
    fn a_difference_is_said_where_it_begins() {
        let cold = ran(Outcome::Exited(0), "a\nb\nc\n", "");
        let said = |other: &Ran| difference("/p", &cold, other);
        assert!(
            said(&ran(Outcome::Exited(1), "", ""))
                .ends_with("cold it ended with code 0, restored it ended with code 1")
        );
        assert!(
            said(&ran(Outcome::Exited(0), "a\nB\u{7}\nc\n", ""))
                .ends_with("in line 2, cold: b, restored: B?")
        );
        assert!(
            said(&ran(Outcome::Exited(0), "a\nb\nc\n", "w")).contains("standard error differs in line 1")
        );
    }

    #[test]
    fn the_last_words_of_a_command_are_one_printable_line() {
        assert_eq!(last_line(b"one\ntw\xc3\xa9\n\n"), ": tw?");
        assert_eq!(last_line(b" \n"), "");
    }
}
