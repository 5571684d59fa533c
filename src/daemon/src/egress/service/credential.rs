//! The headers that the daemon adds, with the values of now: a file is read again when it has changed.
//!
//! It must never send a value that its file does not have any more, nor forget so soon what it sent before:
//! answers can still have it.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use http::header::{HeaderName, HeaderValue};
use tokio::sync::Mutex;

use super::mask::Patterns;
use super::settings::{HeaderSource, LONGEST, SecretError, SecretText, ServiceHeader};

/// Values that are still masked after they were replaced.
const EARLIER: usize = 8;

/// Why there is no value. It says nothing of the value.
#[derive(Debug, thiserror::Error)]
pub(super) enum CredentialError {
    #[error("{path}: cannot be read: {kind}")]
    Read { path: String, kind: io::ErrorKind },
    #[error("{path}: {problem}")]
    Value { path: String, problem: SecretError },
}

/// What goes with one request, and what is masked in its answer.
pub(super) struct Current {
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) patterns: Arc<Patterns>,
}

/// The credentials of one service.
pub(super) struct Credentials {
    headers: Vec<ServiceHeader>,
    known: Mutex<Known>,
}

struct Known {
    /// By header: what its file was like when it was last read.
    stamps: Vec<Option<Stamp>>,
    /// The value of each header; `None` where the value is not masked.
    values: Vec<Option<SecretText>>,
    earlier: Vec<SecretText>,
    current: Option<Arc<Current>>,
}

/// What changes when somebody writes a file, or puts another in its place.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    file: (u64, u64),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Credentials {
    pub(super) fn new(headers: &[ServiceHeader]) -> Self {
        let value = |header: &ServiceHeader| match &header.source {
            HeaderSource::Text(_) => None,
            HeaderSource::Variable(value) | HeaderSource::File(_, value) => Some(value.clone()),
        };
        let known = Known {
            stamps: vec![None; headers.len()],
            values: headers.iter().map(value).collect(),
            earlier: Vec::new(),
            current: None,
        };
        Self { headers: headers.to_vec(), known: Mutex::new(known) }
    }

    /// The values of now.
    ///
    /// # Errors
    /// A file cannot be read, or has no credential in it.
    pub(super) async fn current(&self) -> Result<Arc<Current>, CredentialError> {
        let mut known = self.known.lock().await;
        let mut changed = known.current.is_none();
        for (at, header) in self.headers.iter().enumerate() {
            let HeaderSource::File(path, _) = &header.source else { continue };
            let stamp = stamp(path).await?;
            if known.stamps[at] == Some(stamp) {
                continue;
            }
            let value = read(path).await?;
            if known.values[at].as_ref() != Some(&value) {
                let earlier = known.values[at].replace(value);
                known.earlier.splice(0..0, earlier);
                known.earlier.truncate(EARLIER);
            }
            known.stamps[at] = Some(stamp);
            changed = true;
        }
        if let (false, Some(current)) = (changed, &known.current) {
            return Ok(current.clone());
        }
        let current = Arc::new(self.with(&known));
        known.current = Some(current.clone());
        Ok(current)
    }

    fn with(&self, known: &Known) -> Current {
        let header = |(header, value): (&ServiceHeader, &Option<SecretText>)| {
            let value = match (&header.source, value) {
                (HeaderSource::Text(text), _) => header.with(text),
                (HeaderSource::Variable(_) | HeaderSource::File(..), value) => {
                    header.with(value.as_ref()?.expose())
                }
            };
            Some((header.name.clone(), value?))
        };
        let whole = self
            .headers
            .iter()
            .zip(&known.values)
            .filter_map(|(header, value)| Some(format!("{}{}", header.before, value.as_ref()?.expose())));
        let whole: Vec<String> = whole.collect();
        let all = known.values.iter().flatten().chain(&known.earlier).map(SecretText::expose);
        let patterns = Arc::new(Patterns::of(all.chain(whole.iter().map(String::as_str))));
        Current { headers: self.headers.iter().zip(&known.values).filter_map(header).collect(), patterns }
    }
}

