//! Contents in S3: put before anything names them, got by their hash, checked when they come back.
//!
//! ```text
//!  claim the rows (touched = now: no sweep takes them) ─► put what is not stored ─► is_stored ─► record
//! ```
//!
//! The name of a content is its hash and a number that is never used twice: a deletion that arrives late can
//! only hit what it was meant for. It must never say that a content is stored before S3 has answered.

use std::path::Path as FilePath;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload, RetryConfig, WriteMultipart};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_postgres::types::Type;

use crate::http::{Connector, Hyper};
use crate::manifest::hex;
use crate::{Content, Hash, Ledger, LedgerError, Shared, Source};

/// Contents that are sent or fetched at once.
const AT_ONCE: usize = 16;
/// A content above this is sent in parts of this size.
const PART: usize = 8 << 20;
/// How long one content may take, beyond a second for each MiB.
const ONE: Duration = Duration::from_secs(20);

/// The names of settings that S3 is reached with: those of `object_store` that a paddock uses.
pub const AWS_NAMES: [&str; 9] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT",
    "AWS_ENDPOINT_URL",
    "AWS_VIRTUAL_HOSTED_STYLE_REQUEST",
    "AWS_METADATA_ENDPOINT",
];

/// Where contents are.
#[derive(Clone, PartialEq, Eq)]
pub struct ObjectsConfig {
    /// `s3://bucket/prefix`.
    pub url: String,
    /// [`AWS_NAMES`] and their values.
    pub options: Vec<(String, String)>,
}

impl std::fmt::Debug for ObjectsConfig {
    /// Without the values, some of which are secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.options.iter().map(|(name, _)| name).collect();
        f.debug_struct("ObjectsConfig").field("url", &self.url).field("options", &names).finish()
    }
}

pub(crate) struct Objects {
    s3: AmazonS3,
    prefix: Path,
}

impl Objects {
    pub(crate) fn open(config: &ObjectsConfig) -> Result<Self, LedgerError> {
        let unusable = |problem: String| LedgerError::Setting { setting: "store.objects", problem };
        let url = url::Url::parse(&config.url).ok().filter(|url| url.scheme() == "s3");
        let Some((bucket, url)) = url.as_ref().and_then(|url| Some((url.host_str()?, url))) else {
            return Err(unusable(format!("is {:?}, must be s3://bucket/prefix", config.url)));
        };
        let retry =
            RetryConfig { max_retries: 4, retry_timeout: Duration::from_secs(8), ..RetryConfig::default() };
        let mut builder = AmazonS3Builder::new()
            .with_http_connector(Connector(Hyper::new()?))
            .with_bucket_name(bucket)
            .with_allow_http(true)
            .with_retry(retry);
        for (name, value) in &config.options {
            let key = name.to_ascii_lowercase().parse::<AmazonS3ConfigKey>();
            let key = key.map_err(|_| unusable(format!("{name} is no setting of S3")))?;
            builder = builder.with_config(key, value);
        }
        let s3 = builder.build().map_err(|error| unusable(error.to_string()))?;
        let prefix =
            Path::parse(url.path().trim_matches('/')).map_err(|error| unusable(error.to_string()))?;
        Ok(Self { s3, prefix })
    }

    /// `<prefix>/<first two digits>/<name>`.
    fn place(&self, name: &str) -> Path {
        self.prefix.clone().join(name.get(..2).unwrap_or("00")).join(name)
    }

    /// Whether the bucket is there and can be read.
    pub(crate) async fn probe(&self) -> Result<(), LedgerError> {
        let mut listed = self.s3.list(Some(&self.prefix));
        match tokio::time::timeout(ONE, listed.try_next()).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(away(&error)),
            Err(_) => Err(LedgerError::ObjectsAway("no answer".to_owned())),
        }
    }

    async fn put(&self, name: &str, content: &Content) -> Result<(), LedgerError> {
        let place = self.place(name);
        let put = async {
            match &content.source {
                Source::Memory(bytes) => self.put_bytes(&place, bytes.clone()).await,
                Source::File(path) if content.bytes <= PART as u64 => {
                    self.put_bytes(&place, tokio::fs::read(path).await.map_err(LedgerError::Local)?.into())
                        .await
                }
                Source::File(path) => self.put_parts(&place, path).await,
            }
        };
        tokio::time::timeout(patience(content.bytes), put)
            .await
            .unwrap_or_else(|_| Err(LedgerError::ObjectsAway("a content took too long".to_owned())))
    }

    async fn put_bytes(&self, place: &Path, bytes: Bytes) -> Result<(), LedgerError> {
        self.s3.put(place, PutPayload::from_bytes(bytes)).await.map_err(|error| away(&error)).map(drop)
    }

    async fn put_parts(&self, place: &Path, path: &FilePath) -> Result<(), LedgerError> {
        let mut file = tokio::fs::File::open(path).await.map_err(LedgerError::Local)?;
        let upload = self.s3.put_multipart(place).await.map_err(|error| away(&error))?;
        let mut upload = WriteMultipart::new_with_chunk_size(upload, PART);
        loop {
            let mut piece = bytes::BytesMut::with_capacity(1 << 20);
            if file.read_buf(&mut piece).await.map_err(LedgerError::Local)? == 0 {
                break;
            }
            upload.wait_for_capacity(2).await.map_err(|error| away(&error))?;
            upload.put(piece.freeze());
        }
        upload.finish().await.map_err(|error| away(&error)).map(drop)
    }

    async fn get(&self, name: &str, bytes: u64, hash: Hash, to: &FilePath) -> Result<(), LedgerError> {
        let damaged = |what: &str| LedgerError::Damaged(format!("{name} {what}"));
        let get = async {
            let got = match self.s3.get(&self.place(name)).await {
                Err(object_store::Error::NotFound { .. }) => return Err(damaged("is not in store.objects")),
                other => other.map_err(|error| away(&error))?,
            };
            let mut file = tokio::fs::File::create_new(to).await.map_err(LedgerError::Local)?;
            let (mut found, mut came) = (Sha256::new(), 0);
            let mut stream = got.into_stream();
            while let Some(piece) = stream.try_next().await.map_err(|error| away(&error))? {
                came += piece.len() as u64;
                if came > bytes {
                    return Err(damaged("is larger than it was"));
                }
                found.update(&piece);
                file.write_all(&piece).await.map_err(LedgerError::Local)?;
            }
            file.flush().await.map_err(LedgerError::Local)?;
            if found.finalize()[..] == hash { Ok(()) } else { Err(damaged("is not what was put there")) }
        };
        tokio::time::timeout(patience(bytes), get)
            .await
            .unwrap_or_else(|_| Err(LedgerError::ObjectsAway("a content took too long".to_owned())))
    }

    /// Deletes these names; those that are gone already count as deleted.
    pub(crate) async fn delete(&self, names: &[String]) -> Result<(), LedgerError> {
        let deletions: Vec<_> = names.iter().map(|name| self.delete_one(name)).collect();
        stream::iter(deletions).buffer_unordered(AT_ONCE).try_collect().await
    }

    async fn delete_one(&self, name: &str) -> Result<(), LedgerError> {
        match self.s3.delete(&self.place(name)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(away(&error)),
        }
    }
}

