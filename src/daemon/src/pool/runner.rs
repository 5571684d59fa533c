//! Runners: images that can run a language, found on the engine by their labels.
//!
//! It must never run anything to find out what an image is, nor trust a label further than as text.

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::{Engine, EngineError, ImageDetail, ImageRef};

/// The label that makes an image a runner.
pub(super) const LABEL: &str = "sandbox.runner=true";
const LANGUAGE: &str = "sandbox.language";
const LIBRARIES: &str = "sandbox.libraries";
const STDIN: &str = "sandbox.stdin";
const WARM: &str = "sandbox.warm";

/// The longest language name.
const MAX_LANGUAGE: usize = 32;
/// The longest list of libraries that is passed on, in bytes.
const MAX_LIBRARIES: usize = 4096;

/// An image that runs one language.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runner {
    /// What callers name: `python`.
    pub language: String,
    /// The image as people know it.
    pub image: String,
    /// The image as containers are made from it: a tag may move, this may not.
    pub image_id: ImageRef,
    /// The image's entrypoint and command.
    pub argv: Vec<String>,
    /// The image's environment, `NAME=value`.
    pub env: Vec<String>,
    /// What the image says it has to import, for people and models to read.
    pub libraries: String,
    /// Whether its entrypoint honours `SANDBOX_STDIN_FD`.
    pub stdin: bool,
    /// The command of its warm part; empty if it has none.
    pub warm: Vec<String>,
    /// Volumes that the image declares.
    pub volumes: Vec<String>,
}

/// All runners of an engine, and what is to be said about those left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// By language.
    pub runners: BTreeMap<String, Runner>,
    /// One sentence each.
    pub warnings: Vec<String>,
}

