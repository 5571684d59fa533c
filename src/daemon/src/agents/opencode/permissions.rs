//! What a level means in the configuration of opencode: its `permission`.
//!
//! Of several rules that match, the last one counts, so the order of keys matters. A tool that is denied
//! altogether is not offered to the model. Nothing is `ask`: nobody is there to answer, and a task would end
//! at the first question.

use serde_json::{Map, Value, json};

use crate::agents::{BLOCKED_COMMANDS, Level, STATE_DIR};

/// Its tools that only read, search and write files, and its list of what is to do.
const FILE_TOOLS: [&str; 5] = ["read", "edit", "glob", "grep", "list"];
/// Its tools that reach the web.
const WEB_TOOLS: [&str; 2] = ["webfetch", "websearch"];
/// Its tool that runs commands.
const SHELL: &str = "bash";
/// What no level has: what other agents of opencode do is not in its stream, nobody answers questions, and
/// skills come from repositories.
const NEVER: [&str; 5] = ["task", "question", "plan_enter", "plan_exit", "skill"];
/// The paths of the workspace in the container.
const MOUNTS: [&str; 3] = ["/workspace", "/mnt/data", "/data"];

/// The rules of a level.
pub(super) fn rules(level: Level) -> Value {
    let mut rules = Map::new();
    let mut put = |name: &str, rule: Value| rules.insert(name.to_owned(), rule);
    put("*", json!(if level == Level::Everything { "allow" } else { "deny" }));
    for tool in FILE_TOOLS {
        put(tool, json!({ "*": "allow" }));
    }
    // What the agent keeps of its conversations is not for its own tools.
    put(
        "edit",
        json!({ "*": "allow", format!("{STATE_DIR}/*"): "deny", format!("*/{STATE_DIR}/*"): "deny" }),
    );
    put("todowrite", json!("allow"));
    if level >= Level::Web {
        for tool in WEB_TOOLS {
            put(tool, json!("allow"));
        }
    }
    if level.runs_programs() {
        put(SHELL, shell(level));
    }
    put("external_directory", elsewhere(level));
    for tool in NEVER {
        put(tool, json!("deny"));
    }
    Value::Object(rules)
}

/// Which commands it runs. opencode compares each command of a line with the rules.
fn shell(level: Level) -> Value {
    let mut rules = Map::from_iter([("*".to_owned(), json!("allow"))]);
    if level == Level::Commands {
        for command in BLOCKED_COMMANDS {
            rules.insert(command.to_owned(), json!("deny"));
            rules.insert(format!("{command} *"), json!("deny"));
        }
    }
    Value::Object(rules)
}

/// What it may do outside of the directory in which it works.
fn elsewhere(level: Level) -> Value {
    if level.runs_programs() {
        return json!({ "*": "allow" });
    }
    let mut rules = Map::from_iter([("*".to_owned(), json!("deny"))]);
    for mount in MOUNTS {
        rules.insert(format!("{mount}/*"), json!("allow"));
    }
    Value::Object(rules)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agents::level::{ALL, ALLOWED_COMMANDS};

    /// What opencode decides: the last rule that matches counts. `*` stands for any characters, and ` *` at
    /// the end also for nothing.
    fn decides(level: Level, permission: &str, of: &str) -> String {
        let matches = |text: &str, pattern: &str| parts_of(pattern).iter().any(|parts| is_match(text, parts));
        let mut decision = "ask".to_owned();
        for (name, rule) in rules(level).as_object().unwrap() {
            let patterns: Vec<(String, String)> = match rule.as_str() {
                Some(action) => vec![("*".to_owned(), action.to_owned())],
                None => rule
                    .as_object()
                    .unwrap()
                    .iter()
                    .map(|(pattern, action)| (pattern.clone(), action.as_str().unwrap().to_owned()))
                    .collect(),
            };
            for (pattern, action) in patterns {
                if matches(permission, name) && matches(of, &pattern) {
                    decision = action;
                }
            }
        }
        decision
    }

    fn parts_of(pattern: &str) -> Vec<Vec<String>> {
        let parts = |pattern: &str| pattern.split('*').map(str::to_owned).collect::<Vec<_>>();
        let mut all = vec![parts(pattern)];
        all.extend(pattern.strip_suffix(" *").map(parts));
        all
    }

    fn is_match(text: &str, parts: &[String]) -> bool {
        let [first, middle @ .., last] = parts else { return text == parts[0] };
        let Some(mut rest) = text.strip_prefix(first.as_str()) else { return false };
        for part in middle {
            let Some(at) = rest.find(part.as_str()) else { return false };
            rest = &rest[at + part.len()..];
        }
        rest.ends_with(last.as_str())
    }

    #[test]
    fn each_level_has_the_tools_of_the_one_below_and_more() {
        for (level, web, shell) in [
            (Level::Files, "deny", "deny"),
            (Level::Web, "allow", "deny"),
            (Level::Commands, "allow", "allow"),
            (Level::Everything, "allow", "allow"),
        ] {
            assert_eq!(decides(level, "webfetch", "http://a.com/"), web, "{level:?}");
            assert_eq!(decides(level, "bash", "ls -la"), shell, "{level:?}");
            for tool in ["read", "edit", "glob", "grep", "todowrite"] {
                assert_eq!(decides(level, tool, "workspace/a.txt"), "allow", "{level:?} {tool}");
            }
            for tool in ["task", "skill", "question"] {
                assert_eq!(decides(level, tool, "x"), "deny", "{level:?} {tool}");
            }
            let other = if level == Level::Everything { "allow" } else { "deny" };
            for tool in ["lsp", "server_tool", "doom_loop"] {
                assert_eq!(decides(level, tool, "x"), other, "{level:?} {tool}");
            }
        }
    }

    #[test]
    fn below_level_three_files_are_those_of_the_workspace() {
        for level in ALL {
            let outside = if level < Level::Commands { "deny" } else { "allow" };
            for path in ["/tmp/*", "/etc/*", "/workspaces/*", "/*"] {
                assert_eq!(decides(level, "external_directory", path), outside, "{level:?} {path}");
            }
            for path in ["/workspace/src/*", "/data/*", "/mnt/data/x/*"] {
                assert_eq!(decides(level, "external_directory", path), "allow", "{level:?} {path}");
            }
        }
    }

    #[test]
    fn level_three_blocks_the_list_and_nothing_that_is_allowed() {
        for command in BLOCKED_COMMANDS {
            for line in [command.to_owned(), format!("{command} -x y")] {
                assert_eq!(decides(Level::Commands, "bash", &line), "deny", "{line}");
                assert_eq!(decides(Level::Everything, "bash", &line), "allow", "{line}");
            }
        }
        for command in ALLOWED_COMMANDS.into_iter().chain(["sum", "ncdu", "services"]) {
            assert_eq!(decides(Level::Commands, "bash", command), "allow", "{command}");
            assert_eq!(decides(Level::Commands, "bash", &format!("{command} x")), "allow", "{command}");
        }
    }

    #[test]
    fn no_level_lets_the_agents_tools_write_what_it_keeps_and_none_asks() {
        for level in ALL {
            for path in [".agent/x", "workspace/.agent/opencode/a.db", "../.agent/x"] {
                assert_eq!(decides(level, "edit", path), "deny", "{level:?} {path}");
            }
            assert!(!rules(level).to_string().contains("\"ask\""), "{level:?}");
        }
    }
}
