//! The routes that there are, as a closed set: what a request's path leads to.
//!
//! It must never give a route a name that a caller chose: the names are labels of metrics.

use http::Method;

/// Where a path leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route<'a> {
    /// MCP.
    Mcp,
    /// The stream of notes.
    Events,
    /// Files of a session, with a token; what is behind the prefix.
    Sessions(&'a str),
    /// A file by its link; what is behind the prefix.
    Files(&'a str),
    /// A run's whole output by its link; what is behind the prefix.
    Logs(&'a str),
    /// How the daemon stands, for people.
    Status,
    /// How it stands, for Prometheus.
    Metrics,
    /// Whether the process is well.
    Health,
    /// Whether a run would be served.
    Ready,
    /// A part of the page, or nothing.
    Page(&'a str),
}

impl<'a> Route<'a> {
    /// All of them.
    pub(super) const ALL: [Self; 10] = [
        Self::Mcp,
        Self::Events,
        Self::Sessions(""),
        Self::Files(""),
        Self::Logs(""),
        Self::Status,
        Self::Metrics,
        Self::Health,
        Self::Ready,
        Self::Page(""),
    ];

    pub(super) fn of(path: &'a str) -> Self {
        match path {
            "/mcp" => Self::Mcp,
            "/mcp/events" => Self::Events,
            "/status" => Self::Status,
            "/metrics" => Self::Metrics,
            "/health" => Self::Health,
            "/ready" => Self::Ready,
            _ => {
                let below = |prefix| path.strip_prefix(prefix);
                below("/sessions/")
                    .map(Self::Sessions)
                    .or_else(|| below("/files/").map(Self::Files))
                    .or_else(|| below("/logs/").map(Self::Logs))
                    .unwrap_or(Self::Page(path))
            }
        }
    }

    /// Whether there is an answer to this method; MCP and the files of sessions refuse others themselves.
    pub(super) fn takes(self, method: &Method) -> bool {
        matches!(self, Self::Mcp | Self::Sessions(_)) || matches!(*method, Method::GET | Method::HEAD)
    }

    /// Whether machines ask for it every few seconds: such requests are logged where they fail, or at level debug.
    pub(super) fn is_probe(self) -> bool {
        matches!(self, Self::Health | Self::Ready | Self::Metrics | Self::Status)
    }

    /// Its name.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Mcp => "mcp",
            Self::Events => "mcp_events",
            Self::Sessions(_) => "sessions",
            Self::Files(_) => "files",
            Self::Logs(_) => "logs",
            Self::Status => "status",
            Self::Metrics => "metrics",
            Self::Health => "health",
            Self::Ready => "ready",
            Self::Page(_) => "page",
        }
    }
}
