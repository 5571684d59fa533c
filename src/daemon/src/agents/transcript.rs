//! A task's output, piece by piece, as what happened so far.
//!
//! It must never hold more than one line of bounded length, a bounded list of what was denied, and the last
//! words.

use paddock_proto::OutputStream;
use serde::Serialize;

use super::event::{AgentEvent, TaskResult};
use super::{CLAUDE_CODE, OPENCODE, claude_code, opencode, other};

/// Bytes of a line that is read; a longer one is left out.
const LONGEST: usize = 4 << 20;
/// Denials that are kept.
const DENIALS: usize = 100;
/// Bytes of output that is no line of the agent's stream, the last of it.
const STRAY: usize = 4096;

/// A tool that was denied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Denial {
    /// The tool's name.
    pub tool: String,
    /// What the agent wanted to do with it.
    pub what: String,
}

/// What reads the lines of an agent.
#[derive(Debug)]
enum LineReader {
    ClaudeCode(claude_code::Stream),
    Opencode(opencode::Stream),
    Other(other::Stream),
}

impl LineReader {
    fn read(&mut self, line: &[u8]) -> Option<Vec<AgentEvent>> {
        match self {
            Self::ClaudeCode(stream) => stream.read(line),
            Self::Opencode(stream) => stream.read(line),
            Self::Other(stream) => stream.read(line),
        }
    }
}

/// See the module documentation.
#[derive(Debug)]
pub struct Transcript {
    reader: LineReader,
    /// The line of standard output that has not ended.
    line: Vec<u8>,
    is_too_long: bool,
    denied: Vec<Denial>,
    doing: Option<String>,
    message: Option<String>,
    result: Option<TaskResult>,
    stray: Vec<u8>,
}

impl Transcript {
    /// Of a task of the agent of this name, from its beginning.
    pub fn of(agent: &str) -> Self {
        let reader = match agent {
            CLAUDE_CODE => LineReader::ClaudeCode(claude_code::Stream::default()),
            OPENCODE => LineReader::Opencode(opencode::Stream::default()),
            _ => LineReader::Other(other::Stream),
        };
        Self {
            reader,
            line: Vec::new(),
            is_too_long: false,
            denied: Vec::new(),
            doing: None,
            message: None,
            result: None,
            stray: Vec::new(),
        }
    }

    /// Takes a piece of output, without the newline that `ends` it. The events of a line come with its last
    /// piece; `None` if there are none to tell apart: the piece is no line of the agent's stream.
    pub fn take(&mut self, stream: OutputStream, piece: &[u8], ends: bool) -> Option<Vec<AgentEvent>> {
        if stream == OutputStream::Stderr {
            self.keep_stray(piece, ends);
            return None;
        }
        if self.line.len() + piece.len() > LONGEST {
            (self.is_too_long, self.line) = (true, Vec::new());
        }
        if !self.is_too_long {
            self.line.extend_from_slice(piece);
        }
        if !ends {
            return Some(Vec::new());
        }
        let line = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.is_too_long) {
            return Some(Vec::new());
        }
        let Some(events) = self.reader.read(&line) else {
            self.keep_stray(&line, true);
            return None;
        };
        events.iter().for_each(|event| self.note(event));
        Some(events)
    }

    fn note(&mut self, event: &AgentEvent) {
        match event {
            AgentEvent::Message { text } => self.message = Some(text.clone()),
            AgentEvent::Tool { what, .. } => self.doing = Some(what.clone()),
            AgentEvent::Denied { tool, what } => {
                if self.denied.len() < DENIALS {
                    self.denied.push(Denial { tool: tool.clone(), what: what.clone() });
                }
            }
            AgentEvent::Result(result) => self.result = Some(result.clone()),
        }
    }

    fn keep_stray(&mut self, piece: &[u8], ends: bool) {
        self.stray.extend_from_slice(piece);
        self.stray.extend(ends.then_some(b'\n'));
        self.stray.drain(..self.stray.len().saturating_sub(STRAY));
    }

    /// What was denied, the first of it.
    pub fn denied(&self) -> &[Denial] {
        &self.denied
    }

    /// What the agent did last, such as `edits src/app.py`.
    pub fn doing(&self) -> Option<&str> {
        self.doing.as_deref()
    }

    /// How the agent says that it ended, once it has.
    pub fn result(&self) -> Option<&TaskResult> {
        self.result.as_ref()
    }

    /// The id of the agent's conversation, where its stream is the only place that has it.
    pub fn conversation(&self) -> Option<&str> {
        match &self.reader {
            LineReader::Opencode(stream) => stream.conversation(),
            LineReader::ClaudeCode(_) | LineReader::Other(_) => None,
        }
    }

    /// The agent's last words, or else what its program wrote beside its stream.
    pub fn words(&self) -> String {
        let said = self.result.as_ref().map(|result| &result.text).filter(|text| !text.is_empty());
        match said.or(self.message.as_ref()) {
            Some(text) => text.clone(),
            None => self.stray(),
        }
    }

    /// The end of what the program wrote beside its stream.
    pub fn stray(&self) -> String {
        String::from_utf8_lossy(&self.stray).trim().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: &str = r#"{"type":"assistant","message":{"content":[{"type":"text","text":"hello"}]}}"#;

    #[test]
    fn a_line_in_pieces_is_one_line() {
        let mut transcript = Transcript::of(CLAUDE_CODE);
        let (first, last) = MESSAGE.as_bytes().split_at(20);
        assert_eq!(transcript.take(OutputStream::Stdout, first, false), Some(Vec::new()));
        let told = transcript.take(OutputStream::Stdout, last, true);
        assert_eq!(told, Some(vec![AgentEvent::Message { text: "hello".to_owned() }]));
        assert_eq!(transcript.words(), "hello");
    }

    #[test]
    fn a_line_that_is_too_long_is_left_out_and_the_next_is_read() {
        let mut transcript = Transcript::of(CLAUDE_CODE);
        let piece = vec![b'x'; LONGEST / 2 + 1];
        for _ in 0..5 {
            transcript.take(OutputStream::Stdout, &piece, false);
            assert!(transcript.line.len() <= LONGEST);
        }
        assert_eq!(transcript.take(OutputStream::Stdout, b"", true), Some(Vec::new()));
        transcript.take(OutputStream::Stdout, MESSAGE.as_bytes(), true);
        assert_eq!(transcript.words(), "hello");
    }

    #[test]
    fn other_output_is_told_apart_and_its_end_is_kept() {
        let mut transcript = Transcript::of(CLAUDE_CODE);
        assert_eq!(transcript.take(OutputStream::Stdout, b"no JSON", true), None);
        assert_eq!(transcript.take(OutputStream::Stderr, MESSAGE.as_bytes(), true), None);
        assert!(transcript.result().is_none() && transcript.words().starts_with("no JSON\n"));
        transcript.take(OutputStream::Stderr, &vec![b'y'; 10 * STRAY], true);
        assert!(transcript.stray.len() == STRAY && transcript.words().ends_with('y'));
    }

    #[test]
    fn denials_are_counted_up_to_a_bound() {
        let mut transcript = Transcript::of(CLAUDE_CODE);
        for number in 0..2 * DENIALS {
            let line = format!(
                r#"{{"type":"system","subtype":"permission_denied","tool_name":"Bash","tool_use_id":"{number}"}}"#
            );
            transcript.take(OutputStream::Stdout, line.as_bytes(), true);
        }
        assert_eq!(transcript.denied().len(), DENIALS);
        assert_eq!(transcript.denied()[0], Denial { tool: "Bash".into(), what: "uses Bash".into() });
    }
}
