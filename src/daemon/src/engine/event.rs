//! One event of an engine, and its reading from the engine's JSON. Source: `GET /events`.
//!
//! It must never keep the text behind the colon of an exec's action, which is the program's argv.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

use super::ids::{ContainerId, ExecId, VolumeName};
use super::shape::null_is_empty;

/// A time of the engine's clock, in nanoseconds since 1970. `Display` writes it as `since` requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
pub struct EventTime(i64);

impl EventTime {
    /// Nanoseconds since 1970.
    pub fn as_nanos(self) -> i64 {
        self.0
    }

    pub(super) fn from_rfc3339(text: &str) -> Option<EventTime> {
        // humantime reads only UTC, so the offset is read here and subtracted.
        let (utc, ahead) = split_offset(text)?;
        let time = humantime::parse_rfc3339(&utc).ok()?;
        let nanos = i64::try_from(time.duration_since(std::time::UNIX_EPOCH).ok()?.as_nanos()).ok()?;
        Some(EventTime(nanos.checked_sub(ahead * 1_000_000_000)?))
    }
}

/// Splits `…+01:30` into `…Z` and the seconds by which it is ahead of UTC.
fn split_offset(text: &str) -> Option<(String, i64)> {
    if text.ends_with('Z') {
        return Some((text.to_owned(), 0));
    }
    let (time, offset) = text.split_at_checked(text.len().checked_sub(6)?)?;
    let sign = match offset.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, minutes) = offset.get(1..)?.split_once(':')?;
    let (hours, minutes): (u8, u8) = (hours.parse().ok()?, minutes.parse().ok()?);
    Some((format!("{time}Z"), sign * (i64::from(hours) * 3600 + i64::from(minutes) * 60)))
}

impl fmt::Display for EventTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.0.div_euclid(1_000_000_000), self.0.rem_euclid(1_000_000_000))
    }
}

/// An event of an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineEvent {
    /// Its time by the engine's clock.
    pub time: EventTime,
    /// The object, and the action on it.
    pub what: Occurrence,
}

/// An object of an engine, and an action on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Occurrence {
    /// An action on a container, or on an exec in it.
    Container {
        /// The container's id.
        id: ContainerId,
        /// The action.
        action: ContainerAction,
        /// The container's labels. The engine adds `image`, `name` and values of the action to the same map,
        /// so a label can forge those.
        attributes: BTreeMap<String, String>,
    },
    /// An action on an image.
    Image {
        /// The image's name, or its id if it has none. Untrusted text, not a reference.
        image: String,
        /// The action.
        action: ImageAction,
    },
    /// An action on a volume.
    Volume {
        /// The volume's name.
        name: VolumeName,
        /// The action.
        action: VolumeAction,
    },
}

/// An action on a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContainerAction {
    /// It was made.
    Create,
    /// It was started.
    Start,
    /// A signal was sent to it.
    Kill,
    /// Its PID 1 ended.
    Die {
        /// Its exit code: 128 + n after signal n. `None` when the engine did not report it.
        exit_code: Option<i64>,
    },
    /// It was stopped, after its `Die`.
    Stop,
    /// The kernel killed a process in it, PID 1 or another, for lack of memory.
    Oom,
    /// It was frozen.
    Pause,
    /// Its pause ended.
    Unpause,
    /// It was removed.
    Destroy,
    /// An exec was made.
    ExecCreate {
        /// Its id. `None` when the engine did not report it.
        exec: Option<ExecId>,
    },
    /// An exec was started.
    ExecStart {
        /// Its id. `None` when the engine did not report it.
        exec: Option<ExecId>,
    },
    /// An exec's program ended.
    ExecDie {
        /// Its id. `None` when the engine did not report it.
        exec: Option<ExecId>,
        /// Its exit code. `None` when the engine did not report it.
        exit_code: Option<i64>,
    },
    /// Any other action, by the engine's name: `rename`, `update`, `health_status`, `attach`, …
    Other(String),
}

/// An action on an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageAction {
    /// It was pulled, loaded or imported, or it got a name.
    Added,
    /// It was deleted, or it lost a name.
    Removed,
    /// Any other action, by the engine's name.
    Other(String),
}

/// An action on a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VolumeAction {
    /// It was made.
    Create,
    /// A container mounted it.
    Mount,
    /// A container unmounted it.
    Unmount,
    /// It was removed.
    Destroy,
    /// Any other action, by the engine's name.
    Other(String),
}

/// The JSON of an event.
#[derive(Debug, Deserialize)]
pub(super) struct WireEvent {
    #[serde(rename = "Type", default, deserialize_with = "null_is_empty")]
    kind: String,
    #[serde(rename = "Action", default, deserialize_with = "null_is_empty")]
    action: String,
    #[serde(rename = "Actor", default, deserialize_with = "null_is_empty")]
    actor: WireActor,
    #[serde(rename = "timeNano")]
    nanos: EventTime,
}

