//! Finds the runner for the name of a language. A caller may give the runner's own name or another common
//! name of the language.
//!
//! A runner of exactly that name always wins. It must never guess: a similar name is only a suggestion.

use std::sync::Arc;

use super::{Code, Fault};
use crate::pool::{Pool, Runner};

/// Names that people use for languages, and the runners that can run them, the best first. All in lower case.
const ALIASES: &[(&str, &[&str])] = &[
    ("py", &["python"]),
    ("python3", &["python"]),
    ("ts", &["typescript"]),
    // Every program in JavaScript is one in TypeScript.
    ("javascript", &["typescript"]),
    ("js", &["javascript", "typescript"]),
    ("node", &["javascript", "typescript"]),
    ("nodejs", &["javascript", "typescript"]),
    ("shell", &["sh", "bash"]),
    ("bash", &["sh"]),
    ("sh", &["bash"]),
];

/// How similar a name must be to be suggested, by Jaro and Winkler: one or two letters are wrong.
const SIMILAR: f64 = 0.8;

/// The runner of a language.
///
/// # Errors
/// There is none; the message suggests a similar name and lists all.
pub(super) fn runner(pool: &Pool, language: &str) -> Result<Arc<Runner>, Fault> {
    let runners = pool.languages();
    let names = runners.keys().map(String::as_str);
    if let Some((_, runner)) = meant(language, names.clone()).and_then(|name| runners.get(name)) {
        return Ok(runner.clone());
    }
    let hint = similar(language, names).map_or_else(String::new, |name| format!("; did you mean {name}?"));
    let shown: String = language.chars().take(40).collect();
    let known: Vec<_> = runners.keys().map(String::as_str).collect();
    let known = if known.is_empty() { "none: no runner image was found".into() } else { known.join(", ") };
    let message = format!("no runner for language {shown:?}{hint}; there are: {known}");
    Err(Fault::new(Code::UnknownLanguage, message))
}

/// The runner that is meant, of the known ones.
fn meant<'a>(asked: &str, known: impl Iterator<Item = &'a str> + Clone) -> Option<&'a str> {
    let named = |name: &str| known.clone().find(|known| *known == name);
    let lower = || asked.trim().to_lowercase();
    named(asked).or_else(|| named(&lower())).or_else(|| {
        let lower = lower();
        let (_, runners) = ALIASES.iter().find(|(alias, _)| *alias == lower)?;
        runners.iter().find_map(|runner| named(runner))
    })
}

/// The name that was probably meant.
fn similar<'a>(asked: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let lower = asked.trim().to_lowercase();
    let scored = known.map(|known| (strsim::jaro_winkler(&lower, known), known));
    let best = scored.filter(|(score, _)| *score >= SIMILAR).max_by(|(a, _), (b, _)| a.total_cmp(b));
    best.map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_language_is_found_by_the_names_that_people_use() {
        let ours = ["python", "sh", "typescript"];
        for (asked, expected) in [
            ("python", Some("python")),
            ("Python", Some("python")),
            (" PY ", Some("python")),
            ("python3", Some("python")),
            ("ts", Some("typescript")),
            ("TypeScript", Some("typescript")),
            ("javascript", Some("typescript")),
            ("JS", Some("typescript")),
            ("node", Some("typescript")),
            ("bash", Some("sh")),
            ("shell", Some("sh")),
            ("Sh", Some("sh")),
            ("ruby", None),
            ("pythn", None),
            ("", None),
        ] {
            assert_eq!(meant(asked, ours.into_iter()), expected, "{asked:?}");
        }
        assert_eq!(meant("js", ["python"].into_iter()), None, "nothing runs it");
    }

    #[test]
    fn a_runner_of_that_very_name_wins() {
        let all = ["Python", "bash", "javascript", "js", "python", "sh", "typescript"];
        for name in all {
            assert_eq!(meant(name, all.into_iter()), Some(name));
        }
        assert_eq!(meant("node", all.into_iter()), Some("javascript"), "before what merely takes it too");
        assert_eq!(meant("sh", ["bash"].into_iter()), Some("bash"));
    }

    #[test]
    fn what_is_similar_is_suggested_and_nothing_else() {
        let ours = ["python", "sh", "typescript"];
        for (asked, expected) in [
            ("pyhton", Some("python")),
            ("pythn", Some("python")),
            ("Typescrip", Some("typescript")),
            ("cobol", None),
            ("ruby", None),
            ("", None),
            ("日本語", None),
        ] {
            assert_eq!(similar(asked, ours.into_iter()), expected, "{asked:?}");
        }
    }
}