/// Looks at the engine's images. `chosen` names an image for a language, and wins over what labels say. Without
/// `warm_parts` no image has one. An image of `before` goes on where one that the engine's machine cannot run took its
/// name, as long as the engine still has it.
///
/// # Errors
/// The engine's. An image that is chosen but missing is a warning: it may appear later.
pub(super) async fn find(
    engine: &Engine,
    chosen: &BTreeMap<String, String>,
    warm_parts: bool,
    before: &BTreeMap<String, Runner>,
) -> Result<Found, EngineError> {
    let mut found = Found::default();
    let machine = engine.version().await?.arch;
    let mut foreign = BTreeSet::new();
    let mut candidates: BTreeMap<String, Vec<ImageDetail>> = BTreeMap::new();
    for summary in engine.image_list(&[LABEL.to_owned()]).await? {
        let image = match engine.image_inspect(&summary.id).await {
            Ok(image) => image,
            Err(error) if error.is_not_found() => continue, // removed between the two calls
            Err(error) => return Err(error),
        };
        match image.config.labels.get(LANGUAGE) {
            Some(language) if is_language(language) && !chosen.contains_key(language) => {
                if let Some(warning) = foreign_to(&machine, &image) {
                    found.warnings.push(warning);
                    foreign.insert(language.clone());
                    continue;
                }
                candidates.entry(language.clone()).or_default().push(image);
            }
            Some(language) if is_language(language) => {}
            other => found.warnings.push(format!(
                "image {} is left out: its label {LANGUAGE} is {other:?}, expected 1 to {MAX_LANGUAGE} of a-z 0-9 _ + -",
                name_of(&image)
            )),
        }
    }
    for (language, image) in chosen {
        let detail = match image.parse::<ImageRef>() {
            Ok(reference) => engine.image_inspect(&reference).await,
            Err(error) => {
                found.warnings.push(format!("runners.{language}: {error}"));
                continue;
            }
        };
        match detail {
            Ok(detail) => match foreign_to(&machine, &detail) {
                None => drop(candidates.insert(language.clone(), vec![detail])),
                Some(warning) => {
                    found.warnings.push(warning);
                    foreign.insert(language.clone());
                }
            },
            Err(error) if error.is_not_found() => {
                found.warnings.push(format!(
                    "runners.{language}: the engine has no image {image}; pull or build it, it is taken when it appears"
                ));
            }
            Err(error) => return Err(error),
        }
    }
    // One that lost its name to such an image is the one in use, and no leftover of a rebuild.
    let named =
        |language: &String| candidates.get(language).is_some_and(|images| images.iter().any(is_tagged));
    for language in foreign.into_iter().filter(|language| !named(language)).collect::<Vec<_>>() {
        let Some(runner) = before.get(&language) else { continue };
        match engine.image_inspect(&runner.image_id).await {
            Ok(_) => {
                candidates.remove(&language);
                found.runners.insert(language, runner.clone());
            }
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    for (language, mut images) in candidates {
        // What a rebuild left without a name is nobody's choice.
        if images.iter().any(is_tagged) {
            images.retain(is_tagged);
        }
        images.sort_by(|a, b| a.created.cmp(&b.created).then(a.id.cmp(&b.id)));
        let Some(newest) = images.pop() else { continue };
        if !images.is_empty() {
            let others: Vec<_> = images.iter().map(name_of).collect();
            found.warnings.push(format!(
                "several images for {language}: the newest, {}, is taken, not {}; set runners.{language} to choose",
                name_of(&newest),
                others.join(", ")
            ));
        }
        match Runner::new(&language, &newest) {
            Some(mut runner) => {
                match newest.config.labels.get(WARM).map(|label| warm(label)) {
                    Some(Ok(command)) if warm_parts => runner.warm = command,
                    Some(Ok(_)) | None => {}
                    Some(Err(problem)) => found.warnings.push(format!(
                        "image {} has no warm part: its label {WARM} {problem}",
                        name_of(&newest)
                    )),
                }
                found.runners.insert(language, runner);
            }
            None => found.warnings.push(format!(
                "image {} is left out: it has neither entrypoint nor command",
                name_of(&newest)
            )),
        }
    }
    Ok(found)
}

impl Runner {
    fn new(language: &str, image: &ImageDetail) -> Option<Self> {
        let config = &image.config;
        let argv: Vec<String> = config.entrypoint.iter().chain(&config.cmd).cloned().collect();
        let mut libraries = config.labels.get(LIBRARIES).cloned().unwrap_or_default();
        if libraries.len() > MAX_LIBRARIES {
            libraries = libraries.chars().take(MAX_LIBRARIES / 4).collect();
        }
        (!argv.is_empty()).then(|| Self {
            language: language.to_owned(),
            image: name_of(image),
            image_id: image.id.clone(),
            argv,
            env: config.env.clone(),
            libraries,
            stdin: config.labels.get(STDIN).is_some_and(|v| v == "true"),
            warm: Vec::new(),
            volumes: config.volumes.keys().filter(|path| path.starts_with('/')).cloned().collect(),
        })
    }

    /// What a program finds: the image's environment, a writable home, and what a caller adds, the last word winning.
    pub fn environment(&self, more: &[(String, String)]) -> Vec<String> {
        let mut all: Vec<(String, String)> = vec![("HOME".into(), "/tmp".into())];
        let image = self
            .env
            .iter()
            .filter_map(|line| line.split_once('='))
            .map(|(k, v)| (k.to_owned(), v.to_owned()));
        for (name, value) in image.chain(more.iter().cloned()) {
            match all.iter_mut().find(|(known, _)| *known == name) {
                Some(known) => known.1 = value,
                None => all.push((name, value)),
            }
        }
        all.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
    }
}

/// What is to be said of an image that this machine does not run. Emulators are not counted on: what a container may do
/// is proved on the machine itself.
fn foreign_to(machine: &str, image: &ImageDetail) -> Option<String> {
    let made_for = image.architecture.as_str();
    let is_foreign = !made_for.is_empty() && !machine.is_empty() && made_for != machine;
    is_foreign.then(|| {
        format!(
            "image {} is left out: it is made for {made_for}, and the engine's machine is {machine}; build or pull it \
             for linux/{machine}",
            name_of(image)
        )
    })
}

/// The command of a warm part; an empty label names none.
fn warm(label: &str) -> Result<Vec<String>, String> {
    if label.is_empty() {
        return Ok(Vec::new());
    }
    let expected = "expected a command as a JSON array, such as [\"/usr/bin/python3\",\"/warm.py\"]";
    let shown: String = label.chars().take(80).collect();
    match serde_json::from_str::<Vec<String>>(label) {
        Ok(command) if !command.is_empty() && command.iter().all(|word| !word.contains('\0')) => Ok(command),
        Ok(_) | Err(_) => Err(format!("is {shown:?}, {expected}")),
    }
}

/// What a language may be called.
pub fn is_language(name: &str) -> bool {
    (1..=MAX_LANGUAGE).contains(&name.len())
        && name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'+' | b'-'))
}

fn tag(image: &ImageDetail) -> Option<&String> {
    image.repo_tags.iter().find(|tag| !tag.starts_with("<none>"))
}

fn is_tagged(image: &ImageDetail) -> bool {
    tag(image).is_some()
}

fn name_of(image: &ImageDetail) -> String {
    tag(image)
        .map_or_else(|| image.id.to_string(), |tag| tag.strip_suffix(":latest").unwrap_or(tag).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_for_another_machine_is_foreign() {
        let image = |architecture: &str| ImageDetail {
            id: "paddock".parse().unwrap(),
            repo_tags: vec!["runner:latest".into()],
            created: String::new(),
            architecture: architecture.into(),
            config: crate::engine::ImageConfig::default(),
        };
        assert_eq!(foreign_to("amd64", &image("amd64")), None);
        assert_eq!(foreign_to("amd64", &image("")), None, "its maker did not say");
        assert_eq!(
            foreign_to("amd64", &image("arm64")).unwrap(),
            "image runner is left out: it is made for arm64, and the engine's machine is amd64; build or pull it for \
             linux/amd64"
        );
    }

    #[test]
    fn a_warm_part_is_a_command_or_none() {
        let command = |words: &[&str]| Ok(words.iter().map(|word| (*word).to_owned()).collect());
        assert_eq!(warm(""), command(&[]));
        assert_eq!(warm(r#"["/bin/a", "b c"]"#), command(&["/bin/a", "b c"]));
        for label in ["/bin/a", "[]", "[1]", "{}", "\"/bin/a\"", r#"["a\u0000b"]"#] {
            assert!(warm(label).unwrap_err().contains("JSON array"), "{label}");
        }
    }
}
