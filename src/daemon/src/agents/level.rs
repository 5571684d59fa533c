//! How much an agent may do without asking, and what that means in the settings of Claude Code.
//!
//! | level | tools | files | commands | network |
//! |---|---|---|---|---|
//! | 1 | files | of the workspace | none | the model |
//! | 2 | files, web | of the workspace | none | and public addresses, ports 80 and 443 |
//! | 3 | files, web, shell | of the container | all but [`BLOCKED_COMMANDS`] | the same |
//! | 4 | all | of the container | all | and every port, where `egress.mode` is `open` |
//!
//! A level is set twice. In the agent's own settings: a tool that a level does not have is not offered to
//! the model, and a rule denies the shell beside that (Claude Code's mode `dontAsk` alone would let it run
//! what it takes for harmless). And outside of the agent, where it cannot change anything: PID 1 starts it
//! under a policy of what may be executed ([`ExecutePolicy`]), and egress bounds its network. It must never
//! widen a level by a file that the agent could write.

use paddock_proto::ExecutePolicy;
use serde_json::{Value, json};

use super::conversation::STATE_DIR;

/// The programs that level 3 does not run. An agent's own settings compare the words of a command line; the
/// policy outside holds for every process of the task, by the files that these names lead to.
pub const BLOCKED_COMMANDS: [&str; 11] =
    ["docker", "kubectl", "ssh", "nc", "netcat", "sudo", "su", "chroot", "iptables", "systemctl", "service"];

/// The tools of Claude Code that work on files.
const FILE_TOOLS: [&str; 6] = ["Read", "Edit", "Write", "Glob", "Grep", "NotebookEdit"];
/// Its tools that reach the web.
const WEB_TOOLS: [&str; 2] = ["WebFetch", "WebSearch"];
/// Its tool that runs commands.
const SHELL: &str = "Bash";

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

    /// The tools that the model is offered.
    pub(super) fn tools(self) -> Vec<&'static str> {
        let mut tools = FILE_TOOLS.to_vec();
        if self >= Level::Web {
            tools.extend(WEB_TOOLS);
        }
        if self.runs_programs() {
            tools.push(SHELL);
        }
        tools
    }

    /// Which programs an agent with this program of its own may execute, enforced outside of it; `None`: all.
    pub(super) fn execute(self, program: &str) -> Option<ExecutePolicy> {
        match self {
            Level::Files | Level::Web => Some(ExecutePolicy::Only(vec![program.to_owned()])),
            Level::Commands => Some(ExecutePolicy::Except(BLOCKED_COMMANDS.map(str::to_owned).to_vec())),
            Level::Everything => None,
        }
    }

    /// Claude Code's permission mode.
    pub(super) fn mode(self) -> &'static str {
        if self == Level::Everything { "bypassPermissions" } else { "dontAsk" }
    }

    /// Claude Code's settings.
    pub(super) fn settings(self) -> Value {
        // It would ask a server of its maker before each page that it fetches.
        let mut settings = json!({ "skipWebFetchPreflight": true });
        let mut allow: Vec<String> = Vec::new();
        // At every level: what the agent keeps of its conversations is not for its own tools.
        let mut deny: Vec<String> = ["data", "workspace", "mnt/data"]
            .iter()
            .map(|mount| format!("Edit(//{mount}/{STATE_DIR}/**)"))
            .collect();
        if self.runs_programs() {
            allow.extend(self.tools().into_iter().map(str::to_owned));
        } else {
            for mount in ["data", "workspace", "mnt/data"] {
                allow.extend(["Read", "Edit"].map(|rule| format!("{rule}(//{mount}/**)")));
            }
            allow.extend(["Glob", "Grep"].map(str::to_owned));
            allow.extend(self.tools().into_iter().filter(|tool| WEB_TOOLS.contains(tool)).map(str::to_owned));
            deny.push(SHELL.to_owned());
        }
        if self == Level::Commands {
            deny.extend(BLOCKED_COMMANDS.map(|command| format!("{SHELL}({command}:*)")));
        }
        settings["permissions"] = json!({ "allow": allow, "deny": deny });
        settings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Level; 4] = [Level::Files, Level::Web, Level::Commands, Level::Everything];

    fn rules(level: Level, list: &str) -> Vec<String> {
        let rules = &level.settings()["permissions"][list];
        rules.as_array().unwrap().iter().map(|rule| rule.as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn levels_have_the_numbers_one_to_four_and_no_other() {
        for (number, level) in (1..).zip(ALL) {
            assert_eq!((Level::of(number), u64::from(level.number())), (Some(level), number));
        }
        assert_eq!([0, 5, u64::MAX].map(Level::of), [None; 3]);
    }

    #[test]
    fn each_level_has_the_tools_of_the_one_below_and_more() {
        let has = |level: Level, tool| level.tools().contains(&tool);
        for (level, web, shell) in [
            (Level::Files, false, false),
            (Level::Web, true, false),
            (Level::Commands, true, true),
            (Level::Everything, true, true),
        ] {
            assert_eq!((has(level, "WebFetch"), has(level, "Bash")), (web, shell), "{level:?}");
            assert_eq!(rules(level, "deny").contains(&"Bash".to_owned()), !shell, "{level:?}");
            assert!(FILE_TOOLS.iter().all(|tool| has(level, tool)));
        }
        assert!(ALL.windows(2).all(|pair| pair[0].tools().iter().all(|tool| pair[1].tools().contains(tool))));
    }

    #[test]
    fn below_level_three_files_are_those_of_the_workspace() {
        for level in [Level::Files, Level::Web] {
            let allow = rules(level, "allow");
            assert!(allow.contains(&"Edit(//workspace/**)".to_owned()), "{allow:?}");
            let unbounded = ["Read", "Edit", "Write", "NotebookEdit", "Bash"];
            assert!(!allow.iter().any(|rule| unbounded.contains(&rule.as_str())), "{allow:?}");
        }
    }

    #[test]
    fn level_three_blocks_the_list_and_nothing_that_is_allowed() {
        let blocked = rules(Level::Commands, "deny");
        for command in [
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
        ] {
            assert!(blocked.contains(&format!("Bash({command}:*)")), "{command}");
        }
        for command in [
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
        ] {
            assert!(!blocked.contains(&format!("Bash({command}:*)")), "{command}");
        }
        assert!(rules(Level::Commands, "allow").contains(&"Bash".to_owned()));
        assert!(!rules(Level::Everything, "deny").iter().any(|rule| rule.starts_with("Bash")));
        assert_eq!(ALL.map(Level::mode), ["dontAsk", "dontAsk", "dontAsk", "bypassPermissions"]);
    }

    #[test]
    fn no_level_lets_the_agents_tools_write_what_it_keeps() {
        for level in ALL {
            assert!(rules(level, "deny").contains(&"Edit(//workspace/.agent/**)".to_owned()), "{level:?}");
        }
    }
}
