//! The operations of the Engine API: their names, for errors, spans and metric labels, and the requests that
//! they are. The set is closed, so a label has few values, and an operator can allow exactly these requests.
//!
//! A request that is not in this table must never be sent: `EngineCall::new` takes its method from here and
//! compares its path.

use std::fmt;

use http::Method;

macro_rules! ops {
    ($($(#[$doc:meta])* $variant:ident => $name:literal, $method:ident $path:literal;)*) => {
        /// One operation of the Engine API that this client uses.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum EngineOp {
            $(#[doc = concat!("`", stringify!($method), " ", $path, "`: ")] $(#[$doc])* $variant,)*
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

            /// The method of its request.
            pub const fn method(self) -> Method {
                match self {
                    $(EngineOp::$variant => Method::$method,)*
                }
            }

            /// The path of its request without the version, such as `/containers/{id}/start`.
            pub const fn path(self) -> &'static str {
                match self {
                    $(EngineOp::$variant => $path,)*
                }
            }
        }
    };
}

ops! {
    /// whether the engine answers
    Ping => "ping", GET "/_ping";
    /// which version of the API both speak
    Version => "version", GET "/version";
    /// what the engine says about its host, and its clock
    Info => "info", GET "/info";
    /// the images that have the label of a runner
    ImageList => "image_list", GET "/images/json";
    /// the labels and the entrypoint of one image
    ImageInspect => "image_inspect", GET "/images/{name}/json";
    /// a container's `/data`, and the agent's volume
    VolumeCreate => "volume_create", POST "/volumes/create";
    /// one volume
    VolumeInspect => "volume_inspect", GET "/volumes/{name}";
    /// the volumes that have a label of paddock
    VolumeList => "volume_list", GET "/volumes";
    /// removes one volume
    VolumeRemove => "volume_remove", DELETE "/volumes/{name}";
    /// creates a container
    ContainerCreate => "container_create", POST "/containers/create";
    /// starts it
    ContainerStart => "container_start", POST "/containers/{id}/start";
    /// its state and its process id
    ContainerInspect => "container_inspect", GET "/containers/{id}/json";
    /// the containers that have a label of paddock
    ContainerList => "container_list", GET "/containers/json";
    /// ends it
    ContainerKill => "container_kill", POST "/containers/{id}/kill";
    /// stops it while its files are saved
    ContainerPause => "container_pause", POST "/containers/{id}/pause";
    /// lets it continue
    ContainerUnpause => "container_unpause", POST "/containers/{id}/unpause";
    /// changes its part of the processors, while several tenants have tokens
    ContainerUpdate => "container_update", POST "/containers/{id}/update";
    /// removes it
    ContainerRemove => "container_remove", DELETE "/containers/{id}";
    /// creates the bridge, the process that connects the agent
    ExecCreate => "exec_create", POST "/containers/{id}/exec";
    /// starts the bridge, and takes over the connection
    ExecStart => "exec_start", POST "/exec/{id}/start";
    /// how the bridge ended
    ExecInspect => "exec_inspect", GET "/exec/{id}/json";
    /// files into a new container, and into the volume of the agent
    ArchivePut => "archive_put", PUT "/containers/{id}/archive";
    /// files out of a container that does not answer
    ArchiveGet => "archive_get", GET "/containers/{id}/archive";
    /// whether a file is there
    ArchiveStat => "archive_stat", HEAD "/containers/{id}/archive";
    /// images that appear, and containers that end
    Events => "events", GET "/events";
}

impl EngineOp {
    /// Whether this is a path of this operation: each `{…}` stands for one segment, but for the name of an
    /// image, which may have several.
    pub(super) fn takes(self, path: &str) -> bool {
        let (before, after) = match self.path().split_once('{') {
            None => return path == self.path(),
            Some((before, rest)) => (before, rest.split_once('}').map_or("", |(_, after)| after)),
        };
        let name = path.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
        name.is_some_and(|name| !name.is_empty() && (self == EngineOp::ImageInspect || !name.contains('/')))
    }
}

impl fmt::Display for EngineOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_belongs_to_the_operation_that_has_its_shape() {
        assert!(EngineOp::Ping.takes("/_ping") && !EngineOp::Ping.takes("/_ping/x"));
        assert!(EngineOp::ContainerKill.takes("/containers/ab12/kill"));
        for other in
            ["/containers//kill", "/containers/a/b/kill", "/containers/ab12/start", "/containers/ab12"]
        {
            assert!(!EngineOp::ContainerKill.takes(other), "{other}");
        }
        assert!(EngineOp::ImageInspect.takes("/images/reg.example/a/b:1/json"));
        assert!(!EngineOp::VolumeRemove.takes("/volumes/"));
    }
}
