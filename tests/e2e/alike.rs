//! Every program has the same result whether the image's warm part or its entrypoint runs it: output, exit
//! code, and files. The programs are in `warm/`, one for each behaviour; a first line `# stdin: …` is a
//! program's input, with the escapes of JSON.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Daemon, Session};

/// The results that must be equal.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    exit_code: i64,
    stdout: String,
    stderr: String,
    error: Value,
    files: BTreeMap<String, Vec<u8>>,
}

/// The programs of a language: name and source.
fn programs(language: &str, ending: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/e2e/warm").join(language);
    let mut programs: Vec<_> = std::fs::read_dir(&folder)
        .expect("a folder of programs")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == ending))
        .map(|path| {
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            (name, std::fs::read_to_string(path).expect("a program"))
        })
        .collect();
    programs.sort();
    programs
}

/// Replaces numbers: the path of the code contains a different one in every run.
fn without_numbers(text: &str) -> String {
    let mut parts = text.split("/tmp/run.");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str("/tmp/run.N");
        out.push_str(part.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.'));
    }
    out
}

async fn outcome(d: &Daemon, s: &Session<'_>, language: &str, source: &str) -> Outcome {
    let stdin = source.lines().next().and_then(|line| line.split_once("stdin: ")).map(|(_, text)| text);
    let mut call = s.run(language, source).timeout(60.0);
    if let Some(stdin) = stdin {
        call = call.stdin(&serde_json::from_str::<String>(&format!("\"{stdin}\"")).expect("a JSON string"));
    }
    let ran = call.await;
    let mut files = BTreeMap::new();
    for name in ran.artifacts() {
        let name = name.trim_start_matches("/mnt/data/").to_owned();
        let body = d.fetch(&ran.link(&name)).await.expect(200).body;
        // Compiled Python begins with the time of its source (PEP 552).
        let since = if name.ends_with(".pyc") { 16.min(body.len()) } else { 0 };
        files.insert(name, body[since..].to_vec());
    }
    Outcome {
        exit_code: ran.exit_code(),
        stdout: without_numbers(ran.stdout()),
        stderr: without_numbers(ran.stderr()),
        error: ran.document["error"].clone(),
        files,
    }
}

/// What the line of the log of each run has.
const ENDED: &str = " INFO ended ";

async fn uses_its_snapshot(d: &Daemon, language: &str) -> bool {
    let line = format!("paddock_snapshot_in_use{{language=\"{language}\"}} 1");
    d.request("GET", "/metrics").send().await.expect(200).text().lines().any(|one| one == line)
}

async fn come_out_alike(language: &str, ending: &str, least: usize, is_restored: bool) {
    let mut warm = Daemon::with().set("agent.snapshots", is_restored).start().await;
    if is_restored {
        warm.snapshot_in_use().await;
        // The next daemon gives out the same UIDs as the other one.
        let store = warm.store.clone();
        warm.stop().await;
        warm = Daemon::with().store(&store).set("agent.snapshots", true).start().await;
        // It compares the snapshot with its digest first, and its containers import meanwhile.
        let begun = Instant::now();
        while !uses_its_snapshot(&warm, language).await {
            assert!(begun.elapsed() < Duration::from_secs(60), "{}", warm.log.text());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    let cold = Daemon::with().set("agent.warm_parts", false).start().await;
    let (w, c) = (warm.session("s"), cold.session("s"));
    tokio::join!(async { w.run(language, "1").await }, async { c.run(language, "1").await });
    let mark = warm.log.mark_behind(0, " serving ").await;
    let line = warm.log.line_since(mark, &format!("INFO warm language={language}")).await;
    assert!(line.contains(&format!("restored={is_restored}")), "{line}");
    let mut mark = warm.log.mark_behind(mark, ENDED).await;
    let programs = programs(language, ending);
    assert!(programs.len() >= least, "{} programs", programs.len());
    let mut different = Vec::new();
    for (name, source) in &programs {
        let mut attempts = 5;
        loop {
            let warm_before = warm.log.count("warm=true");
            let (one, other) =
                tokio::join!(outcome(&warm, &w, language, source), outcome(&cold, &c, language, source));
            // The next run must find /data empty.
            let empty = "rm -rf /data/* /data/.[!.]*";
            tokio::join!(async { w.sh(empty).await }, async { c.sh(empty).await });
            // The answer to a call can come before its line of the log.
            for _ in 0..2 {
                mark = warm.log.mark_behind(mark, ENDED).await;
            }
            // On an overloaded machine the next warm process may not be ready in time: then this compared
            // nothing.
            attempts -= 1;
            if warm.log.count("warm=true") == warm_before && attempts > 0 {
                continue;
            }
            assert_eq!(warm.log.count("warm=true"), warm_before + 1, "{name} was not run by the warm part");
            if one != other {
                different.push(format!("{name}, warm: {one:#?}\n{name}, cold: {other:#?}"));
            }
            break;
        }
    }
    assert!(
        different.is_empty(),
        "{} of {} differ:\n{}",
        different.len(),
        programs.len(),
        different.join("\n\n")
    );
    assert_eq!(cold.log.count("warm=true"), 0);
    warm.stop().await;
    cold.stop().await;
}

#[tokio::test]
async fn python_programs() {
    come_out_alike("python", "py", 60, false).await;
}

#[tokio::test]
async fn python_programs_in_a_restored_part() {
    come_out_alike("python", "py", 60, true).await;
}

#[tokio::test]
async fn typescript_programs() {
    come_out_alike("typescript", "ts", 75, false).await;
}
