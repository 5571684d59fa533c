//! How much an agent may do without asking, and what that means outside of it.
//!
//! | level | tools | files | commands | network |
//! |---|---|---|---|---|
//! | 1 | files | of the workspace | none | the model |
//! | 2 | files, web | of the workspace | none | and public addresses, ports 80 and 443 |
//! | 3 | files, web, shell | of the container | all but [`BLOCKED_COMMANDS`] | the same |
//! | 4 | all | of the container | all | and every port, where `egress.mode` is `open` |
//!
//! A level is set twice. In the agent's own settings (`claude_code/permissions.rs`,
//! `opencode/permissions.rs`), and outside of the agent, where it cannot change anything: PID 1 starts it
//! under a policy of what may be executed ([`ExecutePolicy`]), and egress bounds its network. It must never
//! widen a level by a file that the agent could write.

use paddock_proto::ExecutePolicy;

/// The programs that level 3 does not run. An agent's own settings compare the words of a command line; the
/// policy outside holds for every process of the task, by the files that these names lead to.
pub const BLOCKED_COMMANDS: [&str; 11] =
    ["docker", "kubectl", "ssh", "nc", "netcat", "sudo", "su", "chroot", "iptables", "systemctl", "service"];

/// How much an agent may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Reads and writes files in the workspace.
    Files,
    /// And reaches the web.
    Web,
    /// And runs commands, but not [`BLOCKED_COMMANDS`].
    Commands,
    /// Everything.
    Everything,
}

impl Level {
    /// The level of this number, 1 to 4.
    pub fn of(number: u64) -> Option<Level> {
        match number {
            1 => Some(Level::Files),
            2 => Some(Level::Web),
            3 => Some(Level::Commands),
            4 => Some(Level::Everything),
            _ => None,
        }
    }

    /// Its number, 1 to 4.
    pub fn number(self) -> u8 {
        match self {
            Level::Files => 1,
            Level::Web => 2,
            Level::Commands => 3,
            Level::Everything => 4,
        }
    }

    /// Whether the agent may start programs.
    pub(super) fn runs_programs(self) -> bool {
        self >= Level::Commands
    }

    /// Which programs an agent may execute, enforced outside of it; `None`: all. Below level 3 these are its
    /// own.
    pub(super) fn execute<P: Into<String>>(self, own: impl IntoIterator<Item = P>) -> Option<ExecutePolicy> {
        match self {
            Level::Files | Level::Web => Some(ExecutePolicy::Only(own.into_iter().map(Into::into).collect())),
            Level::Commands => Some(ExecutePolicy::Except(BLOCKED_COMMANDS.map(str::to_owned).to_vec())),
            Level::Everything => None,
        }
    }
}

/// Every level.
#[cfg(test)]
pub(super) const ALL: [Level; 4] = [Level::Files, Level::Web, Level::Commands, Level::Everything];

/// What the specification of levels allows at level 3, word for word.
#[cfg(test)]
pub(super) const ALLOWED_COMMANDS: [&str; 28] = [
    "python",
    "python3",
    "pip",
    "pip3",
    "node",
    "npm",
    "npx",
    "cat",
    "ls",
    "cp",
    "mv",
    "rm",
    "mkdir",
    "touch",
    "jq",
    "grep",
    "sed",
    "awk",
    "cut",
    "sort",
    "uniq",
    "ffmpeg",
    "convert",
    "imagemagick",
    "curl",
    "wget",
    "git clone",
    "git pull",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_have_the_numbers_one_to_four_and_no_other() {
        for (number, level) in (1..).zip(ALL) {
            assert_eq!((Level::of(number), u64::from(level.number())), (Some(level), number));
        }
        assert_eq!([0, 5, u64::MAX].map(Level::of), [None; 3]);
    }

    #[test]
    fn a_level_bounds_what_may_be_executed() {
        let only = Some(ExecutePolicy::Only(vec!["agent".to_owned(), "rg".to_owned()]));
        let except = Some(ExecutePolicy::Except(BLOCKED_COMMANDS.map(str::to_owned).to_vec()));
        for (level, expected) in ALL.into_iter().zip([only.clone(), only, except, None]) {
            let policy = level.execute(["agent", "rg"]);
            assert_eq!(policy, expected, "{level:?}");
            assert!(policy.is_none_or(|policy| policy.check().is_ok()));
        }
        assert!(ALLOWED_COMMANDS.iter().all(|allowed| !BLOCKED_COMMANDS.contains(allowed)));
        let specified = [
            "docker",
            "kubectl",
            "ssh",
            "nc",
            "netcat",
            "sudo",
            "su",
            "chroot",
            "iptables",
            "systemctl",
            "service",
        ];
        assert_eq!(BLOCKED_COMMANDS, specified);
    }
}
