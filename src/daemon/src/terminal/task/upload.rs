//! The files that a task gets: found here, and sent as one archive, so that they arrive as one change.
//!
//! It must never send a file of `.git`: a repository's configuration can have passwords, and its history more
//! than the task is about. It must never follow a symbolic link below the folder.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use ignore::WalkBuilder;
use paddock_proto::RelPath;
use tokio::io::{AsyncReadExt, DuplexStream};
use tokio_tar::{Builder, Header};

use super::super::Failed;
use super::super::files::InputFile;

/// Bytes of the archive that wait for the daemon.
const AHEAD: usize = 256 << 10;

/// The files that a task gets, and in words what is left out.
#[derive(Debug, Default)]
pub(super) struct TaskFiles {
    pub(super) files: Vec<InputFile>,
    pub(super) left_out: Vec<String>,
}

impl TaskFiles {
    /// Finds the files of the arguments. It blocks.
    pub(super) fn look(directory: Option<&Path>, named: &[String]) -> Result<Self, Failed> {
        let mut all = Self::default();
        if let Some(directory) = directory {
            all.walk(directory)?;
        }
        let (files, left_out) = InputFile::look(named)?;
        all.left_out.extend(left_out);
        for file in files {
            all.files.retain(|other| other.name != file.name);
            all.files.push(file);
        }
        Ok(all)
    }

    /// Adds the files of a folder that git would not ignore.
    fn walk(&mut self, folder: &Path) -> Result<(), Failed> {
        let unreadable = |error: &dyn std::fmt::Display| {
            Failed::Message(format!("cannot read {}: {error}", folder.display()))
        };
        let top = folder.canonicalize().map_err(|error| unreadable(&error))?;
        if !top.is_dir() {
            return Err(unreadable(&"it is not a folder"));
        }
        // The rules of the folders above count within a repository, as they do for git.
        let in_repository = top.ancestors().any(|above| above.join(".git").exists());
        let mut walk = WalkBuilder::new(&top);
        walk.standard_filters(false).git_ignore(true).git_exclude(true).follow_links(false);
        walk.parents(in_repository).require_git(in_repository);
        walk.filter_entry(|entry| entry.file_name() != ".git");
        walk.sort_by_file_name(std::cmp::Ord::cmp);
        for entry in walk.build() {
            let entry = entry.map_err(|error| unreadable(&error))?;
            let path = entry.path();
            let kind = entry.file_type();
            let Ok(below) = path.strip_prefix(&top) else { continue };
            if below.as_os_str().is_empty() || kind.is_some_and(|kind| kind.is_dir()) {
                continue;
            }
            if !kind.is_some_and(|kind| kind.is_file()) {
                let what = if entry.path_is_symlink() { "link" } else { "special file" };
                self.left_out.push(format!("{} is a {what}", path.display()));
                continue;
            }
            let name = below.to_str().filter(|name| RelPath::new(name.as_bytes()).is_ok());
            let name = name.ok_or_else(|| {
                Failed::Message(format!("{} has a name that cannot be one below /workspace", path.display()))
            })?;
            self.files.push(InputFile { path: path.to_owned(), name: name.to_owned() });
        }
        Ok(())
    }

    /// The archive of the files, and the work of making it, which ends when the archive has been read.
    pub(super) fn archive(self) -> (DuplexStream, impl Future<Output = Result<(), Failed>>) {
        let (writer, reader) = tokio::io::duplex(AHEAD);
        let work = async move {
            let mut archive = Builder::new(writer);
            for file in &self.files {
                let path = &file.path;
                let unreadable =
                    |error| Failed::Message(format!("{} could not be sent: {error}", path.display()));
                let open = tokio::fs::File::open(path).await.map_err(unreadable)?;
                let about = open.metadata().await.map_err(unreadable)?;
                let mut header = Header::new_gnu();
                header.set_size(about.len());
                header.set_mode(about.permissions().mode() & 0o777);
                header.set_mtime(u64::try_from(about.mtime()).unwrap_or(0));
                // A file that grows meanwhile is sent as long as it was.
                let content = open.take(about.len());
                archive.append_data(&mut header, &file.name, content).await.map_err(unreadable)?;
            }
            archive
                .finish()
                .await
                .map_err(|error| Failed::Message(format!("the files were not sent: {error}")))
        };
        (reader, work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let found = TaskFiles::look(Some(folder), &[]).unwrap();
        found.files.into_iter().map(|file| file.name).collect()
    }

    #[test]
    fn a_folder_comes_without_what_git_ignores_and_without_its_repository() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write(".gitignore", "*.log\nnode_modules/\n");
        write("src/app.py", "");
        write("src/.gitignore", "!keep.log\n");
        write("src/keep.log", "");
        write("src/x.log", "");
        write("node_modules/a/index.js", "");
        write(".hidden", "");
        write(".ignore", "app.py\n");
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("src/link")).unwrap();
        let expected = [".gitignore", ".hidden", ".ignore", "src/.gitignore", "src/app.py", "src/keep.log"];
        assert_eq!(names(folder.path()), expected);
        write(".git/config", "[remote]\nurl = https://secret@example.com/");
        write("sub/.git", "gitdir: ../elsewhere");
        assert_eq!(names(folder.path()), expected, "a repository");
        assert_eq!(
            names(&folder.path().join("src")),
            [".gitignore", "app.py", "keep.log"],
            "rules from above"
        );
        let found = TaskFiles::look(Some(folder.path()), &[]).unwrap();
        assert!(found.left_out[0].ends_with("src/link is a link"), "{:?}", found.left_out);
        assert!(TaskFiles::look(Some(&folder.path().join("src/app.py")), &[]).is_err());
        assert!(TaskFiles::look(Some(&folder.path().join("none")), &[]).is_err());
    }

    #[test]
    fn a_file_that_is_named_replaces_one_of_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("d")).unwrap();
        std::fs::write(at("d/a"), "folder").unwrap();
        std::fs::write(at("b"), "named").unwrap();
        let named = format!("{}:a", at("b").display());
        let found = TaskFiles::look(Some(&at("d")), &[named]).unwrap();
        assert_eq!(found.files, [InputFile { path: at("b"), name: "a".to_owned() }]);
    }
}
