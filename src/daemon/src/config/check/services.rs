//! The services that programs may use with credentials that they do not see. Their values are read here, so
//! that a daemon does not start without one. No message must ever have a part of a value.

use std::collections::BTreeMap;
use std::path::Path;

use http::header::{HeaderName, HeaderValue};

use super::Checker;
use crate::config::error::ConfigError;
use crate::config::raw::ServiceTable;
use crate::config::types::AuthSettings;
use crate::config::value::Secret;
use crate::egress::service::{self, settings};
use crate::egress::{BaseUrl, HeaderSource, HostName, SecretText, ServiceHeader, ServiceSettings};
use crate::sign::DEFAULT_OWNER;

/// Services of one daemon, and headers of one service.
pub(super) const SERVICES: usize = 256;
const HEADERS: usize = 32;

const TAKES: &str =
    "takes \"env:NAME\" or \"file:PATH\", with a scheme in front if it needs one: \"Bearer env:NAME\"";

/// Words in the names of headers that carry credentials.
const SECRET_WORDS: [&str; 7] = ["auth", "key", "token", "secret", "password", "cookie", "credential"];

impl Checker<'_> {
    pub(super) fn services(
        &mut self,
        tables: Vec<ServiceTable>,
        auth: &AuthSettings,
    ) -> Result<Vec<ServiceSettings>, ConfigError> {
        if tables.len() > SERVICES {
            let problem = format!("has {} entries, must have at most {SERVICES}", tables.len());
            return Err(self.fail("egress.services", problem));
        }
        let mut all: Vec<ServiceSettings> = Vec::new();
        for (at, table) in tables.into_iter().enumerate() {
            let path = format!("egress.services[{at}]");
            let ServiceTable { name, url, headers, tenants } = table;
            self.service_name(&format!("{path}.name"), &name)?;
            if all.iter().any(|other| other.name == name) {
                let problem = format!("is {name:?}, which is the name of another service here");
                return Err(self.fail(&format!("{path}.name"), problem));
            }
            let url = BaseUrl::parse(&url).map_err(|problem| self.fail(&format!("{path}.url"), problem))?;
            let headers = self.headers(&path, &headers)?;
            self.warn_if_plain(&path, &url, &headers);
            self.tenants(&path, &tenants, auth)?;
            all.push(ServiceSettings { name, url, headers, tenants, model: None });
        }
        Ok(all)
    }

    /// A service's name is a label of a host name.
    pub(super) fn service_name(&self, key: &str, name: &str) -> Result<(), ConfigError> {
        let is_label =
            name.parse::<HostName>().is_ok_and(|label| label.as_str() == name) && !name.contains(['.', '_']);
        if is_label {
            return Ok(());
        }
        let takes = "takes a label of a host name: lower case letters, digits and hyphens";
        Err(self.fail(key, format!("is {name:?}, {takes}")))
    }

    pub(super) fn headers(
        &self,
        path: &str,
        headers: &BTreeMap<String, Secret>,
    ) -> Result<Vec<ServiceHeader>, ConfigError> {
        if headers.len() > HEADERS {
            let problem = format!("has {} entries, must have at most {HEADERS}", headers.len());
            return Err(self.fail(&format!("{path}.headers"), problem));
        }
        let header = |(name, value): (&String, &Secret)| {
            self.header(&format!("{path}.headers.{name}"), name, value.expose())
        };
        headers.iter().map(header).collect()
    }

    pub(super) fn warn_if_plain(&mut self, path: &str, url: &BaseUrl, headers: &[ServiceHeader]) {
        if !url.is_https() && !headers.is_empty() && !super::access::is_loopback(url.authority()) {
            self.warn(format!(
                "{path}.url is reached without TLS: anyone on the network in between can read its headers"
            ));
        }
    }

    /// Each is somebody who can call.
    pub(super) fn tenants(
        &mut self,
        path: &str,
        tenants: &[String],
        auth: &AuthSettings,
    ) -> Result<(), ConfigError> {
        for (at, tenant) in tenants.iter().enumerate() {
            let is_known = tenant == settings::EVERYBODY
                || tenant == DEFAULT_OWNER
                || auth.tokens.iter().any(|token| &token.name == tenant);
            if !is_known && auth.tokens_file.guards() {
                self.warn(format!(
                    "{path}.tenants[{at}] is {tenant:?}, which is the name of no token in `auth`: it takes \
                     effect once a token of the tokens file has this name"
                ));
            } else if !is_known {
                let problem = format!(
                    "is {tenant:?}, takes the name of a token in `auth`, {DEFAULT_OWNER:?} for auth.token \
                     and for callers without one, or \"*\" for every caller"
                );
                return Err(self.fail(&format!("{path}.tenants[{at}]"), problem));
            }
        }
        if tenants.is_empty() {
            self.warn(format!("{path}.tenants is empty: nobody may use this service"));
        }
        Ok(())
    }

    pub(super) fn header(&self, key: &str, name: &str, value: &str) -> Result<ServiceHeader, ConfigError> {
        let parsed = HeaderName::try_from(name).ok().filter(|name| service::is_configurable(name.as_str()));
        let parsed = parsed.ok_or_else(|| {
            self.fail(key, "takes the name of a header that is not between two neighbours only, nor Host")
        })?;
        let (before, source) = match reference(value) {
            Some((before, Reference::Variable(variable))) => {
                let text = self.env.get(variable).ok_or_else(|| {
                    self.fail(key, format!("takes the value of the variable {variable:?}, which is not set"))
                })?;
                let value = SecretText::new(text)
                    .map_err(|error| self.fail(key, format!("the variable {variable:?} {error}")))?;
                (before, HeaderSource::Variable(value))
            }
            Some((before, Reference::File(file))) => {
                let file = self.absolute(key, file)?;
                let value = self.value_of(key, &file)?;
                (before, HeaderSource::File(file, value))
            }
            None if SECRET_WORDS.iter().any(|word| parsed.as_str().contains(word)) => {
                return Err(self.fail(key, format!("has a text as its value, {TAKES}")));
            }
            None => ("", HeaderSource::Text(value.to_owned())),
        };
        let header = ServiceHeader { name: parsed, before: before.to_owned(), source };
        let text = if let HeaderSource::Text(text) = &header.source { text } else { "" };
        if HeaderValue::try_from(format!("{}{text}", header.before)).is_err() {
            return Err(self.fail(key, "has a character that no header can carry"));
        }
        Ok(header)
    }

    fn value_of(&self, key: &str, file: &Path) -> Result<SecretText, ConfigError> {
        service::read_credential(file)
            .map_err(|problem| self.fail(key, format!("takes the value of {problem}")))
    }
}

