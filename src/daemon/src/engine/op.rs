//! The names of the operations, for errors, spans and metric labels. The set is closed, so a label has few
//! values.

use std::fmt;

macro_rules! ops {
    ($($(#[$doc:meta])* $variant:ident => $name:literal),* $(,)?) => {
        /// One operation of the Engine API that this client uses.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum EngineOp {
            $($(#[$doc])* $variant,)*
        }

        impl EngineOp {
            /// Every operation, for tests that need all values of the label.
            pub const ALL: &[EngineOp] = &[$(EngineOp::$variant),*];

            /// Its fixed name, in `snake_case`.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(EngineOp::$variant => $name,)*
                }
            }
        }
    };
}

ops! {
    /// `GET /_ping`
    Ping => "ping",
    /// `GET /version`
    Version => "version",
    /// `GET /info`
    Info => "info",
    /// `GET /images/json`
    ImageList => "image_list",
    /// `GET /images/{name}/json`
    ImageInspect => "image_inspect",
    /// `POST /volumes/create`
    VolumeCreate => "volume_create",
    /// `GET /volumes/{name}`
    VolumeInspect => "volume_inspect",
    /// `GET /volumes`
    VolumeList => "volume_list",
    /// `DELETE /volumes/{name}`
    VolumeRemove => "volume_remove",
    /// `POST /containers/create`
    ContainerCreate => "container_create",
    /// `POST /containers/{id}/start`
    ContainerStart => "container_start",
    /// `GET /containers/{id}/json`
    ContainerInspect => "container_inspect",
    /// `GET /containers/json`
    ContainerList => "container_list",
    /// `POST /containers/{id}/kill`
    ContainerKill => "container_kill",
    /// `POST /containers/{id}/pause`
    ContainerPause => "container_pause",
    /// `POST /containers/{id}/unpause`
    ContainerUnpause => "container_unpause",
    /// `DELETE /containers/{id}`
    ContainerRemove => "container_remove",
    /// `POST /containers/{id}/exec`
    ExecCreate => "exec_create",
    /// `POST /exec/{id}/start`
    ExecStart => "exec_start",
    /// `GET /exec/{id}/json`
    ExecInspect => "exec_inspect",
    /// `PUT /containers/{id}/archive`
    ArchivePut => "archive_put",
    /// `GET /containers/{id}/archive`
    ArchiveGet => "archive_get",
    /// `HEAD /containers/{id}/archive`
    ArchiveStat => "archive_stat",
    /// `GET /events`
    Events => "events",
}

impl fmt::Display for EngineOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
