//! Runner images for single tests, built for a test and removed with it. None has the label that makes an
//! image a runner by itself: a daemon must be configured to use it.

use std::path::Path;
use std::process::Command;

/// An image, removed when this is dropped.
pub(crate) struct Image(String);

impl Image {
    /// Builds an image from a Dockerfile and the files that it copies.
    pub(crate) fn build(dockerfile: &str, files: &[(&str, &str)]) -> Image {
        let context = tempfile::tempdir().expect("a folder");
        for (name, content) in files.iter().chain([&("Dockerfile", dockerfile)]) {
            std::fs::write(context.path().join(name), content).expect("a file");
        }
        Image::of_folder(context.path())
    }

    /// Builds an image from a folder with a Dockerfile.
    pub(crate) fn of_folder(context: &Path) -> Image {
        Image::built(context, &[])
    }

    /// Builds an image of `runner-images` that would be a runner by its labels.
    pub(crate) fn without_a_runner(context: &Path) -> Image {
        Image::built(context, &["--label", "sandbox.runner=no"])
    }

    /// Builds without the engine's cache: another test may remove steps that this build would take from it.
    fn built(context: &Path, options: &[&str]) -> Image {
        let name = format!("paddock-test-{}", paddock::id::random_hex::<6>());
        let build = Command::new("docker")
            .env("DOCKER_BUILDKIT", "0")
            .args(["build", "-q", "--no-cache", "--force-rm", "-t", &name])
            .args(options)
            .arg(context)
            .output()
            .expect("the docker command");
        assert!(build.status.success(), "{}", String::from_utf8_lossy(&build.stderr));
        Image(name)
    }

    /// Builds one of `runner-images/example-warm`: `perl` or `fork`.
    pub(crate) fn example(target: &str) -> Image {
        let dockerfile = include_str!("../../runner-images/example-warm/Dockerfile");
        let dockerfile = dockerfile.replace("debian:trixie-slim", "paddock-base:trixie");
        let (perl, fork) = dockerfile.split_once("FROM ${PYTHON}").expect("two targets");
        let arguments = perl.split("FROM ").next().unwrap_or_default();
        let dockerfile =
            if target == "perl" { perl.to_owned() } else { format!("{arguments}FROM ${{PYTHON}}{fork}") };
        let files = [
            ("single.pl", include_str!("../../runner-images/example-warm/single.pl")),
            ("fork.py", include_str!("../../runner-images/example-warm/fork.py")),
        ];
        Image::build(&dockerfile, &files)
    }

    /// Adds the name of another image.
    pub(crate) fn tag(&self, name: &str) {
        let tag = Command::new("docker").args(["tag", &self.0, name]).output().expect("the docker command");
        assert!(tag.status.success(), "{}", String::from_utf8_lossy(&tag.stderr));
    }

    pub(crate) fn name(&self) -> &str {
        &self.0
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = Command::new("docker").args(["rmi", "-f", &self.0]).output();
    }
}
