//! S3 as the nodes see it: which objects are there.

use std::collections::BTreeSet;

use super::message::{Key, Reply, Request};

#[derive(Default)]
pub(crate) struct Objects {
    stored: BTreeSet<Key>,
    pub(crate) requests: u64,
    pub(crate) deleted: u64,
}

impl Objects {
    pub(crate) fn has(&self, key: Key) -> bool {
        self.stored.contains(&key)
    }

    pub(crate) fn execute(&mut self, request: &Request) -> Reply {
        self.requests += 1;
        match request {
            Request::Put(key) => {
                self.stored.insert(*key);
                Reply::Ok
            }
            Request::Delete(key) => {
                self.deleted += u64::from(self.stored.remove(key));
                Reply::Ok
            }
        }
    }
}