#[derive(Debug, Default, Deserialize)]
struct WireActor {
    #[serde(rename = "ID", default, deserialize_with = "null_is_empty")]
    id: String,
    #[serde(rename = "Attributes", default, deserialize_with = "null_is_empty")]
    attributes: BTreeMap<String, String>,
}

impl WireEvent {
    pub(super) fn time(&self) -> EventTime {
        self.nanos
    }
}

impl EngineEvent {
    /// `None` when the event is about another kind of object, or about a name that none of ours can have.
    pub(super) fn from_wire(wire: WireEvent) -> Option<EngineEvent> {
        let WireEvent { kind, action, actor: WireActor { id, attributes }, nanos } = wire;
        let word = action.split(':').next().unwrap_or_default();
        let what = match kind.as_str() {
            "container" => Occurrence::Container {
                id: id.try_into().ok()?,
                action: ContainerAction::of(word, &attributes),
                attributes,
            },
            "image" => Occurrence::Image { image: id, action: ImageAction::of(word) },
            "volume" => Occurrence::Volume { name: id.try_into().ok()?, action: VolumeAction::of(word) },
            _ => return None,
        };
        Some(EngineEvent { time: nanos, what })
    }
}

impl ContainerAction {
    fn of(word: &str, attributes: &BTreeMap<String, String>) -> ContainerAction {
        let exec = || attributes.get("execID").and_then(|id| id.parse().ok());
        let exit_code = || attributes.get("exitCode").and_then(|code| code.parse().ok());
        match word {
            "create" => ContainerAction::Create,
            "start" => ContainerAction::Start,
            "kill" => ContainerAction::Kill,
            "die" => ContainerAction::Die { exit_code: exit_code() },
            "stop" => ContainerAction::Stop,
            "oom" => ContainerAction::Oom,
            "pause" => ContainerAction::Pause,
            "unpause" => ContainerAction::Unpause,
            "destroy" => ContainerAction::Destroy,
            "exec_create" => ContainerAction::ExecCreate { exec: exec() },
            "exec_start" => ContainerAction::ExecStart { exec: exec() },
            "exec_die" => ContainerAction::ExecDie { exec: exec(), exit_code: exit_code() },
            other => ContainerAction::Other(other.to_owned()),
        }
    }
}

impl ImageAction {
    fn of(word: &str) -> ImageAction {
        match word {
            "pull" | "load" | "import" | "tag" => ImageAction::Added,
            "delete" | "untag" => ImageAction::Removed,
            other => ImageAction::Other(other.to_owned()),
        }
    }
}

impl VolumeAction {
    fn of(word: &str) -> VolumeAction {
        match word {
            "create" => VolumeAction::Create,
            "mount" => VolumeAction::Mount,
            "unmount" => VolumeAction::Unmount,
            "destroy" => VolumeAction::Destroy,
            other => VolumeAction::Other(other.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: &str, action: &str, id: &str, attributes: &[(&str, &str)]) -> Option<Occurrence> {
        let attributes: BTreeMap<_, _> = attributes.iter().copied().collect();
        let wire = serde_json::json!({
            "Type": kind, "Action": action, "Actor": {"ID": id, "Attributes": attributes},
            "scope": "local", "time": 1, "timeNano": 1_000_000_002_i64
        });
        let wire = serde_json::from_value(wire).expect("an event");
        EngineEvent::from_wire(wire).map(|event| event.what)
    }

    #[test]
    fn an_execs_argv_is_not_kept() {
        let (id, exec) = ("a".repeat(64), "b".repeat(64));
        let found = event("container", "exec_create: /bin/sh -c SECRET", &id, &[("execID", &exec)]);
        assert!(!format!("{found:?}").contains("SECRET"));
        let action = ContainerAction::ExecCreate { exec: exec.parse().ok() };
        assert!(matches!(found, Some(Occurrence::Container { action: a, .. }) if a == action));
    }

    #[test]
    fn hostile_attributes_are_left_out() {
        let id = "a".repeat(64);
        let found = event("container", "die", &id, &[("exitCode", "9e99"), ("execID", "../x")]);
        assert!(matches!(
            found,
            Some(Occurrence::Container { action: ContainerAction::Die { exit_code: None }, .. })
        ));
    }

    #[test]
    fn other_objects_are_left_out() {
        assert_eq!(event("network", "connect", "x", &[]), None);
        assert_eq!(event("container", "die", "short", &[]), None);
        assert_eq!(event("volume", "create", "../x", &[]), None);
    }

    #[test]
    fn a_time_prints_as_since_requires() {
        for (text, printed) in [
            ("2026-11-21T22:11:49.799249681Z", "1795299109.799249681"),
            ("2026-11-21T23:41:49.000000001+01:30", "1795299109.000000001"),
            ("2026-11-21T14:11:49-08:00", "1795299109.000000000"),
        ] {
            assert_eq!(EventTime::from_rfc3339(text).expect(text).to_string(), printed);
        }
        for text in
            ["", "Z", "now", "2026-11-21", "2026-11-21T22:11:49", "é+01:00", "2026-11-21T22:11:49+1:0"]
        {
            assert_eq!(EventTime::from_rfc3339(text), None, "{text}");
        }
    }
}