enum Reference<'a> {
    Variable(&'a str),
    File(&'a str),
}

/// The file that a value of the configuration names as the place of a credential.
pub(super) fn credential_file(value: &str) -> Option<&Path> {
    match reference(value) {
        Some((_, Reference::File(file))) => Some(Path::new(file)),
        Some((_, Reference::Variable(_))) | None => None,
    }
}

/// What stands in front of a reference, and the reference; `None` if the value is a text.
fn reference(value: &str) -> Option<(&str, Reference<'_>)> {
    // The first one counts: a path may have spaces.
    let begins = |at: &usize| ["env:", "file:"].iter().any(|kind| value[*at..].starts_with(kind));
    let words = std::iter::once(0).chain(value.match_indices(' ').map(|(space, _)| space + 1));
    let (before, rest) = value.split_at(words.into_iter().find(begins)?);
    if let Some(name) = rest.strip_prefix("env:") {
        return Some((before, Reference::Variable(name)));
    }
    rest.strip_prefix("file:").map(|path| (before, Reference::File(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_may_have_a_scheme_in_front_and_a_path_with_spaces() {
        for (value, before, expected) in [
            ("env:KEY", "", Some("KEY")),
            ("Bearer env:KEY", "Bearer ", Some("KEY")),
            ("file:/run/my secrets/a", "", Some("/run/my secrets/a")),
            ("token file:/run/a env:b", "token ", Some("/run/a env:b")),
            ("2023-06-01", "", None),
            ("an environment", "", None),
            ("", "", None),
        ] {
            let found = reference(value);
            let named = found.as_ref().map(|(_, Reference::Variable(name) | Reference::File(name))| *name);
            assert_eq!(
                (found.as_ref().map_or("", |(before, _)| before), named),
                (before, expected),
                "{value}"
            );
        }
    }
}
