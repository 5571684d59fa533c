//! Calls of tools, built step by step: `session.python("…").timeout(2.0).await`.

use std::pin::Pin;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value, json};

use super::answer::Ran;
use super::daemon::Daemon;
use super::http::Request;

/// A call, which is sent when it is awaited.
pub(crate) struct Call<'d> {
    daemon: &'d Daemon,
    tool: &'static str,
    arguments: Map<String, Value>,
    token: Option<String>,
}

impl<'d> Call<'d> {
    pub(crate) fn new(daemon: &'d Daemon, tool: &'static str, arguments: Map<String, Value>) -> Call<'d> {
        Call { daemon, tool, arguments, token: None }
    }

    /// Adds an argument.
    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Call<'d> {
        self.arguments.insert(name.to_owned(), value.into());
        self
    }

    pub(crate) fn timeout(self, seconds: f64) -> Call<'d> {
        self.with("timeout_seconds", seconds)
    }

    pub(crate) fn stdin(self, text: &str) -> Call<'d> {
        self.with("stdin", text)
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Call<'d> {
        let map = self.arguments.entry("environment").or_insert_with(|| json!({}));
        map[name] = json!(value);
        self
    }

    /// Adds a file that exists when the program starts.
    pub(crate) fn file(mut self, path: &str, content: &[u8]) -> Call<'d> {
        let files = self.arguments.entry("files").or_insert_with(|| json!([]));
        let file = json!({ "path": path, "content": BASE64_STANDARD.encode(content) });
        files.as_array_mut().expect("an array").push(file);
        self
    }

    /// Sends it with another token.
    pub(crate) fn bearer(mut self, token: &str) -> Call<'d> {
        self.token = Some(token.to_owned());
        self
    }

    /// The raw JSON-RPC answer.
    pub(crate) async fn answer(self) -> Value {
        self.request().send().await.json()
    }

    /// The same; `None` if the daemon stopped before it answered.
    pub(crate) async fn try_answer(self) -> Option<Value> {
        Some(self.request().try_send().await?.json())
    }

    fn request(self) -> Request {
        let params = json!({ "name": self.tool, "arguments": self.arguments });
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let mut request = self.daemon.request("POST", "/mcp").set("accept", "application/json");
        if let Some(token) = &self.token {
            request = request.bearer(token);
        }
        request.json(&call)
    }
}

impl<'d> IntoFuture for Call<'d> {
    type Output = Ran;
    type IntoFuture = Pin<Box<dyn Future<Output = Ran> + 'd>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { Ran::of(self.answer().await) })
    }
}

/// One conversation with a daemon.
#[derive(Clone)]
pub(crate) struct Session<'d> {
    daemon: &'d Daemon,
    id: String,
}

impl<'d> Session<'d> {
    pub(crate) fn new(daemon: &'d Daemon, id: &str) -> Session<'d> {
        Session { daemon, id: id.to_owned() }
    }

    pub(crate) fn run(&self, language: &str, code: &str) -> Call<'d> {
        self.daemon.run(language, code).with("conversationId", self.id.as_str())
    }

    pub(crate) fn python(&self, code: &str) -> Call<'d> {
        self.run("python", code)
    }

    pub(crate) fn typescript(&self, code: &str) -> Call<'d> {
        self.run("typescript", code)
    }

    pub(crate) fn sh(&self, code: &str) -> Call<'d> {
        self.run("sh", code)
    }

    /// A call of a tool that takes this session's id.
    pub(crate) fn tool(&self, tool: &'static str) -> Call<'d> {
        let arguments = Map::from_iter([("session_id".to_owned(), json!(self.id))]);
        Call::new(self.daemon, tool, arguments)
    }

    /// An upload in the form that workflows use.
    pub(crate) fn upload(&self, filename: &str, content: &[u8]) -> Call<'d> {
        let arguments = Map::from_iter([
            ("conversationId".to_owned(), json!(self.id)),
            ("filename".to_owned(), json!(filename)),
            ("content".to_owned(), json!(BASE64_STANDARD.encode(content))),
        ]);
        Call::new(self.daemon, "upload_file", arguments)
    }
}