async fn stamp(path: &Path) -> Result<Stamp, CredentialError> {
    let found = tokio::fs::metadata(path).await.map_err(|error| unread(path, &error))?;
    Ok(Stamp {
        file: (found.dev(), found.ino()),
        size: found.size(),
        modified: (found.mtime(), found.mtime_nsec()),
        changed: (found.ctime(), found.ctime_nsec()),
    })
}

async fn read(path: &Path) -> Result<SecretText, CredentialError> {
    let path = path.to_owned();
    let shown = path.clone();
    let read = tokio::task::spawn_blocking(move || read_file(&path)).await;
    read.unwrap_or_else(|_| Err(unread(&shown, &io::ErrorKind::Interrupted.into())))
}

/// Reads a value from a file.
///
/// # Errors
/// It cannot be read, or has no credential in it.
pub(super) fn read_file(path: &Path) -> Result<SecretText, CredentialError> {
    use std::io::Read;
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|error| unread(path, &error))?;
    // More than the longest value and some white space is refused anyway.
    let most = 2 * LONGEST as u64;
    file.take(most).read_to_string(&mut text).map_err(|error| unread(path, &error))?;
    SecretText::new(&text)
        .map_err(|problem| CredentialError::Value { path: path.display().to_string(), problem })
}

fn unread(path: &Path, error: &io::Error) -> CredentialError {
    CredentialError::Read { path: path.display().to_string(), kind: error.kind() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(source: HeaderSource) -> ServiceHeader {
        ServiceHeader { name: http::header::AUTHORIZATION, before: "Bearer ".into(), source }
    }

    fn masked(current: &Current, text: &str) -> String {
        let mut bytes = text.as_bytes().to_vec();
        current.patterns.mask(&mut bytes);
        String::from_utf8(bytes).expect("text")
    }

    #[tokio::test]
    async fn a_rotated_key_is_sent_at_once_and_the_old_one_is_still_masked() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("key");
        std::fs::write(&path, "first-value\n").expect("a file");
        let source = HeaderSource::File(path.clone(), read_file(&path).expect("a value"));
        let credentials = Credentials::new(&[header(source)]);
        let first = credentials.current().await.expect("a value");
        assert_eq!(first.headers[0].1, "Bearer first-value");
        assert!(Arc::ptr_eq(&first, &credentials.current().await.expect("a value")), "nothing has changed");
        // As a secret manager does it: another file in its place.
        std::fs::write(dir.path().join("new"), "other-value\n").expect("a file");
        std::fs::rename(dir.path().join("new"), &path).expect("a rename");
        let second = credentials.current().await.expect("a value");
        assert_eq!(second.headers[0].1, "Bearer other-value");
        assert_eq!(masked(&second, "first-value other-value"), "*********** ***********");
        std::fs::remove_file(&path).expect("a file");
        let Err(error) = credentials.current().await else { panic!("a removed key is still sent") };
        assert!(error.to_string().ends_with("key: cannot be read: entity not found"), "{error}");
        std::fs::write(&path, "x").expect("a file");
        let Err(error) = credentials.current().await else { panic!("a key that is none is sent") };
        assert!(error.to_string().contains("must have at least 8"), "{error}");
    }

    #[tokio::test]
    async fn a_text_of_the_configuration_is_no_secret_and_is_not_masked() {
        let headers = [
            header(HeaderSource::Variable(SecretText::new("a-credential").expect("a value"))),
            ServiceHeader {
                name: HeaderName::from_static("x-version"),
                before: String::new(),
                source: HeaderSource::Text("2023-06-01".into()),
            },
        ];
        let current = Credentials::new(&headers).current().await.expect("a value");
        assert_eq!(current.headers[1].1, "2023-06-01");
        assert_eq!(masked(&current, "a-credential 2023-06-01"), "************ 2023-06-01");
    }
}
