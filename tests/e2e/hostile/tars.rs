//! Archives that attack, one a line: `tests/hostile/tars.jsonl` has the entries of each, and what the daemon
//! must answer to it. One that is refused changes nothing.

use serde::Deserialize;

use super::rows;
use super::watch::{Watch, bytes, expect_none};
use crate::raw::{TAR, get, put};
use crate::support::Daemon;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    id: String,
    attempt: String,
    entries: Vec<Entry>,
    /// Blocks of zeros behind the last entry; two end an archive.
    #[serde(default = "two")]
    zeros: usize,
    /// What follows the zeros.
    #[serde(default)]
    garbage: String,
    status: u16,
    /// The code of the refusal.
    error: Option<String>,
    /// Files that the answer counts, and other entries.
    files: Option<u64>,
    skipped: Option<u64>,
    /// A file of the session afterwards, and what is in it.
    then: Option<(String, String)>,
}

fn two() -> usize {
    2
}

/// A header, and its content.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// `\xNN` is one byte.
    name: String,
    #[serde(default)]
    prefix: String,
    /// The byte that says what it is.
    #[serde(default = "regular")]
    kind: String,
    #[serde(default)]
    body: String,
    #[serde(default)]
    link: String,
    #[serde(default = "usual_mode")]
    mode: String,
    /// In the header, in place of the length of `body`: octal digits, or bytes.
    size: Option<String>,
    /// A wrong sum.
    #[serde(default)]
    damaged: bool,
    /// GNU's magic, in place of POSIX's.
    #[serde(default)]
    gnu: bool,
    times: Option<usize>,
}

fn regular() -> String {
    "0".to_owned()
}

fn usual_mode() -> String {
    "0000644".to_owned()
}

fn set(block: &mut [u8], at: usize, most: usize, value: &[u8]) {
    let length = value.len().min(most);
    block[at..at + length].copy_from_slice(&value[..length]);
}

impl Entry {
    fn bytes(&self) -> Vec<u8> {
        let body = bytes(&self.body);
        let mut block = vec![0; 512];
        set(&mut block, 0, 100, &bytes(&self.name));
        set(&mut block, 100, 8, self.mode.as_bytes());
        let size = self
            .size
            .as_ref()
            .map_or_else(|| format!("{:011o}", body.len()).into_bytes(), |size| bytes(size));
        set(&mut block, 124, 12, &size);
        set(&mut block, 136, 12, b"00000000012");
        set(&mut block, 156, 1, &bytes(&self.kind));
        set(&mut block, 157, 100, &bytes(&self.link));
        set(&mut block, 257, 8, if self.gnu { b"ustar  \0" } else { b"ustar\x0000" });
        set(&mut block, 345, 155, &bytes(&self.prefix));
        block[148..156].copy_from_slice(b"        ");
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        set(&mut block, 148, 8, format!("{:06o}\0 ", sum + u32::from(self.damaged)).as_bytes());
        block.extend(body);
        block.resize(block.len().next_multiple_of(512), 0);
        block.repeat(self.times.unwrap_or(1))
    }
}

impl Row {
    async fn attack(&self, d: &Daemon) -> Result<(), String> {
        let id = self.id.as_str();
        put(d, id, "old", "old").await.expect(201);
        let mut archive: Vec<u8> = self.entries.iter().flat_map(Entry::bytes).collect();
        archive.resize(archive.len() + 512 * self.zeros, 0);
        archive.extend(bytes(&self.garbage));
        let path = format!("/sessions/{id}/files");
        let answer = d.request("PUT", &path).set("content-type", TAR).body(archive).send().await;
        let said = answer.json();
        let listed = d.request("GET", &path).send().await.json();
        let checks = [
            (answer.status != self.status, "another status"),
            (self.error.as_ref().is_some_and(|code| said["error"] != *code), "another refusal"),
            (self.files.is_some_and(|count| said["files"] != count), "another number of files"),
            (self.skipped.is_some_and(|count| said["skipped"] != count), "another number of others"),
            (self.status != 200 && listed["total"] != 1, "it was refused, and changed something"),
            (get(d, id, "old").await.text() != "old" && self.status != 200, "another content"),
        ];
        if let Some((_, what)) = checks.into_iter().find(|(wrong, _)| *wrong) {
            return Err(format!("{what}: {} {said} {listed}", answer.status));
        }
        if let Some((name, content)) = &self.then {
            let got = get(d, id, name).await;
            if (got.status, got.text()) != (200, content.clone()) {
                return Err(format!("{name} afterwards: {} {}", got.status, got.text()));
            }
        }
        d.session(id).tool("close_session").with("delete_files", true).await;
        Ok(())
    }
}

#[tokio::test]
async fn archives_that_attack_are_unpacked_completely_or_not_at_all() {
    let d = Daemon::start().await;
    let watch = Watch::over(&d).await;
    let rows: Vec<Row> = rows("tars.jsonl");
    let mut faults = Vec::new();
    for row in &rows {
        faults.extend(watch.judge((&row.id, &row.attempt), row.attack(&d).await).await);
    }
    expect_none(&faults, rows.len());
    watch.end().await;
    d.stop().await;
}
