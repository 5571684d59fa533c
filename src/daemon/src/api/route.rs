//! The routes, as a closed set: what the path of a request leads to. It is found once for each request.
//!
//! A route must never have a name that a caller chose: the names are labels of metrics.

use http::Method;

/// Where a path leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route<'a> {
    /// MCP.
    Mcp,
    /// The stream of notifications.
    Events,
    /// Files of a session, for its token; the path behind the prefix.
    Sessions(&'a str),
    /// A file by its link; the path behind the prefix.
    Files(&'a str),
    /// The whole output of a run by its link; the path behind the prefix.
    Logs(&'a str),
    /// A port of a session, for its token; the path behind the prefix.
    Ports(&'a str),
    /// The state of the daemon, for people.
    Status,
    /// The state of the daemon, for Prometheus.
    Metrics,
    /// Whether the process works.
    Health,
    /// Whether a run would be served.
    Ready,
    /// A backup of the store, for the daemon's own user.
    Backup,
    /// The nodes of the cluster, and what its operator asks of this one; the path behind the prefix.
    Cluster(&'a str),
    /// A part of the page, or no route at all.
    Page(&'a str),
}

impl<'a> Route<'a> {
    /// All of them.
    pub(super) const ALL: [Self; 13] = [
        Self::Mcp,
        Self::Events,
        Self::Sessions(""),
        Self::Files(""),
        Self::Logs(""),
        Self::Ports(""),
        Self::Status,
        Self::Metrics,
        Self::Health,
        Self::Ready,
        Self::Backup,
        Self::Cluster(""),
        Self::Page(""),
    ];

    /// The route of a path.
    pub(super) fn of(path: &'a str) -> Self {
        match path {
            "/mcp" => Self::Mcp,
            "/mcp/events" => Self::Events,
            "/status" => Self::Status,
            "/metrics" => Self::Metrics,
            "/health" => Self::Health,
            "/ready" => Self::Ready,
            crate::backup::PATH => Self::Backup,
            _ => {
                let below = |prefix| path.strip_prefix(prefix);
                below("/sessions/")
                    .map(Self::Sessions)
                    .or_else(|| below("/files/").map(Self::Files))
                    .or_else(|| below("/logs/").map(Self::Logs))
                    .or_else(|| below("/ports/").map(Self::Ports))
                    .or_else(|| below("/cluster").map(Self::Cluster))
                    .unwrap_or(Self::Page(path))
            }
        }
    }

    /// Whether this route takes this method; MCP, the files of sessions and ports refuse
    /// methods themselves.
    pub(super) fn takes(self, method: &Method) -> bool {
        matches!(self, Self::Mcp | Self::Sessions(_) | Self::Ports(_) | Self::Cluster(_))
            || matches!(*method, Method::GET | Method::HEAD)
    }

    /// Whether machines ask for it every few seconds: such requests are logged if they fail, otherwise at
    /// level debug.
    pub(super) fn is_probe(self) -> bool {
        matches!(self, Self::Health | Self::Ready | Self::Metrics | Self::Status)
    }

    /// Its name, as a label of metrics.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Mcp => "mcp",
            Self::Events => "mcp_events",
            Self::Sessions(_) => "sessions",
            Self::Files(_) => "files",
            Self::Logs(_) => "logs",
            Self::Ports(_) => "ports",
            Self::Status => "status",
            Self::Metrics => "metrics",
            Self::Health => "health",
            Self::Ready => "ready",
            Self::Backup => "backup",
            Self::Cluster(_) => "cluster",
            Self::Page(_) => "page",
        }
    }
}
