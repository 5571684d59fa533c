//! What is printed: the program's streams where they belong, and what is to be said about its end.
//!
//! It must never let a name steer the terminal, nor say the same output twice.

use std::io::{self, Write};

use serde_json::Value;

use super::client::Stream;
use crate::printable::printable;

/// What was printed so far.
pub(super) struct Shown {
    json: bool,
    any: bool,
}

impl Shown {
    /// `json`: nothing but the answer is printed.
    pub(super) fn new(json: bool) -> Self {
        Self { json, any: false }
    }

    /// A piece of output as it comes.
    pub(super) fn piece(&mut self, stream: Option<Stream>, text: &str) -> io::Result<()> {
        if self.json {
            return Ok(());
        }
        self.any = true;
        match stream {
            Some(Stream::Stdout) => write(&mut io::stdout().lock(), text),
            Some(Stream::Stderr) | None => write(&mut io::stderr().lock(), text),
        }
    }

    /// The answer: what was not told before, and why the program ended, where that was not its own doing.
    pub(super) fn answer(&mut self, document: &Value) -> io::Result<()> {
        if self.json {
            return write(&mut io::stdout().lock(), &format!("{document:#}\n"));
        }
        let text = |key: &str| document[key].as_str().unwrap_or_default();
        let message = text("message");
        if !self.any {
            write(&mut io::stdout().lock(), text("stdout"))?;
            // The message stands at the end of it as well.
            write(&mut io::stderr().lock(), text("stderr").strip_suffix(message).unwrap_or(text("stderr")))?;
        }
        if !message.is_empty() {
            write(&mut io::stderr().lock(), &format!("paddock: {}\n", printable(message)))?;
        }
        for lost in document["not_saved"].as_array().into_iter().flatten() {
            let (path, reason) = (lost["path"].as_str(), lost["reason"].as_str());
            let line = format!(
                "paddock: {} is not saved: {}\n",
                printable(path.unwrap_or("?")),
                reason.unwrap_or("?")
            );
            write(&mut io::stderr().lock(), &line)?;
        }
        Ok(())
    }
}

fn write(to: &mut dyn Write, text: &str) -> io::Result<()> {
    to.write_all(text.as_bytes())?;
    to.flush()
}
