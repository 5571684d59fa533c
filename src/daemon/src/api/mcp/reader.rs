//! Who reads an answer: that decides what its text is, and what its document holds.
//!
//! ```text
//!  client                                            text                            structuredContent
//!  a bare call; a revision before 2025-06-18         the compact document, as JSON   the document
//!  Python's SDK, named by nobody, of a command       the compact document, as JSON   the document
//!  Claude Code, n8n's tool for AI agents             plain text                      the compact document
//!  everybody else                                    plain text                      the document
//! ```
//!
//! It must never decide more by a client's name than the form of an answer.

/// How n8n's MCP Client Tool names itself, after the name of its package. Its model reads `structuredContent`, and
/// the text never (n8n 2.41). Its MCP Client node, which workflows read, has another name.
const N8N_TOOL: &str = "mcpClientTool";

/// How Claude Code names itself. Its model reads `structuredContent`, with the pictures and links of `content`, and
/// the text only where there is none (2.1.330).
const CLAUDE_CODE: &str = "claude-code";

/// What Python's SDK is called where the program says nothing. S1's example is such a program: it reads the text of
/// `execute_code` as JSON, whichever revision its SDK has agreed on.
const PYTHON_SDK: &str = "mcp";

/// Who reads an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reader {
    /// A model reads the text, a program the document.
    Model,
    /// A model reads the document.
    ModelOfDocuments,
    /// A program reads the text.
    Program,
}

impl Reader {
    /// The reader of an answer: whether the call was bare, whether its revision knows `structuredContent`, what the
    /// client calls itself, and whether the answer tells of a shell command.
    pub(super) fn of(is_bare: bool, is_new: bool, client: Option<&str>, is_of_a_command: bool) -> Self {
        match client {
            _ if is_bare || !is_new => Self::Program,
            Some(name) if name == CLAUDE_CODE || name.rsplit('.').next() == Some(N8N_TOOL) => {
                Self::ModelOfDocuments
            }
            Some(PYTHON_SDK) if is_of_a_command => Self::Program,
            Some(_) | None => Self::Model,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_reads_decides_the_form() {
        let n8n_tool = Some("@n8n/n8n-nodes-langchain.mcpClientTool");
        for (bare, new, client, command, reader) in [
            (false, true, Some("claude-code"), false, Reader::ModelOfDocuments),
            (false, true, Some("opencode"), true, Reader::Model),
            (false, true, None, true, Reader::Model),
            (true, true, None, false, Reader::Program),
            (true, true, n8n_tool, false, Reader::Program),
            (false, false, Some("claude-code"), false, Reader::Program),
            (false, true, Some("mcp"), true, Reader::Program),
            (false, true, Some("mcp"), false, Reader::Model),
            (false, true, n8n_tool, true, Reader::ModelOfDocuments),
            (false, true, Some("@n8n/n8n-nodes-langchain.mcpClient"), false, Reader::Model),
        ] {
            assert_eq!(Reader::of(bare, new, client, command), reader, "{client:?}");
        }
    }
}
