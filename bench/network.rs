//! The way out: what a program pays for a connection through PID 1 and the daemon, beside the same program on
//! this host's own loopback and beside sandbox-runtime's proxy; and what a run pays that could use the
//! network and does not.
//!
//! The same script ([`network.py`]) is the code of the run, and stays up in the two others. It has a daemon
//! of its own, whose configuration lets programs reach a server of this process. It must never take a time
//! that the script did not measure itself, nor compare two Pythons where the README does not say so.
//!
//! [`network.py`]: ../../../bench/network.py

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::Result;
use crate::client::Client;
use crate::network_server::{self, TRANSFER};
use crate::peers;
use crate::programs::PYTHON;
use crate::report::Measurements;
use crate::setup::{self, Setup};
use crate::times::Times;

pub(crate) const CONNECT_TITLE: &str = "Network: a connect";
pub(crate) const ECHO_TITLE: &str = "Network: a byte there and back";
pub(crate) const DOWN_TITLE: &str = "Network: 100 MiB down";
pub(crate) const UP_TITLE: &str = "Network: 100 MiB up";
pub(crate) const UNUSED_TITLE: &str = "Network: a run that does not use it";
pub(crate) const BARE: &str = "bare loopback";
pub(crate) const OURS: &str = "through PID 1 and the daemon";
pub(crate) const PROXY: &str = "through sandbox-runtime's proxy";
pub(crate) const WITHOUT: &str = "paddock warm, no network";
pub(crate) const WITH: &str = "paddock warm, network: true";

/// All of them, for the choice of blocks.
pub(crate) const TITLES: [&str; 5] = [CONNECT_TITLE, ECHO_TITLE, DOWN_TITLE, UP_TITLE, UNUSED_TITLE];

const SCRIPT: &str = include_str!("network.py");
const NAME: &str = "bench.test";
const SESSION: &str = "bench-network";

/// Turns of each block, and samples of a turn.
const TURNS: u32 = 20;
const SAMPLES: u32 = 20;
const TRANSFERS: u32 = 7;
const RUNS: u32 = 400;
/// Between two runs: the warm part forks the next child meanwhile.
const REST: Duration = Duration::from_millis(15);
/// For a script to be up, and for one call.
const PATIENCE: Duration = Duration::from_secs(60);

/// The configuration of its daemon.
fn config(port: u16) -> String {
    format!(
        r#"
http.addr = "127.0.0.1:0"
pool = {{ idle = 1, max_containers = 20, uids = "33000-33999" }}
runners = {{ python = "paddock-runner-python" }}
egress = {{ mode = "open", private = ["127.0.0.1:{port}"], hosts = {{ "{NAME}" = "127.0.0.1" }} }}
"#
    )
}

/// Measures the blocks that `has` names. `peers`: whether sandbox-runtime takes part.
pub(crate) async fn measure(
    setup: &mut Setup,
    has: impl Fn(&str) -> bool,
    peers: bool,
    report: &mut Measurements,
) -> Result<()> {
    let port = network_server::start()?;
    let image = setup.reference(PYTHON.language)?.specimen.plan.container.image.clone();
    let dir = setup.dir.path().to_owned();
    let (daemon, client) = setup.other("network", &config(port)).await?;
    daemon.wait_for_armed(PYTHON.language, 1).await?;
    if TITLES[..4].iter().any(|title| has(title)) {
        let mut bare = Script::bare(&image).await?;
        let mut proxy = if peers { Some(Script::proxied(&dir).await?) } else { None };
        for (title, function, turns, argument) in [
            (CONNECT_TITLE, "connects", TURNS, SAMPLES),
            (ECHO_TITLE, "echoes", TURNS, SAMPLES),
            (DOWN_TITLE, "down", TRANSFERS, u32::try_from(TRANSFER)?),
            (UP_TITLE, "up", TRANSFERS, u32::try_from(TRANSFER)?),
        ] {
            if !has(title) {
                continue;
            }
            let call = |host| Call { function, host, port, argument };
            let (mut alone, mut ours, mut peer) = (Times::default(), Times::default(), Times::default());
            for _ in 0..turns {
                record(&mut alone, &bare.call(&call("127.0.0.1")).await?)?;
                record(&mut ours, &run(client, &call(NAME)).await?)?;
                if let Some(proxy) = &mut proxy {
                    // It blocks addresses that are not public, if it does not know their name.
                    record(&mut peer, &proxy.call(&call("localhost")).await?)?;
                }
            }
            let block = report.block(title);
            block.line(BARE, alone, None);
            block.line(OURS, ours, None);
            if proxy.is_some() {
                block.line(PROXY, peer, None);
            }
        }
        bare.end().await?;
        if let Some(proxy) = proxy {
            proxy.end().await?;
        }
        rates(report);
    }
    if has(UNUSED_TITLE) {
        unused(client, report).await?;
    }
    Ok(())
}

