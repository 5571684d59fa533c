//! The libraries of a runner, for a program that failed because a module is missing: a model then sees at
//! once what it can use in its place.
//!
//! It must never name a library that the image does not list.

use super::hint::missing_module;
use crate::tools::Tools;

/// How similar a name must be to be called the closest, by Jaro and Winkler: a letter or two are wrong, or a
/// part is missing.
const SIMILAR: f64 = 0.88;

impl Tools {
    /// Adds to the hint for a missing module what the runner of this language has.
    pub(in crate::tools) fn with_libraries(
        &self,
        hint: Option<String>,
        stderr: &str,
        failed: bool,
        language: &str,
    ) -> Option<String> {
        let hint = hint?;
        let Some(module) = missing_module(stderr).filter(|_| failed) else { return Some(hint) };
        let runners = self.services.pool.runners();
        let libraries = runners.get(language).map(|(_, runner)| runner.libraries.as_str());
        Some(hint + &sentence(module, libraries.unwrap_or_default()))
    }
}

/// The sentence, with the space before it; nothing if the image lists nothing. `libraries` is the label
/// `sandbox.libraries`: `name=version,name=version`.
fn sentence(module: &str, libraries: &str) -> String {
    let names: Vec<&str> = libraries
        .split(',')
        .filter_map(|entry| entry.split('=').next())
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .collect();
    if names.is_empty() {
        return String::new();
    }
    let close = closest(module, &names).map_or_else(String::new, |name| format!("; did you mean {name}?"));
    format!(" They are {}{close}{}", names.join(", "), if close.is_empty() { "." } else { "" })
}

/// The library whose name is most like that of the module, or of what the module is in.
fn closest<'a>(module: &str, names: &[&'a str]) -> Option<&'a str> {
    let plain = |name: &str| name.to_lowercase().replace(['_', '-'], "");
    let wanted = plain(module.split(['.', '/']).find(|part| !part.is_empty()).unwrap_or(module));
    let scored = names.iter().map(|name| (strsim::jaro_winkler(&wanted, &plain(name)), *name));
    let best = scored.filter(|(score, _)| *score >= SIMILAR).max_by(|(a, _), (b, _)| a.total_cmp(b));
    best.map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LABEL: &str = "numpy=2.3.5,scikit-learn=1.8.0,polars=1.31.0,xlsxwriter=3.3.1,python-docx=1.2.0";

    #[test]
    fn what_the_image_has_is_named_without_versions() {
        let all = " They are numpy, scikit-learn, polars, xlsxwriter, python-docx";
        assert_eq!(sentence("torch", LABEL), format!("{all}."));
        assert_eq!(sentence("polar", LABEL), format!("{all}; did you mean polars?"));
        assert_eq!(sentence("torch", ""), "");
        assert_eq!(sentence("torch", " , ="), "");
        assert_eq!(sentence("torch", "numpy"), " They are numpy.");
    }

    #[test]
    fn a_name_that_is_nearly_right_finds_its_library() {
        let names: Vec<_> = LABEL.split(',').filter_map(|entry| entry.split('=').next()).collect();
        for (module, expected) in [
            ("scikit_learn", Some("scikit-learn")),
            ("scikitlearn.cluster", Some("scikit-learn")),
            ("xlswriter", Some("xlsxwriter")),
            ("Polars", Some("polars")),
            ("python_docx", Some("python-docx")),
            ("torch", None),
            ("tensorflow.keras", None),
            ("", None),
            (".", None),
        ] {
            assert_eq!(closest(module, &names), expected, "{module}");
        }
    }
}
