//! Lists of packages as callers write them, and their normal form. Pure.
//!
//! ```text
//!  ["Polars == 1.35.2", "networkx==3.5"]  ─ parse ─►  PackageList ["networkx==3.5", "polars==1.35.2"]
//! ```
//!
//! An entry names one exact version of one package, so that a list means the same tomorrow, and calls with
//! the same list share a layer. Nothing else may pass: what an entry becomes is an argument of an installer.
//! So an entry never begins with anything but a letter, a digit or the `@` of a scope, and has no character
//! that an installer, a shell or a URL gives a meaning to.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::pool::Registry;
use crate::sign::mac;

/// Entries of a list: a program names what it imports, and the installer adds what those need.
pub(super) const MAX_ENTRIES: usize = 32;
/// Bytes of a package's name: npm's own bound.
const MAX_NAME: usize = 214;
/// Bytes of a version.
const MAX_VERSION: usize = 64;
/// Characters of an entry that an error repeats.
const SHOWN: usize = 80;
/// What is signed begins with it: no other use of the key does.
const PURPOSE: &str = "paddock: a layer of packages";

/// Names a layer: the same for the same image and the same list, and useless to who does not know the key.
pub(super) type LayerKey = [u8; 32];

/// Packages of one registry, each in one version: sorted, and in the registry's normal form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackageList {
    registry: Registry,
    entries: Vec<String>,
}

/// What is wrong with a list. Each text names the entry and says what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// There are too many entries.
    #[error("has {0} entries, at most {MAX_ENTRIES} are possible; what they need comes with them")]
    TooMany(usize),
    /// An entry is no package in a version.
    #[error("entry {index} is {entry:?}, {problem}")]
    Entry {
        /// Its place, from 0.
        index: usize,
        /// Its beginning.
        entry: String,
        /// What is wrong, and what would be right.
        problem: String,
    },
}

impl PackageList {
    /// Reads a list. `None` if it is empty.
    ///
    /// # Errors
    /// See [`ListError`].
    pub fn parse(registry: Registry, list: &[String]) -> Result<Option<Self>, ListError> {
        if list.len() > MAX_ENTRIES {
            return Err(ListError::TooMany(list.len()));
        }
        let mut versions: BTreeMap<String, String> = BTreeMap::new();
        for (index, text) in list.iter().enumerate() {
            let wrong = |problem: String| {
                let entry = text.chars().take(SHOWN).collect();
                ListError::Entry { index, entry, problem }
            };
            let (name, version) = match registry {
                Registry::PyPi => pypi(text.trim()),
                Registry::Npm => npm(text.trim()),
            }
            .map_err(wrong)?;
            match versions.entry(name) {
                Entry::Vacant(free) => drop(free.insert(version)),
                Entry::Occupied(known) if *known.get() == version => {}
                Entry::Occupied(known) => {
                    let problem = format!("and the list also has version {} of it; name one", known.get());
                    return Err(wrong(problem));
                }
            }
        }
        let between = match registry {
            Registry::PyPi => "==",
            Registry::Npm => "@",
        };
        let entries: Vec<_> =
            versions.into_iter().map(|(name, version)| format!("{name}{between}{version}")).collect();
        Ok((!entries.is_empty()).then_some(Self { registry, entries }))
    }

    /// Whose packages they are.
    pub fn registry(&self) -> Registry {
        self.registry
    }

    /// The entries as the image's installer is given them.
    pub fn entries(&self) -> &[String] {
        &self.entries
    }

    /// The name of the layer that has these packages for this image. An image's id stands for its platform
    /// too.
    pub fn key(&self, secret: &[u8; 32], image: &str) -> LayerKey {
        // No part can contain a line break.
        let parts = [PURPOSE, image, self.registry.as_str(), &self.entries.join("\n")];
        mac(secret, parts.join("\n").as_bytes())
    }
}

const EXACT: &str = "write one exact version, such as";

/// `name==version`, as PEP 503 and PEP 440 have them.
fn pypi(text: &str) -> Result<(String, String), String> {
    const LIKE: &str = "polars==1.35.2";
    plain(text, LIKE)?;
    if text.contains(['[', ']']) {
        return Err(format!("extras are not taken: list what the extra adds by name, each like {LIKE}"));
    }
    let Some((name, version)) = text.split_once("==") else {
        return Err(format!("which names no version: {EXACT} {LIKE}"));
    };
    let (name, version) = (name.trim(), version.trim());
    let ends = |c: char| c.is_ascii_alphanumeric();
    let is_name = name.len() <= MAX_NAME
        && name.starts_with(ends)
        && name.ends_with(ends)
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if !is_name {
        return Err(format!("whose name is none: letters, digits, and - _ . between them, like {LIKE}"));
    }
    if !is_pypi_version(version) {
        return Err(format!("whose version is not exact: no ranges, wildcards or `===`, like {LIKE}"));
    }
    let mut normal = String::new();
    for part in name.split(['-', '_', '.']).filter(|part| !part.is_empty()) {
        if !normal.is_empty() {
            normal.push('-');
        }
        normal.push_str(&part.to_ascii_lowercase());
    }
    Ok((normal, version.to_ascii_lowercase()))
}

