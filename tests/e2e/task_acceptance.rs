//! What users of tasks do with them: data and charts, data of the web, pictures, ten at once, and a coding
//! agent as the client of another; and that the key is nowhere in the container.
//!
//! The agent is the real Claude Code in its image, the model answers by a script, and what is downloaded
//! comes from a network namespace of the test.

use std::path::Path;
use std::process::Stdio;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::far::program::entry;
use crate::far::{FAR, Far};
use crate::model::Model;
use crate::support::{Daemon, PATIENCE, Ran, TOKEN, within};
use crate::task_world::{KEY, bash, daemon, ended, events, expect_status, models, task, write};

/// A file of a session, as bytes.
async fn content(d: &Daemon, session: &str, path: &str) -> Vec<u8> {
    let got = d.tool("download_files", json!({ "session_id": session, "paths": [path] })).await;
    let content = got.document["files"][0]["content"].as_str().unwrap_or_else(|| panic!("{}", got.document));
    BASE64_STANDARD.decode(content).expect("base64")
}

fn text(path: &str, text: &str) -> Value {
    json!({ "path": path, "text": text })
}

#[tokio::test]
async fn a_table_becomes_a_summary_and_a_chart() {
    let mut model = Model::start().await;
    let d = daemon(&model).start().await;
    let program = "import pandas as pd, matplotlib.pyplot as plt
sales = pd.read_csv('sales_data.csv')
by = sales.groupby('product').units.sum().sort_values()
by.plot.barh(); plt.tight_layout(); plt.savefig('sales_chart.png')
open('summary.txt', 'w').write(f'best: {by.index[-1]} with {by.iloc[-1]}')
";
    model
        .says_to_agent(json!([
            { "tools": [{ "name": "Read", "input": { "file_path": "/workspace/sales_data.csv" } }] },
            write("/workspace/analyze.py", program),
            bash("python analyze.py"),
            { "text": "Lamps sold best." },
        ]))
        .await;
    let sales = text("sales_data.csv", "product,units\nlamp,5\nshoe,3\nlamp,4\n");
    let ran = task(&d, "s", json!({ "files": [sales] })).await;
    expect_status(&ran, "completed");
    assert_eq!(ran.document["files_created"], json!(["analyze.py", "sales_chart.png", "summary.txt"]));
    assert_eq!(content(&d, "s", "summary.txt").await, b"best: lamp with 9");
    assert!(content(&d, "s", "sales_chart.png").await.starts_with(b"\x89PNG"));
    let link = ran.document["artifacts"][1]["download_url"].as_str().expect("a link");
    d.fetch(link).await.expect(200);
    d.stop().await;
}

#[tokio::test]
async fn data_of_the_web_is_downloaded_and_private_addresses_are_not_reached() {
    let (far, mut model) = (Far::start(&[]).await, Model::start().await);
    // Tasks have their own network in mode `restricted`: public addresses, ports 80 and 443.
    let setup = models(far.daemon(), &model).set("egress.mode", "restricted");
    let d = setup.set("runners.claude-code", "paddock-runner-claude-code").start().await;
    let clean = format!(
        "curl -sS --fail http://{FAR}/hello -o raw.txt && tr a-z A-Z < raw.txt > clean_data.csv; \
         for url in http://localhost:8080/internal-api http://192.168.1.1/admin http://{FAR}:7/; do \
         curl -sS --fail -m 5 $url > /dev/null 2>&1 && echo reached $url >> reached.txt; done; true"
    );
    model.says_to_agent(json!([bash(&clean), { "text": "clean" }])).await;
    let ran = task(&d, "s", json!({})).await;
    expect_status(&ran, "completed");
    assert_eq!(ran.document["files_created"], json!(["clean_data.csv", "raw.txt"]), "{}", ran.document);
    assert_eq!(content(&d, "s", "clean_data.csv").await, b"HELLO FROM FAR\n");
    assert_eq!(entry(&ran, FAR)["allowed"], true, "{}", ran.document);
    assert_eq!(entry(&ran, "192.168.1.1")["allowed"], false, "{}", ran.document);
    // Level 1 has no network but its model's, whatever runs.
    let before = far.packets();
    let fetch =
        json!({ "name": "WebFetch", "input": { "url": format!("http://{FAR}/hello"), "prompt": "x" } });
    model.says_to_agent(json!([{ "tools": [fetch] }, { "text": "no" }])).await;
    let ran = task(&d, "s", json!({ "yolo_level": 1, "resume": false })).await;
    assert_eq!((ran.document["denied"].as_array().map(Vec::len), far.packets()), (Some(1), before));
    d.stop().await;
}

