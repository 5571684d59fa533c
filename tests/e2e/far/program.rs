//! Programs that use the network of their run: how a test starts them, and what it is told of them.

use serde_json::{Value, json};

use super::Far;
use crate::support::{Daemon, PATIENCE, Ran, within};

/// The `network` of a call that may reach this.
pub(crate) fn allowed(domains: &[&str]) -> Value {
    json!({ "allowed_domains": domains })
}

/// The entry of this host in `network`.
#[track_caller]
pub(crate) fn entry<'a>(ran: &'a Ran, host: &str) -> &'a Value {
    let all = ran.document["network"].as_array().unwrap_or_else(|| panic!("no `network`: {}", ran.document));
    all.iter().find(|entry| entry["host"] == host).unwrap_or_else(|| panic!("no {host}: {all:?}"))
}

/// Lines of Python that tell a program where things are.
pub(crate) fn constants(far: &Far) -> String {
    format!("ADDRESS, NEAR = '{}', '{}'\n", far.address, far.near)
}

/// A command of the session `s`, while tests do something else.
pub(crate) struct Beside {
    id: String,
}

impl Beside {
    /// Starts a command and waits until it prints this.
    pub(crate) async fn start(d: &Daemon, command: &str, network: Value, until: &str) -> Beside {
        let config = json!({ "network": network });
        let s = d.session("s");
        let begun =
            s.tool("execute_code_async").with("command", command).with("sandbox_config", config).await;
        let beside = Beside { id: begun.text("execution_id").to_owned() };
        beside.printed(d, until).await;
        beside
    }

    /// Waits until it has printed this.
    async fn printed(&self, d: &Daemon, what: &str) {
        let read = async {
            loop {
                let asked = json!({ "execution_id": self.id, "wait": true, "since": 0 });
                let page = d.tool("get_execution_output", asked).await;
                if page.document["output"].to_string().contains(what) {
                    return;
                }
                assert_eq!(page.document["status"], "running", "no {what}: {}", page.document);
            }
        };
        within(PATIENCE, what, read).await;
    }

    /// Waits for its end.
    pub(crate) async fn end(&self, d: &Daemon) -> Ran {
        let read = async {
            loop {
                let asked = json!({ "execution_id": self.id, "wait": true, "since": 0 });
                let page = d.tool("get_execution_output", asked).await;
                if page.document["status"] != "running" {
                    return page;
                }
            }
        };
        within(PATIENCE, "the end of a program", read).await
    }
}

/// A command that runs this Python.
pub(crate) fn python(code: &str) -> String {
    format!("cat > /tmp/$$.py <<'END'\n{code}\nEND\nexec python3 -u /tmp/$$.py")
}
