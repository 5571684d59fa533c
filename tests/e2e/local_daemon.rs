//! README's own commands, exactly as they are there, reach a daemon that was started as by `make run`.
//!
//! It needs root: the machine's `/var/lib` and port 8080 are replaced in namespaces of the test.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::support::{Cleared, PATIENCE, Ran, engine_host, within};

const README: &str = include_str!("../../README.md");

/// The first shell commands below a heading of README.
fn lines(heading: &str) -> &'static str {
    let (_, section) = README.split_once(&format!("\n## {heading}\n")).expect("the heading");
    let (_, block) = section.split_once("```sh\n").expect("lines of shell");
    block.split_once("```").expect("their end").0
}

/// The command that README gives to clients that start their servers themselves.
fn stdio() -> &'static str {
    let line = README.lines().find(|line| line.starts_with("claude mcp add") && line.contains(" -- "));
    line.and_then(|line| line.split_once(" -- ")).expect("the line").1
}

/// Replaces the demo's own program, whose imports take a minute on a busy machine.
const ANALYSIS: &str = "print(len(open('sales.csv').readlines()), 'lines')
open('sales.png', 'wb').write(b'\\x89PNG\\r\\n\\x1a\\n')
open('sales-report.pdf', 'wb').write(b'%PDF-1.7\\n')
";

/// A clone of the repository with a built daemon, as far as `deploy/first-run` needs one; and a home
/// directory.
struct Checkout(TempDir);

impl Checkout {
    fn make() -> Checkout {
        let dir = TempDir::new().expect("a folder");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for folder in ["deploy/demo", "target/release", "var/paddock", "home"] {
            std::fs::create_dir_all(dir.path().join(folder)).expect("a folder");
        }
        for file in ["deploy/first-run", "deploy/demo/sales.csv"] {
            std::fs::copy(source.join(file), dir.path().join(file)).expect("a copy");
        }
        std::fs::write(dir.path().join("deploy/demo/analysis.py"), ANALYSIS).expect("a file");
        symlink(env!("CARGO_BIN_EXE_paddock"), dir.path().join("target/release/paddock")).expect("a link");
        // It notes what any user of the machine could read about it.
        let curl = dir.path().join("target/release/curl");
        let note = format!("#!/bin/sh\necho \"$*\" >>{}/curl.arguments\n", dir.path().display());
        std::fs::write(&curl, note + "PATH=${PATH#*:} exec curl \"$@\"\n").expect("a program");
        std::fs::set_permissions(&curl, Permissions::from_mode(0o755)).expect("a mode");
        Checkout(dir)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        let path = self.path(name);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }
}

/// Starts the daemon, runs README's commands, and stops it. The output of each is in the clone's folder.
const SCRIPT: &str = r#"
set -uo pipefail
mount --bind "$PWD/var" /var/lib
ip link set lo up
env $FOR_THE_DAEMON deploy/first-run >first-run.log 2>&1 &
daemon=$!
trap 'kill -TERM $daemon 2>/dev/null; wait $daemon' EXIT
until grep -q 'The daemon is running' first-run.log; do
    kill -0 $daemon || { cat first-run.log; exit 1; }
    sleep 0.05
done
bash -euo pipefail readme.sh >readme.out 2>readme.err || exit 2
$STDIO <stdio.in >stdio.out 2>stdio.err || exit 3
bash -c "$DOCTOR" >doctor.out 2>doctor.err
echo $? >doctor.code
"#;

