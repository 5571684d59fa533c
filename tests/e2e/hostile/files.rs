//! Names of files that attack, one a line: `tests/hostile/files.jsonl`. Each name is uploaded by REST and by
//! MCP, and made by a program; what is kept is listed, downloaded in each way, and found by the next
//! container, under exactly these bytes.

use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use serde::Deserialize;
use serde_json::json;

use super::rows;
use super::watch::{Watch, bytes, expect_none};
use crate::support::{Daemon, Ran};

/// A name, and what becomes of it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    id: String,
    attempt: String,
    /// `\xNN` is one byte.
    name: String,
    /// So often the name comes in a row.
    repeat: Option<usize>,
    /// By REST and by MCP.
    upload: Fate,
    /// By a program; without this key, as by an upload.
    made: Option<Fate>,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
enum Fate {
    /// Under these bytes.
    Kept,
    /// Refused with a sentence.
    Refused,
    /// By REST only: MCP's text cannot have such bytes.
    KeptByRest,
    /// The row has no program make it: none can, or its directories are not there.
    Impossible,
    /// It stays in its container, and the answer names it.
    NotSaved,
}

/// As octal digits, which a shell's `printf` writes as bytes.
fn octal(name: &[u8]) -> String {
    name.iter().map(|byte| format!("\\{byte:03o}")).collect()
}

fn at(session: &str, name: &[u8]) -> String {
    format!(
        "/sessions/{session}/files/{}",
        percent_encode(name, NON_ALPHANUMERIC).to_string().replace("%2F", "/")
    )
}

impl Row {
    fn bytes(&self) -> Vec<u8> {
        bytes(&self.name).repeat(self.repeat.unwrap_or(1))
    }

    async fn attack(&self, d: &Daemon) -> Result<(), String> {
        let name = self.bytes();
        let (by_rest, by_mcp, by_run) =
            (format!("{}-rest", self.id), format!("{}-mcp", self.id), format!("{}-run", self.id));
        let answer = d.request("PUT", &at(&by_rest, &name)).body("content").send().await;
        match (self.upload, answer.status) {
            (Fate::Kept | Fate::KeptByRest, 201) => {
                self.find(d, &by_rest, &name).await.map_err(|why| format!("by REST: {why}"))?;
            }
            (Fate::Refused, 400 | 404 | 405 | 409) => {}
            (_, status) => return Err(format!("by REST: {status} {}", answer.text())),
        }
        if let Ok(text) = std::str::from_utf8(&name) {
            let call = json!({ "conversationId": by_mcp, "filename": text, "content": "Y29udGVudA==" });
            let params = json!({ "name": "upload_file", "arguments": call });
            let answer = d.rpc("tools/call", params).await;
            let refused = answer["error"].is_object() || answer["result"]["isError"] == true;
            match self.upload {
                Fate::Kept if !refused => {
                    self.find(d, &by_mcp, &name).await.map_err(|why| format!("by MCP: {why}"))?;
                }
                Fate::Refused | Fate::KeptByRest if refused => {}
                Fate::Kept | Fate::Refused | Fate::KeptByRest | Fate::Impossible | Fate::NotSaved => {
                    return Err(format!("by MCP: {answer}"));
                }
            }
        }
        let made =
            self.made.unwrap_or(if self.upload == Fate::Refused { Fate::Impossible } else { Fate::Kept });
        if made == Fate::Impossible {
            return Ok(());
        }
        let s = d.session(&by_run);
        let code = format!("f=$(printf '{}x'); printf content > \"./${{f%x}}\"", octal(&name));
        let ran: Ran = s.sh(&code).await;
        let judged = if made == Fate::NotSaved {
            let told = ran.not_saved().len() == 1 && ran.files().is_empty();
            if told { Ok(()) } else { Err(format!("by a program: {}", ran.document)) }
        } else if ran.document["success"] != true {
            Err(format!("by a program: {}", ran.document))
        } else {
            self.find(d, &by_run, &name).await.map_err(|why| format!("by a program: {why}"))
        };
        for id in [&by_rest, &by_mcp, &by_run] {
            d.session(id).tool("close_session").with("delete_files", true).await;
        }
        judged
    }

    /// Looks for it by every way that there is.
    async fn find(&self, d: &Daemon, session: &str, name: &[u8]) -> Result<(), String> {
        let got = d.request("GET", &at(session, name)).send().await;
        if (got.status, &got.body[..]) != (200, b"content") {
            return Err(format!("GET answers {} {}", got.status, got.text()));
        }
        let dispositions = got.headers.get_all("content-disposition").iter().count();
        if dispositions != 1 || got.headers.contains_key("set-cookie") {
            return Err(format!("headers of its own: {:?}", got.headers));
        }
        let listed = d.request("GET", &format!("/sessions/{session}/files")).send().await.json();
        let [one] = &listed["artifacts"].as_array().cloned().unwrap_or_default()[..] else {
            return Err(format!("the list has {listed}"));
        };
        let linked = d.fetch(one["url"].as_str().expect("a link")).await;
        if (linked.status, &linked.body[..]) != (200, b"content") {
            return Err(format!("its link {} answers {} {}", one["url"], linked.status, linked.text()));
        }
        if linked.headers.get_all("content-disposition").iter().count() != 1 {
            return Err(format!("headers of its own: {:?}", linked.headers));
        }
        if let Ok(text) = std::str::from_utf8(name) {
            let read = d.session(session).tool("read_artifact").with("path", text).await;
            if read.document["content"] != "Y29udGVudA==" && !read.document.to_string().contains("content") {
                return Err(format!("read_artifact answers {}", read.document));
            }
        }
        // The next container has the same bytes.
        d.session(session).tool("close_session").await;
        let seen = d
            .session(session)
            .sh("for f in * .*; do [ -f \"$f\" ] && printf %s \"$f\" | od -An -v -to1 | tr -d '\\n '; done")
            .await;
        let expected: String = name.iter().map(|byte| format!("{byte:03o}")).collect();
        if !name.contains(&b'/') && seen.stdout().trim() != expected {
            return Err(format!("the next container has {}, not {expected}", seen.stdout()));
        }
        Ok(())
    }
}

#[tokio::test]
async fn names_of_files_that_attack_are_kept_or_refused() {
    let d = Daemon::start().await;
    let watch = Watch::over(&d).await;
    let rows: Vec<Row> = rows("files.jsonl");
    let mut faults = Vec::new();
    for row in &rows {
        faults.extend(watch.judge((&row.id, &row.attempt), row.attack(&d).await).await);
    }
    assert!(d.log.text().lines().all(|line| line.starts_with('[')), "a name broke a line of the log");
    expect_none(&faults, rows.len());
    watch.end().await;
    d.stop().await;
}
