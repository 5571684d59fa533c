//! What is known of layers, in a file for the next daemon.
//!
//! ```text
//!  packages/layers.json   {"at": 1795517257, "is_fetching": false, "layers": [{"key": "…", …}]}
//! ```
//!
//! The file is written beside and renamed. Without a file no layer is known. If it is damaged, what is in the
//! volume is removed. It must never name a layer that was not written to its end.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{fs, io};

use serde::{Deserialize, Serialize};
use tracing::warn;

use super::list::LayerKey;
use super::shelf::Layer;
use crate::id::{from_hex, hex};

const NAME: &str = "layers.json";

/// The file.
pub(super) struct KeptLayers {
    path: PathBuf,
    /// Two writers would overtake each other.
    writing: tokio::sync::Mutex<()>,
}

#[derive(Serialize, Deserialize)]
struct Written {
    /// Seconds since 1970.
    at: u64,
    /// Whether a fetch was under way, which may have left a part of a layer.
    is_fetching: bool,
    layers: Vec<WrittenLayer>,
}

#[derive(Serialize, Deserialize)]
struct WrittenLayer {
    key: String,
    /// Seconds for which nobody had used it.
    unused: u64,
    #[serde(flatten)]
    layer: Layer,
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl KeptLayers {
    /// Opens the file in this folder: the layers that it names, each with how long nobody has used it, and
    /// whether there may be something in the volume that it does not name.
    pub(super) fn open(folder: PathBuf) -> (Self, Vec<(LayerKey, Layer, Duration)>, bool) {
        let path = folder.join(NAME);
        let text = fs::read(&path);
        let is_new = text.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        let written: Option<Written> = text.ok().and_then(|text| serde_json::from_slice(&text).ok());
        let is_untidy = !is_new && written.as_ref().is_none_or(|written| written.is_fetching);
        let mut layers = Vec::new();
        if let Some(written) = written {
            let since = now().saturating_sub(written.at);
            layers.extend(written.layers.into_iter().filter_map(|one| {
                Some((from_hex(&one.key)?, one.layer, Duration::from_secs(one.unused.saturating_add(since))))
            }));
        }
        (Self { path, writing: tokio::sync::Mutex::default() }, layers, is_untidy)
    }

    /// Writes the file anew.
    pub(super) async fn save(&self, layers: Vec<(LayerKey, Layer, Duration)>, is_fetching: bool) {
        let _alone = self.writing.lock().await;
        let layers = layers.into_iter().map(|(key, layer, unused)| WrittenLayer {
            key: hex(&key),
            unused: unused.as_secs(),
            layer,
        });
        let written = Written { at: now(), is_fetching, layers: layers.collect() };
        let path = self.path.clone();
        let done = tokio::task::spawn_blocking(move || {
            let text = serde_json::to_vec(&written).map_err(io::Error::from)?;
            let staged = path.with_extension("new");
            fs::write(&staged, text)?;
            fs::File::open(&staged)?.sync_all()?;
            fs::rename(&staged, &path)
        });
        match done.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => warn!(%error, path = %self.path.display(), "layers could not be noted"),
            Err(error) => warn!(%error, "layers could not be noted"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_kept_is_there_again_and_a_damaged_file_names_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let open = || KeptLayers::open(dir.path().to_owned());
        let (kept, layers, is_untidy) = open();
        assert!(layers.is_empty() && !is_untidy, "the store is new");
        let layer = Layer {
            directory: "d-1".into(),
            bytes: 9,
            entries: 2,
            digest: "ab".into(),
            locked: vec!["x==1".into()],
        };
        kept.save(vec![([7; 32], layer.clone(), Duration::from_secs(30))], false).await;
        let (_, layers, is_untidy) = open();
        let (key, found, unused) = &layers[0];
        assert_eq!((key, found, layers.len(), is_untidy), (&[7; 32], &layer, 1, false));
        assert!(*unused >= Duration::from_secs(30) && *unused < Duration::from_secs(90), "{unused:?}");
        kept.save(Vec::new(), true).await;
        assert!(open().2, "a fetch was under way");
        fs::write(dir.path().join(NAME), "{\"at\":").unwrap();
        let (_, layers, is_untidy) = open();
        assert!(layers.is_empty() && is_untidy);
    }
}
