//! Runners: images that run a language or a coding agent, found on the engine by their labels.
//!
//! This module must never run anything to find out what an image is, nor use a label as more than text.

use std::collections::{BTreeMap, BTreeSet};

use paddock_proto::limits::HOME_DIR;

use super::bounds::Bounds;
use super::disk::DataPlace;
use super::mount::HostMount;
use super::package_labels::{PackageLabels, packages};
use super::runner_terms::RunnerTerms;
use super::snapshots::labels::snapshot_labels;
use super::snapshots::{SnapshotLabels, SnapshotMount};
use crate::engine::{Engine, EngineError, ImageDetail, ImageRef};

/// The label that makes an image a runner.
pub(super) const LABEL: &str = "sandbox.runner=true";
const LANGUAGE: &str = "sandbox.language";
/// Names the coding agent that the image has. Such an image runs no language.
const CODING_AGENT: &str = "sandbox.agent";
/// The programs that a stranger's coding agent may execute at levels 1 and 2, beside its own.
const AGENT_PROGRAMS: &str = "sandbox.agent.programs";
/// The models that a stranger's coding agent needs; `*`: all that the caller may use.
const AGENT_MODELS: &str = "sandbox.agent.models";
const LIBRARIES: &str = "sandbox.libraries";
const STDIN: &str = "sandbox.stdin";
/// Says that the image checks types where `SANDBOX_TYPECHECK` is set.
const TYPECHECK: &str = "sandbox.typecheck";
const WARM: &str = "sandbox.warm";

/// An image that the operator chose under one of these names is a coding agent without the label too.
const CODING_AGENTS: [&str; 2] = ["claude-code", "opencode"];

/// Where `npm install --global` installs in a home directory on a disk, as `pip` does by itself.
const PREFIX: &str = "/home/agent/.local";

/// The longest name of a runner.
const MAX_LANGUAGE: usize = 32;
/// The longest list of libraries that callers are shown, in bytes.
const MAX_LIBRARIES: usize = 4096;

/// The most entries of a label that is a list.
const MAX_ENTRIES: usize = 64;

/// An image that runs one language or one coding agent.
#[derive(Debug, Clone, PartialEq)]
pub struct Runner {
    /// The name that callers use, such as `python`, or the name of the coding agent.
    pub language: String,
    /// The image's name, for people.
    pub image: String,
    /// The image's id, from which containers are made: a tag may move to another image, an id cannot.
    pub image_id: ImageRef,
    /// The image's entrypoint and command.
    pub argv: Vec<String>,
    /// The image's environment, `NAME=value`.
    pub env: Vec<String>,
    /// The libraries that the image's label lists, for people and models to read.
    pub libraries: String,
    /// Whether its entrypoint honours `SANDBOX_STDIN_FD`.
    pub stdin: bool,
    /// Whether it checks types before it runs a program, if `SANDBOX_TYPECHECK` is set.
    pub typecheck: bool,
    /// The command of its warm part; empty if it has none.
    pub warm: Vec<String>,
    /// How snapshots of its warm part are taken; `None` where the image has no labels for that.
    pub snapshot_labels: Option<SnapshotLabels>,
    /// The snapshot that its containers have.
    pub snapshot: SnapshotMount,
    /// Volumes that the image declares.
    pub volumes: Vec<String>,
    /// How packages for its programs are fetched; `None` where it has none.
    pub packages: Option<PackageLabels>,
    /// Whether it fetches the packages of the runner whose image it has. Then it runs nothing else.
    pub fetches: bool,
    /// Whether it is a coding agent. Then it is no language: no caller may run code of its own in it.
    pub coding_agent: bool,
    /// What the image's labels say of the coding agent.
    pub agent_labels: AgentLabels,
    /// What one of its containers may use.
    pub bounds: Bounds,
    /// The folders of the host that its containers have.
    pub mounts: Vec<HostMount>,
    /// Containers that stand idle for it.
    pub idle: u32,
}

/// What the labels of a coding agent's image say, beside its name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentLabels {
    /// The programs that it may execute at levels 1 and 2, beside its own.
    pub programs: Vec<String>,
    /// The models that it needs; `*`: all that the caller may use.
    pub models: Vec<String>,
}

/// All runners of an engine, and warnings about the images that were left out.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct FoundRunners {
    /// By language.
    pub runners: BTreeMap<String, Runner>,
    /// One sentence each.
    pub warnings: Vec<String>,
}

