//! What a level means in the settings of Claude Code.
//!
//! A tool that a level does not have is not offered to the model, and a rule denies the shell beside that:
//! Claude Code's mode `dontAsk` alone would let it run what it takes for harmless. It must never widen a
//! level by a file that the agent could write.

use serde_json::{Value, json};

use crate::agents::{BLOCKED_COMMANDS, Level, STATE_DIR};

/// The tools of Claude Code that work on files.
const FILE_TOOLS: [&str; 6] = ["Read", "Edit", "Write", "Glob", "Grep", "NotebookEdit"];
/// Its tools that reach the web.
const WEB_TOOLS: [&str; 2] = ["WebFetch", "WebSearch"];
/// Its tool that runs commands.
const SHELL: &str = "Bash";

/// The tools that the model is offered.
pub(super) fn tools(level: Level) -> Vec<&'static str> {
    let mut tools = FILE_TOOLS.to_vec();
    if level >= Level::Web {
        tools.extend(WEB_TOOLS);
    }
    if level.runs_programs() {
        tools.push(SHELL);
    }
    tools
}

/// Claude Code's permission mode.
pub(super) fn mode(level: Level) -> &'static str {
    if level == Level::Everything { "bypassPermissions" } else { "dontAsk" }
}

/// Claude Code's settings.
pub(super) fn settings(level: Level) -> Value {
    // It would ask a server of its maker before each page that it fetches.
    let mut settings = json!({ "skipWebFetchPreflight": true });
    let mut allow: Vec<String> = Vec::new();
    // At every level: what the agent keeps of its conversations is not for its own tools.
    let mut deny: Vec<String> = ["data", "workspace", "mnt/data"]
        .iter()
        .map(|mount| format!("Edit(//{mount}/{STATE_DIR}/**)"))
        .collect();
    if level.runs_programs() {
        allow.extend(tools(level).into_iter().map(str::to_owned));
    } else {
        for mount in ["data", "workspace", "mnt/data"] {
            allow.extend(["Read", "Edit"].map(|rule| format!("{rule}(//{mount}/**)")));
        }
        allow.extend(["Glob", "Grep"].map(str::to_owned));
        allow.extend(tools(level).into_iter().filter(|tool| WEB_TOOLS.contains(tool)).map(str::to_owned));
        deny.push(SHELL.to_owned());
    }
    if level == Level::Commands {
        deny.extend(BLOCKED_COMMANDS.map(|command| format!("{SHELL}({command}:*)")));
    }
    settings["permissions"] = json!({ "allow": allow, "deny": deny });
    settings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agents::level::{ALL, ALLOWED_COMMANDS};

    fn rules(level: Level, list: &str) -> Vec<String> {
        let rules = &settings(level)["permissions"][list];
        rules.as_array().unwrap().iter().map(|rule| rule.as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn each_level_has_the_tools_of_the_one_below_and_more() {
        let has = |level: Level, tool| tools(level).contains(&tool);
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
        assert!(ALL.windows(2).all(|pair| tools(pair[0]).iter().all(|tool| tools(pair[1]).contains(tool))));
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
        for command in BLOCKED_COMMANDS {
            assert!(blocked.contains(&format!("Bash({command}:*)")), "{command}");
        }
        for command in ALLOWED_COMMANDS {
            assert!(!blocked.contains(&format!("Bash({command}:*)")), "{command}");
        }
        assert!(rules(Level::Commands, "allow").contains(&"Bash".to_owned()));
        assert!(!rules(Level::Everything, "deny").iter().any(|rule| rule.starts_with("Bash")));
        assert_eq!(ALL.map(mode), ["dontAsk", "dontAsk", "dontAsk", "bypassPermissions"]);
    }

    #[test]
    fn no_level_lets_the_agents_tools_write_what_it_keeps() {
        for level in ALL {
            assert!(rules(level, "deny").contains(&"Edit(//workspace/.agent/**)".to_owned()), "{level:?}");
        }
    }
}