impl Shared {
    /// Makes sure that S3 has these contents, and that no sweep takes them before they are named.
    pub(crate) async fn store_contents(&self, contents: &[Content]) -> Result<(), LedgerError> {
        if contents.is_empty() {
            return Ok(());
        }
        let mut distinct: Vec<&Content> = contents.iter().collect();
        // All nodes take the rows in one order: none waits for another in a circle.
        distinct.sort_by_key(|content| content.hash);
        distinct.dedup_by_key(|content| content.hash);
        let hashes: Vec<&[u8]> = distinct.iter().map(|content| content.hash.as_slice()).collect();
        let sizes: Vec<i64> =
            distinct.iter().map(|content| i64::try_from(content.bytes).unwrap_or(i64::MAX)).collect();
        let sql = "insert into paddock_objects as o (hash, name, bytes, is_stored, touched) \
                   select u.hash, encode(u.hash, 'hex') || '.' || nextval('paddock_names'), u.bytes, false, \
                   now() \
                   from unnest($1::bytea[], $2::int8[]) with ordinality u (hash, bytes, n) order by u.n \
                   on conflict (hash) do update set touched = now(), marked = null \
                   returning o.hash, o.name, o.is_stored";
        let parameters = [(&hashes as _, Type::BYTEA_ARRAY), (&sizes as _, Type::INT8_ARRAY)];
        let rows = self.database.rows(sql, &parameters).await?;
        let mut missing = Vec::new();
        for row in &rows {
            let (hash, name, is_stored): (&[u8], String, bool) = (row.get(0), row.get(1), row.get(2));
            let of_hash = distinct.binary_search_by(|content| content.hash.as_slice().cmp(hash));
            if let Some(content) = of_hash.ok().and_then(|at| distinct.get(at)).filter(|_| !is_stored) {
                missing.push((name, *content));
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        let puts: Vec<_> = missing.iter().map(|(name, content)| self.objects.put(name, content)).collect();
        stream::iter(puts).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
        let names: Vec<&str> = missing.iter().map(|(name, _)| name.as_str()).collect();
        let sql = "update paddock_objects set is_stored = true where hash in \
                   (select hash from paddock_objects where name = any($1) and not is_stored \
                   order by hash for update)";
        self.database.rows(sql, &[(&names as _, Type::TEXT_ARRAY)]).await?;
        Ok(())
    }
}

impl Ledger {
    /// Fetches contents into files that do not exist yet. Each is what its hash says, or the call fails;
    /// files that were begun are left to the caller.
    ///
    /// # Errors
    /// [`LedgerError::ObjectsAway`], [`LedgerError::DatabaseAway`], [`LedgerError::Damaged`],
    /// [`LedgerError::Local`].
    pub async fn fetch(&self, wanted: &[(Hash, std::path::PathBuf)]) -> Result<(), LedgerError> {
        let hashes: Vec<Hash> = wanted.iter().map(|(hash, _)| *hash).collect();
        let names = self.names(&hashes).await?;
        let mut fetches = Vec::new();
        for (hash, to) in wanted {
            let unknown = || LedgerError::Damaged(format!("nothing is known of {}", hex(hash)));
            let (name, bytes) = names.get(hash).ok_or_else(unknown)?;
            fetches.push(self.shared.objects.get(name, *bytes, *hash, to));
        }
        stream::iter(fetches).buffer_unordered(AT_ONCE).try_collect().await
    }
}

fn patience(bytes: u64) -> Duration {
    ONE + Duration::from_secs(bytes >> 20)
}

/// The error, with its cause: the outermost words name only the request.
fn away(error: &object_store::Error) -> LedgerError {
    let mut words = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let text = error.to_string();
        if !words.contains(&text) {
            words = format!("{words}: {text}");
        }
        cause = error.source();
    }
    LedgerError::ObjectsAway(words.chars().take(500).collect())
}
