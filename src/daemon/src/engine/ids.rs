//! The names that go into request paths: each is parsed once, so that none can change the meaning of a URL.
//!
//! Every type here holds only characters without a special meaning in a path, and no `..`, so request lines
//! are built from them without encoding. It must never accept a text "because the engine will refuse it".

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Why a text is not a valid name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{value}` is not {what}: expected {expected}")]
pub struct NameError {
    what: &'static str,
    value: String,
    expected: &'static str,
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal, $expected:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The name as the engine writes it.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;

            fn try_from(value: String) -> Result<$name, NameError> {
                let check: fn(&str) -> bool = $check;
                if check(&value) {
                    return Ok($name(value));
                }
                let value = value.chars().take(80).collect();
                Err(NameError { what: $what, value, expected: $expected })
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            fn from_str(value: &str) -> Result<$name, NameError> {
                $name::try_from(value.to_owned())
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name!(
    /// A container's full id: 64 lower-case hexadecimal digits. Names and short ids are not ids, since they
    /// can pass to another container.
    ContainerId, "a container id", "64 lower-case hexadecimal digits", is_full_id
);

impl ContainerId {
    /// Its first 12 digits, as the docker command shows ids.
    pub fn short(&self) -> &str {
        self.0.get(..12).unwrap_or_default()
    }
}

name!(
    /// An exec's id: 64 lower-case hexadecimal digits.
    ExecId, "an exec id", "64 lower-case hexadecimal digits", is_full_id
);

name!(
    /// A volume's name, as the engine's local driver accepts it: 2 to 255 bytes.
    VolumeName,
    "a volume name",
    "a letter or digit, then 1 to 254 letters, digits, `_`, `.` or `-`",
    is_volume_name
);

name!(
    /// A reference to an image: `name`, `registry:port/path/name:tag`, `name@sha256:…` or an id `sha256:…`.
    ImageRef, "an image reference", "a reference such as `debian:trixie` or `sha256:…`", is_image_ref
);

fn is_full_id(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

fn is_volume_name(text: &str) -> bool {
    (2..=255).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
}

fn is_image_ref(text: &str) -> bool {
    // The engine's router would remove an empty or dotted segment, and the path would name something else.
    text.len() <= 512
        && text.split('/').all(|part| {
            part.starts_with(|c: char| c.is_ascii_alphanumeric())
                && part
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-' | b':' | b'@'))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_names_parse() {
        let id = "0123456789abcdef".repeat(4);
        assert_eq!(id.parse::<ContainerId>().expect("id").to_string(), id);
        assert_eq!(id.parse::<ExecId>().expect("id").as_str(), id);
        for volume in ["a1", "paddock-data-1.x_y", "00"] {
            volume.parse::<VolumeName>().expect(volume);
        }
        for image in ["debian", "debian:trixie", "reg:5000/a/b__c:1.0", &format!("a@sha256:{id}")] {
            image.parse::<ImageRef>().expect(image);
        }
    }

    #[test]
    fn a_text_that_could_change_a_path_does_not_parse() {
        let upper = "0123456789ABCDEF".repeat(4);
        for id in ["", "abc", "../x", &upper, &"é".repeat(32), &"a".repeat(65)] {
            id.parse::<ContainerId>().expect_err(id);
        }
        for volume in ["", "a", ".", "..", "../x", "a/b", "a?b", "a b", "-a", "a%2e", "a\n", &"a".repeat(256)]
        {
            volume.parse::<VolumeName>().expect_err(volume);
        }
        for image in
            ["", "/", "a/", "/a", "a//b", "a/../b", ".", "..", "a?x=1", "a#b", "a b", "a%2f", "a\r\nX: y"]
        {
            image.parse::<ImageRef>().expect_err(image);
        }
    }

    #[test]
    fn an_engine_cannot_send_an_invalid_name_in_json() {
        serde_json::from_str::<ContainerId>("\"../../info\"").expect_err("a path");
    }
}
