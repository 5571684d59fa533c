//! Builds the agent as a static program and passes its path to the daemon, which embeds it: `cargo build`
//! of the daemon alone is enough. The agent has a target folder of its own beside the daemon's profiles,
//! since the outer cargo holds the lock of those.

use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "build/commit.rs"]
mod commit;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let here = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?);
    let workspace =
        here.ancestors().nth(2).ok_or("the daemon's crate is not two folders below the workspace")?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    let target = std::env::var("TARGET")?;
    // OUT_DIR is FOLDER/PROFILE/build/PACKAGE/out, and with --target FOLDER/TARGET/PROFILE/… One agent is
    // enough.
    let built = out.ancestors().nth(4).ok_or("OUT_DIR is not below a target folder")?;
    let folder = if built.ends_with(&target) { built.parent().unwrap_or(built) } else { built };
    let folder = folder.join("agent-build");
    for input in ["src", "config.example.toml", "Cargo.lock", "Cargo.toml"] {
        println!("cargo::rerun-if-changed={}", workspace.join(input).display());
    }
    say_commit(workspace);

    let mut cargo = Command::new(std::env::var("CARGO")?);
    for (name, _) in std::env::vars() {
        // For another architecture, the linker is needed as well.
        let stays = matches!(name.as_str(), "CARGO_HOME" | "CARGO_NET_OFFLINE") || name.ends_with("_LINKER");
        let ours = name.starts_with("CARGO_") && !stays;
        if ours
            || matches!(name.as_str(), "RUSTFLAGS" | "RUSTC_WRAPPER" | "RUSTC_WORKSPACE_WRAPPER" | "RUSTC")
        {
            cargo.env_remove(name);
        }
    }
    let status = cargo
        .current_dir(workspace)
        .args(["build", "--locked", "--package", "paddock-agent", "--profile", "agent", "--target", &target])
        .arg("--target-dir")
        .arg(&folder)
        .env("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-feature=+crt-static")
        .status()?;
    if !status.success() {
        return Err(format!("the agent could not be built ({status}); its own messages are above").into());
    }
    let program = folder.join(&target).join("agent").join("paddock-agent");
    is_static(&program)?;
    println!("cargo::rustc-env=PADDOCK_AGENT={}", program.display());
    Ok(())
}

/// Passes the commit on, for `paddock --version`.
fn say_commit(workspace: &Path) {
    println!("cargo::rerun-if-changed=build/commit.rs");
    println!("cargo::rerun-if-env-changed=PADDOCK_COMMIT");
    let commit = commit::Commit::of(workspace, std::env::var("PADDOCK_COMMIT").ok().as_deref());
    for path in &commit.watch {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    println!("cargo::rustc-env=PADDOCK_BUILD_COMMIT={}", commit.hash);
    println!("cargo::rustc-env=PADDOCK_BUILD_DATE={}", commit.date);
    println!("cargo::rustc-env=PADDOCK_BUILD={}", commit.describe());
}

/// A dynamic agent would need a C library in every image. Without this check the daemon would fail only
/// later.
fn is_static(program: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let bytes = std::fs::read(program)?;
    let interpreters: [&[u8]; 2] = [b"/lib64/ld-linux", b"/lib/ld-linux"];
    if interpreters.iter().any(|name| bytes.windows(name.len()).any(|window| window == *name)) {
        return Err(format!("{} is not static", program.display()).into());
    }
    Ok(())
}
