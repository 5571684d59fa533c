//! The audience of an answer decides what its text and its document contain.
//!
//! ```text
//!  client                                            text                            structuredContent
//!  a bare call; a revision before 2025-06-18         the compact document, as JSON   the document
//!  Python's SDK, under its own name, of a command       the compact document, as JSON   the document
//!  Claude Code, n8n's tool for AI agents             plain text                      the compact document
//!  everybody else                                    plain text                      the document
//! ```
//!
//! It must never decide anything by a client's name but the form of an answer.

/// How n8n's MCP Client Tool names itself, after the name of its package. Its model reads
/// `structuredContent`, and the text never (n8n 2.41). Its MCP Client node, which workflows read, has another
/// name.
const N8N_TOOL: &str = "mcpClientTool";

/// How Claude Code names itself. Its model reads `structuredContent`, with the pictures and links of
/// `content`, and the text only where there is none (2.1.330).
const CLAUDE_CODE: &str = "claude-code";

/// How Python's SDK names itself where the program gives no name. S1's example is such a program: it reads
/// the text of `execute_code` as JSON, whichever revision its SDK has agreed on.
const PYTHON_SDK: &str = "mcp";

/// The audience of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Audience {
    /// A model reads the text, a program the document.
    Model,
    /// A model reads the document.
    ModelOfDocuments,
    /// A program reads the text.
    Program,
}

impl Audience {
    /// The audience: by whether the call was bare, whether its revision has `structuredContent`, the client's
    /// name for itself, and whether the answer is about a shell command.
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
    fn the_audience_decides_the_form() {
        let n8n_tool = Some("@n8n/n8n-nodes-langchain.mcpClientTool");
        for (bare, new, client, command, audience) in [
            (false, true, Some("claude-code"), false, Audience::ModelOfDocuments),
            (false, true, Some("opencode"), true, Audience::Model),
            (false, true, None, true, Audience::Model),
            (true, true, None, false, Audience::Program),
            (true, true, n8n_tool, false, Audience::Program),
            (false, false, Some("claude-code"), false, Audience::Program),
            (false, true, Some("mcp"), true, Audience::Program),
            (false, true, Some("mcp"), false, Audience::Model),
            (false, true, n8n_tool, true, Audience::ModelOfDocuments),
            (false, true, Some("@n8n/n8n-nodes-langchain.mcpClient"), false, Audience::Model),
        ] {
            assert_eq!(Audience::of(bare, new, client, command), audience, "{client:?}");
        }
    }
}
