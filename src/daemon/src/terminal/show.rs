//! Prints the program's streams, each where it belongs, and why the program ended.
//!
//! It must never let a name control the terminal, nor print the same output twice.

use std::io::{self, Write};

use serde_json::Value;

use super::client::ProgramStream;
use crate::printable::printable;

/// Prints the output of one run.
pub(super) struct OutputPrinter {
    json: bool,
    any: bool,
}

impl OutputPrinter {
    /// With `json` only the answer is printed.
    pub(super) fn new(json: bool) -> Self {
        Self { json, any: false }
    }

    /// Prints a piece of output as it comes.
    pub(super) fn piece(&mut self, stream: Option<ProgramStream>, text: &str) -> io::Result<()> {
        if self.json {
            return Ok(());
        }
        self.any = true;
        match stream {
            Some(ProgramStream::Stdout) => write(&mut io::stdout().lock(), text),
            Some(ProgramStream::Stderr) | None => write(&mut io::stderr().lock(), text),
        }
    }

    /// Prints the answer: output that did not come as a piece, and why the program ended if it did not end by
    /// itself.
    pub(super) fn answer(&mut self, document: &Value) -> io::Result<()> {
        if self.json {
            return write(&mut io::stdout().lock(), &format!("{document:#}\n"));
        }
        let text = |key: &str| document[key].as_str().unwrap_or_default();
        let message = text("message");
        if !self.any {
            write(&mut io::stdout().lock(), text("stdout"))?;
            // The message is also at the end of standard error.
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