#[tokio::test]
async fn pictures_are_converted_with_a_package_that_is_installed_on_the_way() {
    let mut model = Model::start().await;
    let d = daemon(&model).start().await;
    // A wheel is a zip file with some names.
    let pack = "import zipfile
info = 'resizer-1.0.dist-info/'
with zipfile.ZipFile('resizer-1.0-py3-none-any.whl', 'w') as wheel:
    wheel.writestr('resizer.py', 'def size(image): return image.convert(\"RGB\").resize((800, 600))')
    wheel.writestr(info + 'METADATA', 'Metadata-Version: 2.1\\nName: resizer\\nVersion: 1.0\\n')
    wheel.writestr(info + 'WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    wheel.writestr(info + 'RECORD', '')
";
    let install = "python pack.py && pip install --no-index ./resizer-1.0-py3-none-any.whl && \
                   rm pack.py *.whl";
    let program = "import glob, resizer
from PIL import Image
for name in glob.glob('img*'):
    resizer.size(Image.open(name)).save(name.rsplit('.')[0] + '.webp')
for name in sorted(glob.glob('*.webp')): print(name, Image.open(name).size, Image.open(name).format)
";
    model
        .says_to_agent(json!([
            bash("convert -size 40x30 xc:red img1.jpg && convert -size 10x90 xc:blue img2.png"),
            write("/workspace/pack.py", pack),
            bash(install),
            write("/workspace/resize.py", program),
            bash("python resize.py > sizes.txt"),
            { "text": "converted" },
        ]))
        .await;
    let ran = task(&d, "s", json!({})).await;
    expect_status(&ran, "completed");
    let made = ["img1.jpg", "img1.webp", "img2.png", "img2.webp", "resize.py", "sizes.txt"];
    assert_eq!(ran.document["files_created"], json!(made), "{}", ran.document);
    let sizes = String::from_utf8(content(&d, "s", "sizes.txt").await).expect("text");
    assert_eq!(sizes, "img1.webp (800, 600) WEBP\nimg2.webp (800, 600) WEBP\n");
    d.stop().await;
}

#[tokio::test]
async fn ten_tasks_run_at_once() {
    let model = Model::start().await;
    let d = daemon(&model).start().await;
    // Without a script the model says `done` at once; what each agent is told is its own.
    let tasks = (0..10).map(|n| {
        let more = json!({ "task_description": format!("task {n}"), "wait_for_completion": false,
                           "files": [text("own.txt", &n.to_string())] });
        let d = &d;
        async move { task(d, &format!("s{n}"), more).await }
    });
    let begun: Vec<Ran> = join_all(tasks).await;
    for (n, ran) in begun.iter().enumerate() {
        let status = ended(&d, &format!("s{n}"), ran.text("execution_id")).await;
        expect_status(&status, "completed");
        assert_eq!(content(&d, &format!("s{n}"), "own.txt").await, n.to_string().as_bytes());
    }
    d.stop().await;
}

#[tokio::test]
async fn a_coding_agent_has_another_do_a_task() {
    let mut model = Model::start().await;
    let d = daemon(&model).start().await;
    let home = tempfile::tempdir().expect("a folder");
    let servers = json!({ "mcpServers": { "paddock": { "type": "http", "url": format!("{}/mcp", d.url),
        "headers": { "Authorization": format!("Bearer {TOKEN}") } } } });
    let config = home.path().join("mcp.json");
    std::fs::write(&config, servers.to_string()).expect("a file");
    let asked = json!({ "task_description": "write it", "session_id": "inner" });
    model
        .says_to_agent(json!([
            { "tools": [{ "name": "mcp__paddock__execute_task", "input": asked }] },
            write("/workspace/inner.txt", "by the inner agent"),
            { "text": "The inner agent is done." },
            { "text": "The outer agent has it." },
        ]))
        .await;
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/clients/node_modules/.bin/claude");
    let run = Command::new(program)
        .args(["-p", "Have it done", "--output-format", "json", "--strict-mcp-config", "--mcp-config"])
        .arg(Path::new(&config))
        .args(["--allowedTools", "mcp__paddock__execute_task"])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").expect("PATH"))
        .env("HOME", home.path())
        .env("ANTHROPIC_BASE_URL", model.url())
        .env("ANTHROPIC_API_KEY", "of the outer agent")
        .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
        .current_dir(home.path())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let done = within(2 * PATIENCE, "Claude Code", run).await.expect("Claude Code: tests/clients/install");
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(said.contains("The outer agent has it."), "{said}{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(content(&d, "inner", "inner.txt").await, b"by the inner agent");
    let told = model.seen().await.last().expect("a request")["body"]["messages"].to_string();
    assert!(told.contains("The inner agent is done."), "{told}");
    d.stop().await;
}

/// Looks at all that a program of the container can read: environments, command lines, files, and the memory
/// of every process.
const SEARCH: &str = r#"import os, re
pattern = re.compile(rb"sk-e2e-task-[0-9a-f]{10}")
found, looked = [], 0
def look(name, data):
    global looked
    looked += len(data)
    if pattern.search(data): found.append(name)
for pid in filter(str.isdigit, os.listdir("/proc")):
    for name in ("environ", "cmdline", "maps"):
        try: look(f"{pid}/{name}", open(f"/proc/{pid}/{name}", "rb").read())
        except OSError: pass
    try:
        with open(f"/proc/{pid}/mem", "rb", 0) as memory:
            for line in open(f"/proc/{pid}/maps"):
                low, high = (int(part, 16) for part in line.split()[0].split("-"))
                if line.split()[1][0] != "r" or "[v" in line or high - low > 1 << 28: continue
                try: memory.seek(low); look(f"{pid}/mem", memory.read(high - low))
                except (OSError, ValueError, OverflowError): pass
    except OSError: pass
for top in ("/data", "/home", "/tmp", "/etc", "/run", "/dev/shm"):
    for folder, _, names in os.walk(top):
        for name in names:
            try: look(f"{folder}/{name}", open(f"{folder}/{name}", "rb").read(1 << 24))
            except OSError: pass
print("looked at", looked > 50 << 20, "found", found)
"#;

#[tokio::test]
async fn the_key_is_nowhere_in_the_container_nor_in_what_comes_out_of_it() {
    let mut model = Model::start().await;
    let d = daemon(&model).start().await;
    // Level 4 and 3: a program beside the agent reads the memory of its agent, too.
    for level in [4, 3] {
        model.says_to_agent(json!([bash("python3 search.py | tee found.txt"), { "text": "looked" }])).await;
        let more = json!({ "files": [text("search.py", SEARCH)], "yolo_level": level, "resume": false });
        let ran = task(&d, "s", more).await;
        expect_status(&ran, "completed");
        let found = String::from_utf8(content(&d, "s", "found.txt").await).expect("text");
        assert_eq!(found, "looked at True found []\n", "level {level}");
        let id = ran.text("execution_id").to_owned();
        let transcript = d.fetch(ran.text("log_url")).await.expect(200).text();
        let diff = d.fetch(ran.text("diff_url")).await.expect(200).text();
        let metrics = d.request("GET", "/metrics").send().await.expect(200).text();
        let status = d.request("GET", "/status").send().await.expect(200).text();
        let told = json!(events(&d, &id).await).to_string();
        let listed = d.tool("list_artifacts", json!({ "session_id": "s" })).await.document.to_string();
        for (name, text) in [
            ("answer", ran.document.to_string()),
            ("transcript", transcript),
            ("diff", diff),
            ("metrics", metrics),
            ("status", status),
            ("events", told),
            ("files", listed),
            ("log", d.log.text()),
        ] {
            assert!(!text.contains(KEY), "{name}: {text}");
        }
    }
    let seen = model.seen().await;
    assert!(seen.iter().all(|request| request["headers"]["x-api-key"] == KEY), "it is with the model");
    let leaks = seen.iter().filter(|request| request["body"].to_string().contains(KEY)).count();
    assert_eq!(leaks, 0);
    d.stop().await;
}
