//! The release: the same bytes twice, complete, and installed by its `install.sh` in a Debian without a
//! network; and the unit of systemd, as far as it can be judged without a systemd that runs.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;
use tempfile::TempDir;

use super::{program, repo, run, socket, tried};
use crate::support::Daemon;

/// What `systemd-analyze security --offline` may say of the unit at most: 0 is the tightest, 10 has nothing.
const EXPOSURE: f64 = 1.8;

/// A release that is packed once for all tests, and the folder that it unpacks to.
pub(super) fn release() -> &'static (TempDir, PathBuf, String) {
    static RELEASE: OnceLock<(TempDir, PathBuf, String)> = OnceLock::new();
    RELEASE.get_or_init(|| {
        let home = TempDir::new().expect("a folder");
        let packed = packed(home.path());
        run(Command::new("tar").arg("-xzf").arg(&packed).arg("-C").arg(home.path()));
        let name = packed.file_name().and_then(|name| name.to_str()).expect("a name");
        let name = name.trim_end_matches(".tar.gz").to_owned();
        (home, packed, name)
    })
}

fn packed(out: &Path) -> PathBuf {
    let said = run(Command::new(repo("deploy/dist/dist")).arg(out).env("PADDOCK_PROGRAM", program()));
    PathBuf::from(said.trim())
}