/// Looks through the engine's images. `terms` say what each runner may use; an image that they name takes
/// precedence over labels. Without `warm_parts` the runners have no warm part. If a runner's new image is
/// made for another machine, its runner of `before` stays, as long as the engine still has that image.
///
/// # Errors
/// The engine's. A chosen image that is missing is only a warning: it may appear later.
pub(super) async fn find(
    engine: &Engine,
    terms: &RunnerTerms,
    warm_parts: bool,
    before: &BTreeMap<String, Runner>,
) -> Result<FoundRunners, EngineError> {
    let (mut found, chosen) = (FoundRunners::default(), terms.images());
    let machine = engine.version().await?.arch;
    let mut foreign = BTreeSet::new();
    let mut candidates: BTreeMap<String, Vec<ImageDetail>> = BTreeMap::new();
    for summary in engine.image_list(&[LABEL.to_owned()]).await? {
        let image = match engine.image_inspect(&summary.id).await {
            Ok(image) => image,
            Err(error) if error.is_not_found() => continue, // removed between the two calls
            Err(error) => return Err(error),
        };
        let (label, name) = name_of_runner(&image);
        match name {
            Some(language) if is_language(language) && !chosen.contains_key(language.as_str()) => {
                if let Some(warning) = foreign_to(&machine, &image) {
                    found.warnings.push(warning);
                    foreign.insert(language.clone());
                    continue;
                }
                candidates.entry(language.clone()).or_default().push(image);
            }
            Some(language) if is_language(language) => {}
            other => found.warnings.push(format!(
                "image {} is left out: its label {label} is {other:?}, expected 1 to {MAX_LANGUAGE} of \
                 a-z 0-9 _ + -",
                name_of(&image)
            )),
        }
    }
    for (language, image) in chosen {
        let language = language.to_owned();
        let detail = match image.parse::<ImageRef>() {
            Ok(reference) => engine.image_inspect(&reference).await,
            Err(error) => {
                found.warnings.push(format!("runners.{language}: {error}"));
                continue;
            }
        };
        match detail {
            Ok(detail) => match foreign_to(&machine, &detail) {
                None => drop(candidates.insert(language, vec![detail])),
                Some(warning) => {
                    found.warnings.push(warning);
                    foreign.insert(language);
                }
            },
            Err(error) if error.is_not_found() => {
                found.warnings.push(format!(
                    "runners.{language}: the engine has no image {image}; pull or build it, and it is used \
                     at once"
                ));
            }
            Err(error) => return Err(error),
        }
    }
    // If the image in use lost its tag to one for another machine, it stays in use: it is not the leftover of
    // a rebuild, as images without a tag otherwise are.
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
        // A rebuild leaves the image that it replaces without a tag.
        if images.iter().any(is_tagged) {
            images.retain(is_tagged);
        }
        images.sort_by(|a, b| a.created.cmp(&b.created).then(a.id.cmp(&b.id)));
        let Some(newest) = images.pop() else { continue };
        if !images.is_empty() {
            let others: Vec<_> = images.iter().map(name_of).collect();
            found.warnings.push(format!(
                "several images for {language}: the newest, {}, is used, not {}; set runners.{language} to \
                 choose",
                name_of(&newest),
                others.join(", ")
            ));
        }
        match Runner::new(&language, &newest, terms) {
            Some(mut runner) => {
                match newest.config.labels.get(WARM).map(|label| warm(label)) {
                    Some(Ok(command)) if warm_parts => runner.warm = command,
                    Some(Ok(_)) | None => {}
                    Some(Err(problem)) => found.warnings.push(format!(
                        "image {} has no warm part: its label {WARM} {problem}",
                        name_of(&newest)
                    )),
                }
                match snapshot_labels(&newest.config.labels).transpose() {
                    Ok(labels) if !runner.warm.is_empty() => runner.snapshot_labels = labels,
                    Ok(_) => {}
                    Err(problem) => found.warnings.push(format!(
                        "no snapshot is taken of the warm part of image {}: {problem}",
                        name_of(&newest)
                    )),
                }
                match packages(&newest.config.labels).transpose() {
                    Ok(labels) if !runner.coding_agent => runner.packages = labels,
                    Ok(_) => {}
                    Err(problem) => found
                        .warnings
                        .push(format!("image {} fetches no packages: {problem}", name_of(&newest))),
                }
                if let Some(bounds) = terms.packages.as_ref().filter(|_| runner.packages.is_some()) {
                    let fetcher = runner.fetcher(bounds, terms);
                    found.runners.insert(fetcher.language.clone(), fetcher);
                } else {
                    runner.packages = None;
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
    fn new(language: &str, image: &ImageDetail, terms: &RunnerTerms) -> Option<Self> {
        let config = &image.config;
        let argv: Vec<String> = config.entrypoint.iter().chain(&config.cmd).cloned().collect();
        let coding_agent = is_coding_agent(language, image);
        let (bounds, idle) = terms.of(language, coding_agent);
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
            typecheck: config.labels.get(TYPECHECK).is_some_and(|v| v == "true"),
            warm: Vec::new(),
            snapshot_labels: None,
            snapshot: SnapshotMount::None,
            volumes: config.volumes.keys().filter(|path| path.starts_with('/')).cloned().collect(),
            packages: None,
            fetches: false,
            coding_agent,
            agent_labels: AgentLabels {
                programs: list(config.labels.get(AGENT_PROGRAMS)),
                models: list(config.labels.get(AGENT_MODELS)),
            },
            bounds,
            mounts: terms.mounts_of(language, coding_agent),
            idle,
        })
    }

    /// Whether the engine has the same runner now, perhaps under another name of its image.
    pub(super) fn is_as_found(&self, found: &Self) -> bool {
        let (image, snapshot) = (self.image.clone(), self.snapshot.clone());
        *self == Self { image, snapshot, ..found.clone() }
    }

    /// The environment of a program: a writable home, the image's variables, then those of the caller. The
    /// last value of a name counts.
    pub fn environment(&self, more: &[(String, String)]) -> Vec<String> {
        // Packages go where there is room for them: on a disk if there is one.
        let own: &[(&str, &str)] = match self.bounds.place {
            DataPlace::Memory => &[("HOME", "/tmp")],
            DataPlace::Disk(_) => &[("HOME", HOME_DIR), ("NPM_CONFIG_PREFIX", PREFIX)],
        };
        let mut all: Vec<_> = own.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
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

/// A warning about an image that is made for another machine. The daemon uses no emulator: what a program can
/// do is proved on the machine itself.
fn foreign_to(machine: &str, image: &ImageDetail) -> Option<String> {
    let made_for = image.architecture.as_str();
    let is_foreign = !made_for.is_empty() && !machine.is_empty() && made_for != machine;
    is_foreign.then(|| {
        format!(
            "image {} is left out: it is made for {made_for}, and the engine's machine is {machine}; build \
             or pull it for linux/{machine}",
            name_of(image)
        )
    })
}

/// The label that names the runner of an image, and its value.
fn name_of_runner(image: &ImageDetail) -> (&'static str, Option<&String>) {
    let labels = &image.config.labels;
    let label = if labels.contains_key(CODING_AGENT) { CODING_AGENT } else { LANGUAGE };
    (label, labels.get(label))
}

/// Whether the runner of this name and image is a coding agent.
fn is_coding_agent(name: &str, image: &ImageDetail) -> bool {
    let labels = &image.config.labels;
    let names_a_language = labels.contains_key(LANGUAGE) && !labels.contains_key(CODING_AGENT);
    labels.contains_key(CODING_AGENT) || CODING_AGENTS.contains(&name) && !names_a_language
}

/// The entries of a label: words with commas or white space between them, the first of them if there are too
/// many.
fn list(label: Option<&String>) -> Vec<String> {
    let words =
        label.map_or("", String::as_str).split([',', ' ', '\t', '\n']).filter(|word| !word.is_empty());
    words.take(MAX_ENTRIES).map(str::to_owned).collect()
}

/// The command of a warm part, from its label. An empty label means that there is none.
fn warm(label: &str) -> Result<Vec<String>, String> {
    if label.is_empty() { Ok(Vec::new()) } else { command(label) }
}

/// A command from a label.
pub(super) fn command(label: &str) -> Result<Vec<String>, String> {
    let expected = "expected a command as a JSON array, such as [\"/usr/bin/python3\",\"/warm.py\"]";
    let shown: String = label.chars().take(80).collect();
    match serde_json::from_str::<Vec<String>>(label) {
        Ok(command) if !command.is_empty() && command.iter().all(|word| !word.contains('\0')) => Ok(command),
        Ok(_) | Err(_) => Err(format!("is {shown:?}, {expected}")),
    }
}

/// Whether a runner may have this name.
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
#[path = "runner_tests.rs"]
mod tests;
