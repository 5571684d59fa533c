//! Rules about the sources and documents that no compiler checks.
//!
//! A rule here reads both sides that it compares. It must never contain a list of its own.

mod degradations;
mod deployed;
mod documents;
mod lists;
mod width;

use std::path::{Path, PathBuf};

/// The folder of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The text of a file, by its path in the workspace.
fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The files below these folders whose names end like this, as paths in the workspace, sorted.
fn files(folders: &[&str], ending: &str) -> Vec<String> {
    // Folders that hold other people's files.
    const FOREIGN: [&str; 4] = ["node_modules", "target", "venv", "venv-1"];
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = folders.iter().map(PathBuf::from).collect();
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(root().join(&folder)).unwrap_or_else(|e| panic!("{folder:?}: {e}"));
        for entry in entries.map(|entry| entry.unwrap()) {
            let path = folder.join(entry.file_name());
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_folder = entry.file_type().unwrap().is_dir();
            if is_folder && !FOREIGN.contains(&name.as_str()) {
                folders.push(path);
            } else if !is_folder && name.ends_with(ending) {
                found.push(path.to_string_lossy().into_owned());
            }
        }
    }
    found.sort();
    found
}

/// The words in code style (between backticks) in a text, code blocks excluded.
fn codes(text: &str) -> Vec<String> {
    let prose: String = text.split("```").step_by(2).collect();
    prose.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}