/// The characters of a version of PEP 440, which begins with a digit. Whether it is one, the index knows.
fn is_pypi_version(version: &str) -> bool {
    version.len() <= MAX_VERSION
        && version.starts_with(|c: char| c.is_ascii_digit())
        && version.ends_with(|c: char| c.is_ascii_alphanumeric())
        && version.chars().all(|c| c.is_ascii_alphanumeric() || ".!+-_".contains(c))
}

/// `name@version`, or `name==version` as for Python, where the name may have a scope.
fn npm(text: &str) -> Result<(String, String), String> {
    const LIKE: &str = "lodash@4.17.21";
    plain(text, LIKE)?;
    let split = text.split_once("==").or_else(|| {
        let at = text.rfind('@').filter(|at| *at > 0)?;
        Some((&text[..at], &text[at + 1..]))
    });
    let Some((name, version)) = split else {
        return Err(format!("which names no version: {EXACT} {LIKE}"));
    };
    let (name, version) = (name.trim(), version.trim());
    let (scope, bare) = match name.strip_prefix('@').map(|rest| rest.split_once('/')) {
        None => (None, name),
        Some(Some((scope, bare))) => (Some(scope), bare),
        Some(None) => {
            return Err(format!("whose name is none: a scope is followed by a name, @scope/{LIKE}"));
        }
    };
    let is_part = |part: &str| {
        !part.is_empty()
            && !part.starts_with(['.', '_', '-'])
            && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_.".contains(c))
    };
    if name.len() > MAX_NAME || !is_part(bare) || !scope.is_none_or(is_part) {
        return Err(format!("whose name is none: lower case letters, digits, and - _ . in it, like {LIKE}"));
    }
    if !is_npm_version(version) {
        return Err(format!("whose version is not exact: no ranges and no tags like `latest`, but {LIKE}"));
    }
    Ok((name.to_owned(), version.to_owned()))
}

/// `MAJOR.MINOR.PATCH` and what may follow them.
fn is_npm_version(version: &str) -> bool {
    let (numbers, more) = version.split_at(version.find(['-', '+']).unwrap_or(version.len()));
    let parts: Vec<&str> = numbers.split('.').collect();
    version.len() <= MAX_VERSION
        && parts.len() == 3
        && parts.iter().all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
        && more != "-"
        && more.chars().all(|c| c.is_ascii_alphanumeric() || "-+.".contains(c))
}