/// Runs with `network: true` and without, in turns; who is first alternates.
async fn unused(client: &mut Client, report: &mut Measurements) -> Result<()> {
    let (mut with, mut without) = (Times::default(), Times::default());
    for n in 0..RUNS * 2 {
        let network = n % 4 == 1 || n % 4 == 2;
        let mut arguments =
            json!({ "language": PYTHON.language, "session_id": SESSION, "code": PYTHON.code });
        if network {
            arguments["network"] = json!(true);
        }
        tokio::time::sleep(REST).await;
        let (document, taken) = client.call("run_code", arguments).await?;
        if document["stdout"] != PYTHON.prints
            || document.get("network").is_some_and(|told| *told != json!([]))
        {
            return Err(format!("unexpected: {document}").into());
        }
        // The first of each kind fill caches.
        if n >= 8 {
            if network { &mut with } else { &mut without }.record(taken)?;
        }
    }
    let block = report.block(UNUSED_TITLE);
    block.line(WITHOUT, without, None);
    block.line(WITH, with, None);
    Ok(())
}

/// What the times of the transfers come to.
fn rates(report: &mut Measurements) {
    for title in [DOWN_TITLE, UP_TITLE] {
        for name in [BARE, OURS, PROXY] {
            if let Some(rate) = rate(report, title, name) {
                report.block(title).fact(name, rate, "MB/s");
            }
        }
    }
}

/// Bytes a microsecond, at the median.
pub(crate) fn rate(report: &Measurements, title: &str, name: &str) -> Option<f64> {
    let median = report.figures(title, name)?.median;
    #[expect(clippy::cast_precision_loss, reason = "millions")]
    Some(TRANSFER as f64 / median as f64)
}

/// A call of a function of the script.
struct Call {
    function: &'static str,
    host: &'static str,
    port: u16,
    argument: u32,
}

/// Makes the call in a run of a session that reaches the server by its name.
async fn run(client: &mut Client, call: &Call) -> Result<Value> {
    let Call { function, host, port, argument } = call;
    let code = format!("{SCRIPT}\nprint(json.dumps({function}('{host}', {port}, {argument})))\n");
    let arguments = json!({
        "language": PYTHON.language, "session_id": SESSION, "code": code,
        "network": { "allowed_domains": [host] },
    });
    let (document, _) = client.call("run_code", arguments).await?;
    let output = document["stdout"].as_str().unwrap_or_default();
    serde_json::from_str(output).map_err(|_| format!("{function}: {document}").into())
}

fn record(times: &mut Times, measured: &Value) -> Result<()> {
    let measured = measured.as_array().ok_or("no times")?;
    for micros in measured {
        let micros = micros.as_f64().ok_or_else(|| format!("{micros} is no time"))?;
        times.record(Duration::from_secs_f64(micros / 1e6))?;
    }
    Ok(())
}

/// The script as a program that stays up.
struct Script {
    child: Child,
    stdin: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Script {
    /// In a container of the same image, in the network of this host.
    async fn bare(image: &str) -> Result<Self> {
        let mut command = Command::new("docker");
        command.args(["run", "--rm", "--interactive", "--network=host", "--entrypoint=python3", image]);
        command.args(["-c", SCRIPT, "serve"]);
        Self::start(command).await
    }

    /// In sandbox-runtime with its defaults, by this host's Python.
    async fn proxied(dir: &Path) -> Result<Self> {
        let srt = Path::new(peers::FOLDER).join("node_modules/.bin/srt");
        if !srt.exists() {
            return Err("the peers are not installed: bench/peers/install, or the word no-peers".into());
        }
        let (settings, script) = (dir.join("srt.json"), dir.join("network.py"));
        let network = json!({ "allowedDomains": ["localhost"], "deniedDomains": [] });
        let files = json!({ "denyRead": [], "allowWrite": [], "denyWrite": [] });
        std::fs::write(&settings, json!({ "network": network, "filesystem": files }).to_string())?;
        std::fs::write(&script, SCRIPT)?;
        let mut command = Command::new(srt);
        command.arg("--settings").arg(settings).arg("python3").arg(script).args(["serve", "proxy"]);
        // What it says of bubblewrap's end.
        command.current_dir(dir).stderr(std::fs::File::create(setup::results()?.join("srt.log"))?);
        Self::start(command).await
    }

    async fn start(mut command: Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // A Ctrl-C must not reach it: it ends when its input does.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let stdin = child.stdin.take().ok_or("no standard input")?;
        let answers = BufReader::new(child.stdout.take().ok_or("no standard output")?).lines();
        let mut script = Self { child, stdin, answers };
        let first = script.answer().await?;
        if first == "ready" { Ok(script) } else { Err(format!("the script began with {first}").into()) }
    }

    async fn call(&mut self, call: &Call) -> Result<Value> {
        let asked = json!([call.function, [call.host, call.port, call.argument]]);
        self.stdin.write_all(format!("{asked}\n").as_bytes()).await?;
        self.answer().await.map_err(|error| format!("{}: {error}", call.function).into())
    }

    async fn answer(&mut self) -> Result<Value> {
        let line = tokio::time::timeout(PATIENCE, self.answers.next_line()).await;
        let line = line.map_err(|_| format!("no answer of the script within {PATIENCE:?}"))??;
        Ok(serde_json::from_str(&line.ok_or("the script ended")?)?)
    }

    /// Closes its input and waits until it has ended.
    async fn end(mut self) -> Result<()> {
        drop(self.stdin);
        let status = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        let status = status.map_err(|_| format!("the script did not end within {PATIENCE:?}"))??;
        if status.success() { Ok(()) } else { Err(format!("the script ended with {status}").into()) }
    }
}