fn of_release(file: &str) -> String {
    let (home, _, name) = release();
    let path = home.path().join(name).join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_same_commit_makes_the_same_bytes_and_its_checksum_is_beside_it() {
    let (home, first, name) = release();
    assert_eq!(*name, format!("paddock-{}-linux-{}", paddock::build::VERSION, std::env::consts::ARCH));
    let sum = format!("{name}.tar.gz.sha256");
    run(Command::new("sha256sum").current_dir(home.path()).args(["--quiet", "-c", &sum]));
    let again = TempDir::new().expect("a folder");
    let second = packed(again.path());
    assert!(fs::read(first).expect("a file") == fs::read(second).expect("a file"), "the bytes differ");
}

#[test]
fn it_has_the_licence_of_every_crate_and_lists_them_as_cyclonedx() {
    let sbom: Value = serde_json::from_str(&of_release("sbom.cdx.json")).expect("JSON");
    assert_eq!(sbom["bomFormat"], "CycloneDX");
    let components = sbom["components"].as_array().expect("components");
    let crates: BTreeSet<String> = components
        .iter()
        .map(|component| {
            let text = |key: &str| component[key].as_str().unwrap_or_else(|| panic!("no {key}: {component}"));
            assert!(text("purl").starts_with("pkg:cargo/"), "{component}");
            format!("{} {}", text("name"), text("version"))
        })
        .collect();
    let lock: toml::Table = fs::read_to_string(repo("Cargo.lock")).expect("a file").parse().expect("TOML");
    let locked: BTreeSet<String> = lock["package"]
        .as_array()
        .expect("packages")
        .iter()
        .map(|package| {
            format!("{} {}", package["name"].as_str().unwrap(), package["version"].as_str().unwrap())
        })
        .collect();
    assert!(crates.is_subset(&locked), "{:?}", crates.difference(&locked));
    let names: BTreeSet<&str> = crates.iter().map(|name| name.split(' ').next().expect("a name")).collect();
    // Direct dependencies are in it, what only tests use is not.
    for name in ["tokio", "hyper", "rmcp", "clap_complete", "paddock-proto"] {
        assert!(names.contains(name), "{name} is missing");
    }
    for name in ["proptest", "tempfile", "reqwest", "hdrhistogram"] {
        assert!(!names.contains(name), "{name} is only for tests");
    }
    let text = of_release("THIRD-PARTY.txt");
    let (list, texts) = text.split_once("\nTexts of licences\n").expect("texts");
    for name in crates.iter().filter(|name| !name.starts_with("paddock-")) {
        let line = list.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
        assert!(
            line.is_some_and(|licence| licence.len() > 2 && !licence.starts_with("see")),
            "{name}: {line:?}"
        );
    }
    for text in ["Permission is hereby granted", "Apache License", "GNU LESSER GENERAL PUBLIC LICENSE"] {
        assert!(texts.contains(text), "no text of {text}");
    }
    assert!(list.contains("@codemirror/view"), "the page's editor");
}

/// Steps in the container: each prints one line that the test reads.
const STEPS: &str = r#"
set -eu
cd /work && tar -xzf /release.tar.gz && cd paddock-*
say() { printf '%s\n' "$*" >>/work/said; }
# Refusals, which change nothing.
setpriv --reuid 1000 --clear-groups ./install.sh 2>&1 | sed 's/^/plain user: /' >>/work/said
./install.sh --frob 2>&1 | sed 's/^/flag: /' >>/work/said || true
cp -a . /work/other
printf x >>/work/other/config.example.toml
(cd /work/other && ./install.sh) 2>&1 | sed 's/^/damaged: /' >>/work/said || true
cp config.example.toml /work/other/
printf '\177ELF\2\1\1' >/work/other/bin/paddock
(cd /work/other && sed -i "s|.*  bin/paddock|$(sha256sum bin/paddock)|" SHA256SUMS && ./install.sh) 2>&1 |
    sed 's/^/machine: /' >>/work/said || true
[ ! -e /usr/local/bin/paddock ] && [ ! -e /etc/paddock ] && say 'nothing was changed'
# The installation.
./install.sh | sed 's/^/install: /' >>/work/said
say "version: $(paddock --version)"
say "user: $(id paddock)"
say "modes: $(stat -c '%a %U:%G' /etc/paddock /var/lib/paddock /var/log/paddock /etc/paddock/environment | paste -sd,)"
say "completion: $(bash -c '. /usr/local/share/bash-completion/completions/paddock && complete -p paddock')"
say "pages: $(cd /usr/local/share/man/man1 && ls paddock*.1 | paste -sd,)"
say "unit: $(grep ^ExecStart= /usr/local/lib/systemd/system/paddock.service)"
# Again: what an operator has written stays.
echo '# mine' >>/etc/paddock/paddock.toml
cp /etc/paddock/environment /work/token
./install.sh --prefix /usr/local | sed 's/^/again: /' >>/work/said
tail -n 1 /etc/paddock/paddock.toml | sed 's/^/kept: /' >>/work/said
cmp /etc/paddock/environment /work/token && say 'the token stays'
# The user of the unit finds its configuration; the program works with the engine of the host.
say "health: $(setpriv --reuid paddock --regid paddock --init-groups paddock health --config /etc/paddock/paddock.toml || true)"
say "run: $(SANDBOX_ROOT=/work/store paddock run --engine unix:///engine.sock -l python -c 'print("installed")')"
./install.sh --uninstall | sed 's/^/uninstall: /' >>/work/said
find / -xdev -path /work -prune -o -path /proc -prune -o -name '*paddock*' -print | sort | sed 's/^/left: /' >>/work/said
"#;

#[test]
fn it_installs_in_a_debian_without_a_network_and_goes_again() {
    let (home, packed, name) = release();
    let container = format!("paddock-test-{}", paddock::id::random_hex::<6>());
    let socket = format!("{}:/engine.sock", socket().0);
    let archive = format!("{}:/release.tar.gz:ro", packed.display());
    let (code, said) = tried(Command::new("docker").args([
        "run",
        "--rm",
        "--name",
        &container,
        "--network",
        "none",
        "-v",
        &archive,
        "-v",
        &socket,
        "-w",
        "/work",
        "paddock-base:trixie",
        "bash",
        "-c",
        &format!("({STEPS}) >&2; cat /work/said"),
    ]));
    let _ = Command::new("docker").args(["rm", "-f", &container]).output();
    assert_eq!(code, Some(0), "{said}");
    for line in [
        "plain user: install.sh: it writes to /usr/local and /etc, so run it as root",
        "flag: install.sh: --frob is unknown",
        "damaged: install.sh: a file differs from SHA256SUMS",
        "machine: install.sh: bin/paddock does not run on this machine",
        "nothing was changed",
        "install:   this machine does not run systemd",
        "install:   /usr/local/share/paddock/deploy/images",
        &format!("version: paddock {}", paddock::build::VERSION),
        "modes: 750 root:paddock,700 paddock:paddock,750 paddock:paddock,600 root:root",
        "completion: complete ",
        "unit: ExecStart=/usr/local/bin/paddock serve --config /etc/paddock/paddock.toml",
        "again: kept /etc/paddock/paddock.toml; that of this release is /etc/paddock/paddock.toml.new",
        "again: kept /etc/logrotate.d/paddock",
        "kept: # mine",
        "the token stays",
        "health: no daemon of the store /var/lib/paddock answers",
        "run: installed",
        "uninstall: removed paddock from /usr/local",
        "left: /etc/paddock",
        "left: /var/lib/paddock",
    ] {
        assert!(said.lines().any(|said| said.starts_with(line)), "no line {line:?} in\n{said}");
    }
    assert!(said.lines().any(|line| line.starts_with("user: uid=") && line.contains("(docker)")), "{said}");
    assert!(said.contains("paddock-serve.1") && said.contains("paddock.1"), "{said}");
    let left: Vec<_> = said.lines().filter(|line| line.starts_with("left: /usr")).collect();
    assert!(left.is_empty(), "{left:?}");

    // For packages: below another root, without a user and without a secret.
    let root = TempDir::new().expect("a folder");
    let script = home.path().join(name).join("install.sh");
    run(Command::new(script).args(["--prefix", "/usr"]).env("DESTDIR", root.path()));
    let there = |path: &str| root.path().join(path).exists();
    assert!(there("usr/bin/paddock") && there("usr/lib/systemd/system/paddock.service"));
    assert!(there("etc/paddock/paddock.toml") && !there("etc/paddock/environment"));
}

#[test]
fn systemd_accepts_the_unit_and_finds_it_tight() {
    let home = TempDir::new().expect("a folder");
    let unit = home.path().join("paddock.service");
    let text = of_release("deploy/systemd/paddock.service");
    let here = text.replace("/usr/local/bin/paddock", &program().display().to_string());
    fs::write(&unit, here).expect("a file");
    let (code, said) = tried(Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&unit));
    assert!(code == Some(0) && said.trim().is_empty(), "{said}");
    let said = run(Command::new("systemd-analyze").args(["security", "--offline=true"]).arg(&unit));
    let level = said.rsplit_once("Overall exposure level for paddock.service: ").expect("a level").1;
    let level: f64 = level.split(' ').next().and_then(|level| level.parse().ok()).expect("a number");
    assert!(level <= EXPOSURE, "{level}:\n{said}");
    for (file, words) in [
        ("paddock.sysusers", &["u paddock", "m paddock docker"][..]),
        ("paddock.tmpfiles", &["d /var/lib/paddock 0700 paddock paddock"]),
        ("paddock.logrotate", &["copytruncate", "/var/log/paddock/*.log"]),
        ("paddock.toml", &["root = \"/var/lib/paddock\""]),
    ] {
        let text = of_release(&format!("deploy/systemd/{file}"));
        assert!(words.iter().all(|word| text.contains(word)), "{file}: {text}");
    }
}

/// Takes the system call `openat2` away and becomes the rest of its arguments, as systemd does for
/// `RestrictSUIDSGID=`.
const WITHOUT_OPENAT2: &str = r#"
import ctypes, os, struct, sys
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, 437), (0x06, 0, 0, 0x50000 | 38), (0x06, 0, 0, 0x7fff0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, ctypes.c_void_p(ctypes.addressof(program)), 0, 0) == 0
os.execvp(sys.argv[1], sys.argv[1:])
"#;

#[tokio::test]
async fn a_daemon_that_could_write_files_and_not_read_them_does_not_start() {
    let refusal = Daemon::with().under(&["python3", "-c", WITHOUT_OPENAT2]).refusal().await;
    assert_eq!(refusal.code, Some(1), "{}", refusal.said);
    assert!(
        refusal.said.contains("openat2") && refusal.said.contains("RestrictSUIDSGID"),
        "{}",
        refusal.said
    );
    let unit = fs::read_to_string(repo("deploy/systemd/paddock.service")).expect("a file");
    assert!(!unit.lines().any(|line| line.starts_with("RestrictSUIDSGID")), "{unit}");
}
