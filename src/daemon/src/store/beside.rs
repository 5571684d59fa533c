//! What the store keeps beside the files of a session for its drop folder.
//!
//! It must never be there without the session, and goes with it: whoever deletes the session deletes it.

use std::fs;
use std::io;

use super::replace::replace;
use super::space::Space;

const DROPS: &str = "drops.json";

impl Space {
    /// The record of the session's drop folder, if there is one. Blocks.
    pub fn read_drops(&self) -> Option<Vec<u8>> {
        fs::read(self.dir.join(DROPS)).ok()
    }

    /// Keeps the record of the session's drop folder, if anything is stored for the session. Blocks.
    ///
    /// # Errors
    /// An error of the file system.
    pub fn write_drops(&self, record: &[u8]) -> io::Result<()> {
        // Or a new session of this id could get the record of the one before it.
        let _lock = self.lock_blocking();
        if !self.is_stored() {
            return Ok(());
        }
        let staged = self.shared.tmp.join(crate::id::random_hex::<12>());
        replace(&self.dir.join(DROPS), &staged, record, true)
    }
}