/// Refuses what is no name with a version, in the words for each kind.
fn plain(text: &str, like: &str) -> Result<(), String> {
    let problem = if text.is_empty() {
        "which is empty"
    } else if text.starts_with('-') {
        "which is an option: an index is the operator's setting (`packages`), and no other option is taken"
    } else if text.contains("://") || text.contains(" @ ") || text.starts_with("git+") {
        "which is a URL: packages come from the registry only"
    } else if text.starts_with(['.', '/', '~']) || text.contains('\\') {
        "which is a path: packages come from the registry only"
    } else if text.contains(';') {
        "which has an environment marker: decide in the caller"
    } else if !text.is_ascii() || text.contains(|c: char| c.is_ascii_control()) {
        "which has characters that no name has"
    } else {
        return Ok(());
    };
    Err(format!("{problem}; {EXACT} {like}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(registry: Registry, list: &[&str]) -> Result<Option<PackageList>, ListError> {
        let list: Vec<String> = list.iter().map(|entry| (*entry).to_owned()).collect();
        PackageList::parse(registry, &list)
    }

    fn entries(registry: Registry, list: &[&str]) -> Vec<String> {
        parse(registry, list).unwrap().unwrap().entries
    }

    #[test]
    fn a_list_has_one_normal_form() {
        let one = entries(Registry::PyPi, &["Polars == 1.35.2", " zope.Interface==8.0.1 ", "a_-.b==1.0RC1"]);
        assert_eq!(one, ["a-b==1.0rc1", "polars==1.35.2", "zope-interface==8.0.1"]);
        assert_eq!(one, entries(Registry::PyPi, &["A.B==1.0rc1", "zope-interface==8.0.1", "polars==1.35.2"]));
        assert_eq!(entries(Registry::PyPi, &["x==1", "X==1"]), ["x==1"]);
        assert_eq!(entries(Registry::PyPi, &["x==1!2.0.post1+cpu"]), ["x==1!2.0.post1+cpu"]);
        let npm = entries(Registry::Npm, &["lodash==4.17.21", "@babel/core@7.28.0", "zod@4.0.0-beta.1+x"]);
        assert_eq!(npm, ["@babel/core@7.28.0", "lodash@4.17.21", "zod@4.0.0-beta.1+x"]);
        assert_eq!(parse(Registry::PyPi, &[]), Ok(None));
    }

    #[test]
    fn what_is_no_package_in_a_version_is_refused_with_its_reason() {
        for (entry, reason) in [
            ("", "empty"),
            ("  ", "empty"),
            ("-r requirements.txt", "option"),
            ("--index-url=http://evil/==1", "option"),
            ("http://evil/x.whl", "URL"),
            ("x @ http://evil/x.whl", "URL"),
            ("git+https://evil/x==1", "URL"),
            ("./x==1", "path"),
            ("/data/x.whl", "path"),
            ("..\\x==1", "path"),
            ("x==1; python_version<'4'", "marker"),
            ("uvicorn[standard]==0.30.0", "extras"),
            ("polars", "no version"),
            ("polars>=1", "no version"),
            ("polars~=1.0", "no version"),
            ("polars==1.*", "not exact"),
            ("polars===1", "not exact"),
            ("polars==1,<2", "not exact"),
            ("polars==1 --hash=sha256:0", "not exact"),
            ("polars==", "not exact"),
            ("polars==latest", "not exact"),
            ("==1", "name"),
            ("-==1", "option"),
            ("p olars==1", "name"),
            ("polars/x==1", "name"),
            ("pölars==1", "characters"),
            ("polars==1\n--pre", "characters"),
            ("a\0==1", "characters"),
        ] {
            let error = parse(Registry::PyPi, &["ok==1", entry]).unwrap_err().to_string();
            let like = error.contains("polars==1.35.2");
            assert!(error.contains(reason) && error.contains("entry 1 is ") && like, "{entry:?}: {error}");
        }
        for (entry, reason) in [
            ("lodash", "no version"),
            ("@babel/core", "no version"),
            ("@babel@1.0.0", "scope"),
            ("@/core@1.0.0", "name"),
            ("lodash@latest", "not exact"),
            ("lodash@^4.17.21", "not exact"),
            ("lodash@4.17", "not exact"),
            ("lodash@4.17.x", "not exact"),
            ("lodash@npm:other@1.0.0", "name"),
            ("Lodash@1.0.0", "name"),
            (".bin@1.0.0", "path"),
            ("--ignore-scripts=false", "option"),
            ("a/b@1.0.0", "name"),
            ("git+ssh://x@1.0.0", "URL"),
            ("x@file:../y", "not exact"),
        ] {
            let error = parse(Registry::Npm, &[entry]).unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains("lodash@4.17.21"), "{entry:?}: {error}");
        }
        let two = parse(Registry::PyPi, &["x==1", "X==2"]).unwrap_err().to_string();
        assert!(two.contains("version 1 of it"), "{two}");
        let many: Vec<&str> = std::iter::repeat_n("x==1", MAX_ENTRIES + 1).collect();
        assert_eq!(parse(Registry::PyPi, &many), Err(ListError::TooMany(MAX_ENTRIES + 1)));
        let long = format!("{}==1", "x".repeat(5000));
        assert!(parse(Registry::PyPi, &[&long]).unwrap_err().to_string().len() < 400);
    }

    #[test]
    fn a_layer_is_named_by_its_image_its_registry_its_list_and_the_key() {
        let list = |entries: &[&str]| parse(Registry::PyPi, entries).unwrap().unwrap();
        let name = list(&["a==1", "b==1"]).key(&[1; 32], "sha256:1");
        assert_eq!(name, list(&["B==1", "a==1"]).key(&[1; 32], "sha256:1"));
        let others = [
            list(&["a==1"]).key(&[1; 32], "sha256:1"),
            list(&["a==1", "b==1"]).key(&[2; 32], "sha256:1"),
            list(&["a==1", "b==1"]).key(&[1; 32], "sha256:2"),
        ];
        assert!(others.iter().all(|other| *other != name));
    }

    proptest! {
        /// Whatever is taken is a plain argument, and is taken again as what it became.
        #[test]
        fn what_is_taken_is_a_plain_argument(text in "[-@a-zA-Z0-9._=!+~<>;/:\\[\\] *]{0,24}", is_npm: bool) {
            let registry = if is_npm { Registry::Npm } else { Registry::PyPi };
            if let Ok(Some(list)) = PackageList::parse(registry, &[text]) {
                let entry = list.entries[0].clone();
                prop_assert!(entry.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '@'), "{}", entry);
                let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.=@/!+".contains(c);
                prop_assert!(entry.chars().all(is_plain), "{}", entry);
                prop_assert_eq!(PackageList::parse(registry, &[entry]).unwrap().unwrap(), list);
            }
        }
    }
}
