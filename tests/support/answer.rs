//! The answer of a tool, and what a test expects of it.

use serde_json::Value;

/// A tool's result: its document and its content blocks.
#[derive(Debug, Clone)]
pub(crate) struct Ran {
    /// `structuredContent`.
    pub(crate) document: Value,
    /// `content`.
    pub(crate) content: Vec<Value>,
    /// The text of the first block.
    pub(crate) said: String,
    pub(crate) is_error: bool,
}

impl Ran {
    /// Takes apart a JSON-RPC answer, which must be a result.
    #[track_caller]
    pub(crate) fn of(answer: Value) -> Ran {
        let result = &answer["result"];
        assert!(result.is_object(), "no result: {answer}");
        let document = result["structuredContent"].clone();
        let content = result["content"].as_array().cloned().unwrap_or_default();
        let said = content.first().and_then(|block| block["text"].as_str()).unwrap_or_default().to_owned();
        assert!(!said.is_empty(), "no text: {answer}");
        Ran { document, content, said, is_error: result["isError"].as_bool().unwrap_or(false) }
    }

    #[track_caller]
    pub(crate) fn text(&self, key: &str) -> &str {
        let value = &self.document[key];
        value.as_str().unwrap_or_else(|| panic!("`{key}` is {value} in {}", self.document))
    }

    pub(crate) fn stdout(&self) -> &str {
        self.text("stdout")
    }

    /// The standard output of a command, whose events can end in the middle of a line.
    pub(crate) fn command_stdout(&self) -> String {
        let events = self.document["output"].as_array().expect("the output of a command");
        let stdout = events.iter().filter(|event| event["type"] == "stdout");
        let piece = |event: &Value| {
            let end = if event["eol"] == false { "" } else { "\n" };
            event["data"].as_str().unwrap_or_default().to_owned() + end
        };
        stdout.map(piece).collect()
    }

    pub(crate) fn stderr(&self) -> &str {
        self.text("stderr")
    }

    pub(crate) fn exit_code(&self) -> i64 {
        self.document["exit_code"].as_i64().unwrap_or_else(|| panic!("no exit code: {}", self.document))
    }

    /// Expects exit code 0 and exactly this output.
    #[track_caller]
    pub(crate) fn expect_stdout(self, expected: &str) -> Ran {
        let ran = self.expect_success();
        assert_eq!(ran.stdout(), expected, "{}", ran.document);
        ran
    }

    #[track_caller]
    pub(crate) fn expect_success(self) -> Ran {
        assert!(self.document["success"] == true && !self.is_error, "{}", self.document);
        self
    }

    #[track_caller]
    pub(crate) fn expect_exit(self, code: i64) -> Ran {
        assert_eq!(self.document["exit_code"], code, "{}", self.document);
        assert_eq!(self.document["success"], code == 0, "{}", self.document);
        assert_eq!(self.is_error, code != 0, "{}", self.document);
        self
    }

    /// Expects that this limit ended the run; `None` expects that none did.
    #[track_caller]
    pub(crate) fn expect_limit(self, limit: Option<&str>) -> Ran {
        assert_eq!(self.document["limit"].as_str(), limit, "{}", self.document);
        self
    }

    /// Expects a failure with this code and a sentence.
    #[track_caller]
    pub(crate) fn expect_error(self, code: &str) -> Ran {
        assert!(self.is_error && self.document["success"] == false, "{}", self.document);
        assert_eq!(self.document["error"], code, "{}", self.document);
        let message = self.text("message");
        // An execution's output is a list of events, which must be empty.
        let said = |output: &Value| {
            output.as_str().map_or(*output == Value::Array(vec![]), |text| text.contains(message))
        };
        assert!(message.len() > 10 && said(&self.document["output"]), "{}", self.document);
        self
    }

    /// The names of all files of the session.
    pub(crate) fn files(&self) -> Vec<String> {
        names(&self.document["files"], "name")
    }

    /// The paths of the files that this run made or changed.
    pub(crate) fn artifacts(&self) -> Vec<String> {
        names(&self.document["artifacts"], "path")
    }

    /// The link to a file.
    #[track_caller]
    pub(crate) fn link(&self, name: &str) -> String {
        let files = self.document["files"].as_array().expect("files");
        let file = files.iter().find(|file| file["name"] == name);
        let file = file.unwrap_or_else(|| panic!("no file {name:?}: {}", self.document));
        file["url"].as_str().expect("a link").to_owned()
    }

    /// The files that were not saved, as `path: reason`.
    pub(crate) fn not_saved(&self) -> Vec<String> {
        let all = self.document["not_saved"].as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        all.iter().map(|one| format!("{}: {}", text(&one["path"]), text(&one["reason"]))).collect()
    }
}

fn names(list: &Value, key: &str) -> Vec<String> {
    let list = list.as_array().cloned().unwrap_or_default();
    list.iter().map(|file| file[key].as_str().unwrap_or_default().to_owned()).collect()
}
