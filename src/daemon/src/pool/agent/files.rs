//! What the agent's volume holds: the program, the files of names ([`loopback`]), and the certificates that
//! programs trust, if the operator has given any.
//!
//! It must never hold anything that a program may not see: only the agent's program itself is unreadable.

use std::fmt;

use bytes::Bytes;
use paddock_proto::limits::{AGENT_DIR, CA_FILE};
use sha2::{Digest, Sha256};
use tokio_tar::{Builder, EntryType, Header};

use super::{AgentError, DIGITS, PREFIX};
use crate::engine::VolumeName;
use crate::id::hex;
use crate::pool::loopback;

/// The agent's program, built by the build script.
static PROGRAM: &[u8] = include_bytes!(env!("PADDOCK_AGENT"));

/// Nobody may read the program, so that a process that runs it can be neither dumped nor traced.
const PROGRAM_MODE: u32 = 0o111;

/// The mode of the copy for a runtime that reads each program that it starts, as gVisor does. PID 1 and every
/// bridge make themselves undumpable first of all.
const READABLE_MODE: u32 = 0o555;

/// Everybody may read the other files.
const OTHERS_MODE: u32 = 0o444;

/// Nobody may list the folder, or watch or lock it: all containers share it. A watch shows when others start
/// programs, and by a lock two programs can talk.
pub(super) const FOLDER_MODE: u32 = 0o711;

/// The files of the volume. Two values that are equal make one volume.
#[derive(Clone, Default)]
pub struct AgentFiles {
    /// A PEM file.
    certificates: Option<Bytes>,
    /// Whether everybody may read the program.
    is_readable: bool,
}

impl fmt::Debug for AgentFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AgentFiles({} bytes of certificates)", self.certificates.as_ref().map_or(0, Bytes::len))
    }
}

/// One file of the volume.
pub(super) struct AgentFile<'a> {
    /// Its name in the volume.
    pub(super) name: &'static str,
    pub(super) mode: u32,
    pub(super) content: &'a [u8],
}

impl AgentFiles {
    /// The program, and this PEM file.
    #[must_use]
    pub fn new(certificates: Option<Vec<u8>>) -> Self {
        Self { certificates: certificates.map(Bytes::from), is_readable: false }
    }

    /// The same files, with a program that everybody may read.
    pub(in crate::pool) fn readable(&self) -> Self {
        Self { is_readable: true, ..self.clone() }
    }

    pub(super) fn all(&self) -> Vec<AgentFile<'_>> {
        let mode = if self.is_readable { READABLE_MODE } else { PROGRAM_MODE };
        let program = AgentFile { name: "agent", mode, content: PROGRAM };
        let name = CA_FILE.rsplit_once('/').map_or(CA_FILE, |(_, name)| name);
        let others = loopback::FILES.iter().map(|file| (file.name, file.content.as_bytes()));
        let others = others.chain(self.certificates.iter().map(|content| (name, content.as_ref())));
        let others = others.map(|(name, content)| AgentFile { name, mode: OTHERS_MODE, content });
        std::iter::once(program).chain(others).collect()
    }

    /// The volume's name, made of its content and modes.
    ///
    /// # Errors
    /// None that can happen: see [`AgentError::Name`].
    pub(in crate::pool) fn volume_name(&self) -> Result<VolumeName, AgentError> {
        let mut hash = Sha256::new_with_prefix(FOLDER_MODE.to_be_bytes());
        for AgentFile { name, mode, content } in self.all() {
            hash.update(mode.to_be_bytes());
            for part in [name.as_bytes(), content] {
                hash.update((part.len() as u64).to_be_bytes());
                hash.update(part);
            }
        }
        Ok(format!("{PREFIX}{}", hex(&hash.finalize()[..DIGITS / 2])).parse()?)
    }

    /// All of them and their folder, packed to be unpacked at the root of a container: an engine leaves the
    /// mode of the folder in which it unpacks as it is.
    pub(super) async fn archive(&self) -> std::io::Result<Vec<u8>> {
        let mut builder = Builder::new(Vec::new());
        // The engine guesses the compression from the first bytes, and never takes a directory entry for
        // compressed data.
        let folder = AGENT_DIR.trim_start_matches('/');
        let mut root = Header::new_gnu();
        root.set_entry_type(EntryType::Directory);
        root.set_mode(FOLDER_MODE);
        root.set_size(0);
        builder.append_data(&mut root, format!("{folder}/"), tokio::io::empty()).await?;
        for file in self.all() {
            let mut header = Header::new_gnu();
            header.set_entry_type(EntryType::Regular);
            header.set_mode(file.mode);
            header.set_size(file.content.len() as u64);
            builder.append_data(&mut header, format!("{folder}/{}", file.name), file.content).await?;
        }
        builder.into_inner().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_certificates_make_another_volume() {
        let name = |certificates: Option<&str>| {
            let files = AgentFiles::new(certificates.map(|text| text.as_bytes().to_vec()));
            files.volume_name().expect("a name").to_string()
        };
        assert_eq!((name(None), name(Some("a"))), (name(None), name(Some("a"))));
        let readable = |certificates: Option<&str>| {
            let files = AgentFiles::new(certificates.map(|text| text.as_bytes().to_vec())).readable();
            assert_eq!(files.all()[0].mode, READABLE_MODE);
            files.volume_name().expect("a name").to_string()
        };
        let all = [
            name(None),
            name(Some("a")),
            name(Some("b")),
            name(Some("")),
            readable(None),
            readable(Some("a")),
        ];
        for (n, one) in all.iter().enumerate() {
            assert!(all[n + 1..].iter().all(|other| one != other), "{all:?}");
        }
    }
}
