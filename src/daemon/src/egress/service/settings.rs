//! The services as an operator wrote them, checked. The values are read when the daemon starts, so that a
//! missing one is found then.
//!
//! No `Debug` here shows a value.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use http::header::{HeaderName, HeaderValue};
use url::Url;

use super::super::host_name::HostName;
use super::model::ModelSettings;

/// Every caller, in the list of tenants.
pub const EVERYBODY: &str = "*";

/// The name below which services are, inside of containers.
pub const ZONE: &str = "paddock";

/// Bytes of the shortest value: a shorter one would be masked in much that has nothing to do with it.
pub const SHORTEST: usize = 8;

/// Bytes of the longest value.
pub const LONGEST: usize = 8192;

/// A service.
#[derive(Debug, Clone)]
#[cfg_attr(test, derive(PartialEq))]
pub struct ServiceSettings {
    /// Its name, a label of a host name: programs reach it as `http://NAME.paddock/`.
    pub name: String,
    /// What programs reach by it.
    pub url: BaseUrl,
    /// What the daemon adds to each request.
    pub headers: Vec<ServiceHeader>,
    /// The names of the tokens whose callers may use it, or [`EVERYBODY`].
    pub tenants: Vec<String>,
    /// What makes it a model, if it is one.
    pub model: Option<ModelSettings>,
}

/// A header that the daemon adds.
#[derive(Debug, Clone)]
#[cfg_attr(test, derive(PartialEq))]
pub struct ServiceHeader {
    /// Its name.
    pub name: HeaderName,
    /// What stands before the value, such as `Bearer `.
    pub before: String,
    /// Its value.
    pub source: HeaderSource,
}

impl ServiceHeader {
    /// The header with a value; `None` if a header cannot have it.
    pub(super) fn with(&self, value: &str) -> Option<HeaderValue> {
        let mut value = HeaderValue::try_from(format!("{}{value}", self.before)).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

/// Where a value comes from.
#[derive(Debug, Clone)]
#[cfg_attr(test, derive(PartialEq))]
pub enum HeaderSource {
    /// It stands in the configuration: no secret.
    Text(String),
    /// From a variable of the daemon's environment.
    Variable(SecretText),
    /// From a file, with what was in it when the daemon started.
    File(PathBuf, SecretText),
}

/// A value that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(Arc<str>);

/// What is wrong with a value. The text follows the name of its source in a sentence, and has no part of the
/// value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// It is too short.
    #[error("has {0} bytes, must have at least {SHORTEST}: a shorter value cannot be masked in answers")]
    Short(usize),
    /// It is too long.
    #[error("has {0} bytes, must have at most {LONGEST}")]
    Long(usize),
    /// A header cannot carry it.
    #[error("has a line break or another character that no header can carry")]
    Characters,
}

impl SecretText {
    /// A value as a variable or a file has it: white space around it is not part of it.
    ///
    /// # Errors
    /// It cannot be a credential.
    pub fn new(text: &str) -> Result<Self, SecretError> {
        let text = text.trim();
        match text.len() {
            length if length < SHORTEST => Err(SecretError::Short(length)),
            length if length > LONGEST => Err(SecretError::Long(length)),
            _ if !text.bytes().all(|b| b == b' ' || b.is_ascii_graphic()) => Err(SecretError::Characters),
            _ => Ok(Self(text.into())),
        }
    }

    pub(super) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

/// The URL of a service: http or https, with neither a user nor a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseUrl(Url);

impl BaseUrl {
    /// Reads a URL.
    ///
    /// # Errors
    /// What is wrong with it, as the end of a sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        let takes = "takes an http or https URL such as \"https://api.example.com/v1\"";
        let url = Url::parse(text).map_err(|error| format!("is {text:?} ({error}), {takes}"))?;
        // A URL may have a password, which no message may show.
        if !url.username().is_empty() || url.password().is_some() {
            return Err(format!(
                "has a user or a password in it, {takes}; credentials belong into `headers`"
            ));
        }
        if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
            return Err(format!("is {text:?}, {takes}"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(format!("is {text:?}, {takes}, without a query and a fragment"));
        }
        Ok(Self(url))
    }

    /// Whether the daemon speaks TLS to it.
    pub fn is_https(&self) -> bool {
        self.0.scheme() == "https"
    }

    /// Its host, with its port if it names one.
    pub fn authority(&self) -> &str {
        &self.0[url::Position::BeforeHost..url::Position::AfterPort]
    }

    /// The whole of it.
    pub(super) fn url(&self) -> &Url {
        &self.0
    }

    /// Its path without a slash at the end.
    pub(super) fn folder(&self) -> &str {
        self.0.path().trim_end_matches('/')
    }

    /// Its scheme, host and port.
    pub(super) fn origin(&self) -> &str {
        &self.0[..url::Position::BeforePath]
    }
}

/// The label that stands before [`ZONE`] in a name; `None` if the name is not in it. A name that cannot be of
/// a service has an empty label, or one with dots.
pub fn label(name: &HostName) -> Option<&str> {
    let name = name.as_str();
    if name == ZONE { Some("") } else { name.strip_suffix(ZONE)?.strip_suffix('.') }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_that_could_hide_a_credential_or_a_second_meaning_is_refused() {
        for (text, wanted) in [
            ("ftp://a.example/", "takes an http or https URL"),
            ("a.example", "takes an http or https URL"),
            ("https://u:hunter22@a.example/", "has a user or a password in it"),
            ("https://a.example/?key=1", "without a query"),
            ("https://a.example/#x", "without a query"),
        ] {
            let error = BaseUrl::parse(text).expect_err(text);
            assert!(error.contains(wanted) && !error.contains("hunter22"), "{error}");
        }
        let url = BaseUrl::parse("https://A.example:443/v1/../v2/").expect("a URL");
        assert_eq!((url.origin(), url.folder()), ("https://a.example", "/v2"));
        assert_eq!(BaseUrl::parse("http://127.0.0.1:8000").expect("a URL").folder(), "");
    }

    #[test]
    fn a_value_is_never_shown_and_one_that_cannot_be_masked_is_refused() {
        let value = SecretText::new(" sk-123456\n").expect("a value");
        assert_eq!(value.expose(), "sk-123456");
        let header = ServiceHeader {
            name: http::header::AUTHORIZATION,
            before: "Bearer ".into(),
            source: HeaderSource::Variable(value.clone()),
        };
        let sent = header.with(value.expose()).expect("a header");
        assert_eq!(sent, "Bearer sk-123456");
        assert!(!format!("{header:?} {sent:?}").contains("sk-"), "{header:?} {sent:?}");
        assert_eq!(SecretText::new("short\n"), Err(SecretError::Short(5)));
        assert_eq!(SecretText::new("two\nlines"), Err(SecretError::Characters));
        assert_eq!(SecretText::new(&"x".repeat(9000)), Err(SecretError::Long(9000)));
    }

    #[test]
    fn names_of_the_zone_are_known_by_their_end() {
        for (name, expected) in [
            ("git.paddock", Some("git")),
            ("GIT.Paddock.", Some("git")),
            ("a.git.paddock", Some("a.git")),
            ("paddock", Some("")),
            ("gitpaddock", None),
            ("git.paddock.example", None),
        ] {
            assert_eq!(label(&name.parse().expect("a name")), expected, "{name}");
        }
    }
}
