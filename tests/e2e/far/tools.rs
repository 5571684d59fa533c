//! An image with the programs that people use from a shell: curl, git and ssh of this host, and a static one.

use std::path::Path;
use std::process::Command;

use super::Far;
use crate::support::Image;

const FILES: &[(&str, &str)] = &[
    ("tools.sh", include_str!("tools.sh")),
    ("connect.c", include_str!("connect.c")),
    (
        "Dockerfile",
        "FROM paddock-runner-python\nCOPY tools /opt/tools\n\
         ENV PATH=/opt/tools/bin:/usr/local/bin:/usr/bin:/bin GIT_EXEC_PATH=/opt/tools/bin\n\
         LABEL sandbox.runner=no\n",
    ),
];

/// Builds it. `/opt/tools/far` has the keys for git and the authority's certificate.
pub(crate) fn image(far: &Far) -> Image {
    let context = tempfile::tempdir().expect("a folder");
    for (name, content) in FILES {
        std::fs::write(context.path().join(name), content).expect("a file");
    }
    let tools = context.path().join("tools");
    std::fs::create_dir_all(tools.join("far")).expect("a folder");
    std::fs::rename(context.path().join("connect.c"), tools.join("connect.c")).expect("a move");
    let made = Command::new("sh").arg(context.path().join("tools.sh")).arg(&tools).output().expect("sh");
    assert!(
        made.status.success(),
        "these tests need curl, git, openssh-client and gcc: {}",
        String::from_utf8_lossy(&made.stderr)
    );
    for name in ["ca.pem", "key", "known_hosts"] {
        readable(&far.folder().join(name), &tools.join("far").join(name));
    }
    Image::of_folder(context.path())
}

/// Copies a file, for everybody to read.
fn readable(from: &Path, to: &Path) {
    let content = std::fs::read(from).expect("a file");
    std::fs::write(to, content).expect("a file");
}
