//! Reads the tokens of an answer as it passes: one JSON text, or a stream of events that have one each. Pure.
//!
//! ```text
//!  bytes ─► lines of a stream ─► data ─► scan ─► usage, model, bytes that the model wrote ─► tokens
//! ```
//!
//! It must never change or hold back a byte, keep more than [`super::scan`] does, nor count less than was
//! seen: while the model's own count of its output is not there, the bytes that it wrote are counted.

use serde::Deserialize;

use super::dollars::Tokens;
use super::route::Form;
use super::scan::{Scanner, Slot};

/// Bytes of text in one token, where tokens are estimated: few texts have less.
pub(super) const BYTES_IN_A_TOKEN: u64 = 2;

/// The most tokens of one kind in one answer, so that no count of a broken server fills a counter.
const MOST: u64 = 1_000_000_000;

/// The longest name of a model, in bytes.
const LONGEST_NAME: usize = 256;

/// Where in a stream of events the next byte is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// At the beginning of a line, after so many bytes of `data:`.
    Beginning(usize),
    /// In the data of an event.
    Data,
    /// In any other line.
    Other,
}

const DATA: &[u8] = b"data:";

/// Meters one answer.
#[derive(Debug)]
pub(super) struct Meter {
    form: Form,
    /// `None` where the answer is one JSON text.
    place: Option<Place>,
    scanner: Scanner,
    /// What the model says of it; `None` until it says anything.
    said: Option<Tokens>,
    /// Whether it has said how much it wrote in all.
    is_whole: bool,
    model: Option<String>,
    /// Bytes of the request.
    asked: u64,
}

impl Meter {
    /// Of an answer in this form, to a request of so many bytes.
    pub(super) fn new(form: Form, is_stream: bool, asked: u64) -> Self {
        Self {
            form,
            place: is_stream.then_some(Place::Beginning(0)),
            scanner: Scanner::default(),
            said: None,
            is_whole: false,
            model: None,
            asked,
        }
    }

    /// Reads the next bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        for byte in bytes.iter().copied() {
            match self.place {
                None => self.scan(byte),
                Some(Place::Beginning(at)) => self.begin_line(at, byte),
                Some(Place::Data | Place::Other) if byte == b'\n' => self.place = Some(Place::Beginning(0)),
                Some(Place::Data) => self.scan(byte),
                Some(Place::Other) => {}
            }
        }
    }

    fn begin_line(&mut self, at: usize, byte: u8) {
        let next = match (at, byte) {
            (0, b'\r') => return,
            (0, b'\n') => {
                self.scanner.restart(); // the event has ended
                return;
            }
            (_, b'\n') => Place::Beginning(0),
            _ if DATA.get(at) != Some(&byte) => Place::Other,
            _ if at + 1 == DATA.len() => Place::Data,
            _ => Place::Beginning(at + 1),
        };
        self.place = Some(next);
    }

    fn scan(&mut self, byte: u8) {
        match self.scanner.push(byte) {
            Some((Slot::Model, name)) => {
                let name: Option<String> = serde_json::from_slice(&name).ok();
                self.model = name.filter(|name| name.len() <= LONGEST_NAME).or(self.model.take());
            }
            Some((slot @ (Slot::Usage | Slot::InnerUsage), usage)) => {
                let Some(tokens) = Usage::read(&usage).and_then(|usage| usage.tokens(self.form)) else {
                    return;
                };
                let said = self.said.get_or_insert_default();
                said.input = said.input.max(tokens.input);
                said.output = said.output.max(tokens.output);
                said.cache_read = said.cache_read.max(tokens.cache_read);
                said.cache_write = said.cache_write.max(tokens.cache_write);
                self.is_whole |= self.place.is_none() || self.form.is_whole_at(slot);
            }
            None => {}
        }
    }

    /// The tokens so far. What the model has not said is estimated from the bytes of both sides.
    pub(super) fn tokens(&self) -> Tokens {
        let written = self.scanner.written().div_ceil(BYTES_IN_A_TOKEN).min(MOST);
        match self.said {
            Some(said) if self.is_whole => said,
            Some(said) => Tokens { output: said.output.max(written), ..said },
            None => Tokens { input: estimate(self.asked), output: written, ..Tokens::default() },
        }
    }

    /// Whether the model has said all.
    pub(super) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// The name of the model that answers, as far as it is known.
    pub(super) fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }
}

/// The tokens of a request of so many bytes.
pub(super) fn estimate(bytes: u64) -> u64 {
    bytes.div_ceil(BYTES_IN_A_TOKEN).min(MOST)
}

/// A `usage`, as all forms have it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Usage {
    input_tokens: Option<u64>,
    prompt_tokens: Option<u64>,
    output_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    input_tokens_details: Option<Details>,
    prompt_tokens_details: Option<Details>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Details {
    cached_tokens: Option<u64>,
}

impl Usage {
    fn read(text: &[u8]) -> Option<Self> {
        serde_json::from_slice::<Option<Self>>(text).ok().flatten()
    }

    /// `None` if it says nothing.
    fn tokens(&self, form: Form) -> Option<Tokens> {
        let bounded = |count: Option<u64>| count.unwrap_or(0).min(MOST);
        let (input, output) =
            (self.input_tokens.or(self.prompt_tokens), self.output_tokens.or(self.completion_tokens));
        input.or(output)?;
        let tokens = Tokens { input: bounded(input), output: bounded(output), ..Tokens::default() };
        Some(match form {
            Form::Messages => Tokens {
                cache_read: bounded(self.cache_read_input_tokens),
                cache_write: bounded(self.cache_creation_input_tokens),
                ..tokens
            },
            // OpenAI counts what it read from its cache in the input too.
            Form::Completions | Form::Responses => {
                let details = self.input_tokens_details.as_ref().or(self.prompt_tokens_details.as_ref());
                let cached = bounded(details.and_then(|details| details.cached_tokens)).min(tokens.input);
                Tokens { input: tokens.input - cached, cache_read: cached, ..tokens }
            }
        })
    }
}

#[cfg(test)]
#[path = "meter_tests.rs"]
mod tests;