/// Runs README's commands with a daemon that has these variables, and whose store is then in `store`, below
/// the clone.
async fn readme_beside(clone: &Checkout, variables: &str, store: &str) {
    std::fs::write(clone.path("readme.sh"), lines("From a terminal")).expect("a file");
    let hello = json!({
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "test", "version": "1" },
    });
    let call =
        json!({ "name": "run_code", "arguments": { "language": "python", "code": "print('by stdio')" } });
    let asked = [
        json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello }),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call }),
    ];
    std::fs::write(clone.path("stdio.in"), asked.map(|message| format!("{message}\n")).concat())
        .expect("a file");
    let path =
        format!("{}:{}", clone.path("target/release").display(), std::env::var("PATH").expect("a path"));
    let mut command = Command::new("unshare");
    command.args(["--mount", "--net", "--propagation", "private", "bash", "-c", SCRIPT]);
    command.current_dir(clone.0.path()).env_clear().env("PATH", path).env("HOME", clone.path("home"));
    command
        .env("FOR_THE_DAEMON", variables)
        .env("STDIO", stdio())
        .env("DOCTOR", lines("Is this host good enough"));
    command.env("DOCKER_HOST", engine_host().to_string());
    let ran = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let ran = within(5 * PATIENCE, "README's lines", ran).await.expect("unshare, of util-linux");
    let owner = clone.text(&format!("{store}/owner"));
    let _cleared = Cleared::of(owner.trim());
    assert!(
        ran.status.success(),
        "{ran:?}\n{}",
        ["first-run.log", "run/first-run/paddock.log", "readme.err", "stdio.err"]
            .map(|name| std::fs::read_to_string(clone.path(name)).unwrap_or_default())
            .join("\n---\n")
    );

    let said = clone.text("readme.out");
    assert!(said.ends_with("hello world\n55\n"), "{said}");
    assert!(clone.path("run/report").read_dir().expect("what the analysis made").count() > 1);
    assert_eq!(clone.text("readme.err"), "", "a daemon of its own has more to say");
    let answers = clone.text("stdio.out");
    let answers: Vec<Value> = answers.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let ran = answers.into_iter().find(|answer| answer["id"] == 1).expect("an answer");
    Ran::of(ran).expect_stdout("by stdio\n");
    assert!(!clone.text("stdio.err").contains("starting one in this process"), "{}", clone.text("stdio.err"));

    // One daemon ran everything: its own first program, those of the terminal, and the client's.
    let log = clone.text("run/first-run/paddock.log");
    let programs = lines("From a terminal").lines().filter(|line| line.contains("paddock run")).count();
    let ended = log.lines().filter(|line| line.starts_with("[RUN]") && line.contains(" ended ")).count();
    assert_eq!(ended, 1 + programs + 1, "{log}");
    let stores = [clone.path("var/paddock"), clone.path("home/.local/state/paddock"), clone.path(store)];
    let made: Vec<_> = stores.iter().filter(|folder| folder.join("owner").exists()).collect();
    assert!(made.iter().all(|folder| folder.ends_with(store)), "{made:?}");

    let doctor = clone.text("doctor.out");
    assert!(doctor.contains("a daemon uses it: paddock (pid "), "{doctor}");
    assert!(doctor.contains("is served by the daemon of this store"), "{doctor}");
    // A busy machine may be too slow for doctor's container, which is another matter.
    let failed: Vec<_> = doctor.lines().filter(|line| line.starts_with("FAIL")).collect();
    assert!(
        !failed.iter().any(|line| line.contains(" configuration ") || line.contains(" store ")),
        "{doctor}"
    );
    assert_eq!(clone.text("doctor.code") == "0\n", failed.is_empty(), "{doctor}");
}

#[tokio::test]
async fn readmes_commands_reach_the_daemon_of_make_run() {
    readme_beside(&Checkout::make(), "", "var/paddock").await;
}

/// The commands are not told where it is: they find it by the process that listens at `http.addr`.
#[tokio::test]
async fn readmes_commands_reach_a_daemon_with_another_store() {
    let clone = Checkout::make();
    let store = clone.path("elsewhere");
    let token = "a-token-that-nobody-else-may-see";
    let variables = format!("SANDBOX_ROOT={} MCP_API_TOKEN={token}", store.display());
    readme_beside(&clone, &variables, "elsewhere").await;
    let seen = clone.text("curl.arguments");
    assert!(seen.contains("/mcp") && !seen.contains(token), "{seen}");
}
