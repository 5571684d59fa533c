//! Client of the Docker Engine API: one file per resource over one transport.
//!
//! ```text
//! containers images volumes exec archive event_stream system version   the operations
//!        │                     │      │      │
//!        └────── call ─────────┴──────┴──────┘   a request as data: path, query, bounds
//!                 │                   hijack ── frames     an exec's stdin, stdout, stderr
//!             transport ─────────────────┘       the only place that sends; pool, deadlines, caps
//!                 │
//!              connect ── tls, ssh, names        Unix socket, TCP, TLS or ssh
//! ```
//!
//! Invariants:
//!
//! - Every call has a deadline and every answer a cap; see [`EngineLimits`].
//! - A name reaches a request path only as one of the types of `ids`, which contain no character that has a
//!   meaning in a URL.
//! - A call that is dropped, fails or leaves its answer unread closes its connection.
//! - A request that may have had an effect is never sent again. An error says whether it may have:
//!   [`EngineError::may_have_happened`].
//! - No body is logged, and an error keeps nothing of an answer but the engine's own message, bounded.
//!
//! Deliberately absent: image pulls and builds, networks, swarm, logs and attach (containers log to `none`
//! and talk through one exec), and any retry of a change. The pool decides which containers exist; this
//! module knows nothing of that.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use paddock::engine::{Engine, EngineLimits};
//!
//! let engine = Engine::connect(&"unix:///var/run/docker.sock".parse()?, EngineLimits::default()).await?;
//! let info = engine.info().await?;
//! assert_eq!(info.os_type, "linux");
//! # Ok(())
//! # }
//! ```

use std::fmt;
use std::sync::Arc;

mod archive;
mod call;
mod connect;
mod containers;
mod error;
mod event;
mod event_stream;
mod exec;
mod frames;
mod hijack;
mod host;
mod ids;
mod images;
mod limits;
mod names;
mod op;
mod shape;
mod spec;
mod ssh;
mod system;
mod tls;
mod transport;
mod version;
mod volumes;

pub(crate) use archive::entry_of_root;
pub use archive::{ArchiveReader, PathKind, PathStat};
pub use containers::{
    ContainerDetail, ContainerState, ContainerStatus, ContainerSummary, CreatedContainer, Signal,
};
pub use error::{BoxError, EngineError};
pub use event::{ContainerAction, EngineEvent, EventTime, ImageAction, Occurrence, VolumeAction};
pub use event_stream::{EventFilter, EventKind, EventStream, EventStreamItem};
pub use exec::{CreatedExec, ExecSpec, ExecStatus};
pub use frames::{Chunk, FrameDecoder, FrameError, MAX_FRAME, Stdio};
pub use hijack::{Framing, Hijacked, HijackedReader, HijackedWriter, STDERR_TAIL};
pub use host::{EngineHost, HostError};
pub use ids::{ContainerId, ExecId, ImageRef, NameError, VolumeName};
pub use images::{ImageConfig, ImageDetail, ImageSummary};
pub use limits::EngineLimits;
pub use op::EngineOp;
pub use spec::{
    BindOptions, ContainerSpec, DriverConfig, Healthcheck, HostConfig, LogConfig, Mount, MountType,
    RestartPolicy, Ulimit, VolumeOptions,
};
pub use system::{EngineInfo, Plugins, Runtime};
pub use version::{ApiVersion, Component, EngineVersion, VersionError};
pub use volumes::{Volume, VolumeSpec};

use transport::Transport;

use crate::metrics::Metrics;

/// A handle on one engine, cheap to clone; clones share the connections.
#[derive(Clone)]
pub struct Engine {
    transport: Arc<Transport>,
    api_version: ApiVersion,
}

impl Engine {
    /// Connects to the engine at `host` and agrees on a version of the API (`GET /version`).
    ///
    /// Errors: [`EngineError::Unreachable`] when nothing listens there, [`EngineError::Version`] when the
    /// engine is older than [`ApiVersion::OLDEST`] or no longer speaks [`ApiVersion::NEWEST`], and those of
    /// any call.
    pub async fn connect(host: &EngineHost, limits: EngineLimits) -> Result<Engine, EngineError> {
        Self::connect_counted(host, limits, Metrics::default()).await
    }

    /// The same, with every call counted. Errors: as [`Engine::connect`].
    pub async fn connect_counted(
        host: &EngineHost,
        limits: EngineLimits,
        metrics: Metrics,
    ) -> Result<Engine, EngineError> {
        let mut transport = Transport::new(host, limits, metrics)?;
        let api_version = version::negotiate(&transport).await?;
        transport.version = Some(api_version);
        Ok(Engine { transport: Arc::new(transport), api_version })
    }

    /// The address of this engine.
    pub fn host(&self) -> &EngineHost {
        &self.transport.host
    }

    /// The bounds of this handle.
    pub fn limits(&self) -> &EngineLimits {
        &self.transport.limits
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("host", &self.transport.host)
            .field("api_version", &self.api_version)
            .finish_non_exhaustive()
    }
}
