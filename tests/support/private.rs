//! A private engine for a test, which can be killed and started again. It needs root, `dockerd`, `docker` and
//! `ip`, and uses a bridge or a network namespace of its own: without, it would remove the bridge of the
//! first engine.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tempfile::TempDir;

use super::{Log, PATIENCE};

/// The engines of one process have different bridges.
static NEXT: AtomicU32 = AtomicU32::new(0);

pub(crate) struct PrivateEngine {
    dir: TempDir,
    /// The bridge that was made for it; `None` if it has a network namespace of its own.
    bridge: Option<String>,
    /// Additional flags.
    flags: Vec<String>,
    /// The program and arguments that start it, if any.
    under: Vec<String>,
    running: Option<(Child, Receiver<()>)>,
    /// The name of the folder that has its images, containers and volumes.
    data: &'static str,
}

impl PrivateEngine {
    /// An engine with this image and no other.
    pub(crate) async fn with_image(image: &str) -> PrivateEngine {
        let engine = PrivateEngine::empty().await;
        engine.load(image);
        engine
    }

    /// An engine without images.
    pub(crate) async fn empty() -> PrivateEngine {
        PrivateEngine::with_flags(&[], &[]).await
    }

    /// An engine with additional flags, started by another program that becomes it.
    pub(crate) async fn with_flags(flags: &[String], under: &[String]) -> PrivateEngine {
        // Another process may have a bridge of the same number, or a killed one may have left it.
        let numbers = (0..250).map(|_| (std::process::id() + NEXT.fetch_add(1, Ordering::Relaxed)) % 250);
        let made = |number: &u32| {
            let bridge = format!("pde2e{number}");
            let done = Command::new("ip").args(["link", "add", &bridge, "type", "bridge"]).output();
            done.expect("ip").status.success()
        };
        let number = { numbers }.find(made).expect("these tests need root, for bridges of their own");
        let bridge = format!("pde2e{number}");
        run("ip", &["addr", "add", &format!("10.213.{number}.1/24"), "dev", &bridge]);
        PrivateEngine::started(Some(bridge), flags, under).await
    }

    /// The engine of a machine of its own: of a network namespace, whose networks it manages, with this host
    /// name.
    pub(crate) async fn in_namespace(namespace: &str, name: &str) -> PrivateEngine {
        let own = format!("--net=/run/netns/{namespace}");
        let under = ["nsenter", &own, "unshare", "--uts", "sh", "-c", "hostname $0; exec \"$@\"", name];
        PrivateEngine::started(None, &[], &under.map(str::to_owned)).await
    }

    async fn started(bridge: Option<String>, flags: &[String], under: &[String]) -> PrivateEngine {
        let dir = TempDir::new().expect("a directory");
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o711))
            .expect("open to other users");
        let (flags, under) = (flags.to_vec(), under.to_vec());
        let mut engine = PrivateEngine { dir, bridge, flags, under, running: None, data: "data" };
        engine.start().await;
        engine
    }

    /// An engine with these runtimes: a name, and the arguments that gVisor's `runsc` gets.
    pub(crate) async fn with_gvisor(runtimes: &[(&str, &[&str])], flags: &[String]) -> PrivateEngine {
        let runtimes = runtimes.iter().map(|(name, arguments)| {
            let arguments = ["--platform=ptrace", "--network=none"].iter().chain(*arguments);
            let arguments: Vec<_> = arguments.collect();
            ((*name).to_owned(), json!({ "path": "/usr/bin/runsc", "runtimeArgs": arguments }))
        });
        let runtimes: serde_json::Map<String, serde_json::Value> = runtimes.collect();
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), json!({ "runtimes": runtimes }).to_string()).expect("a configuration");
        let config = ["--config-file".to_owned(), file.path().display().to_string()];
        PrivateEngine::with_flags(&[flags, &config].concat(), &[]).await
    }

    /// An engine that maps users, to 500000 and above.
    pub(crate) async fn that_maps_users() -> PrivateEngine {
        let files = user_files();
        let under = within_user_files(&files, "");
        let flags = ["--userns-remap=mapped:mapped".to_owned()];
        PrivateEngine::with_flags(&flags, &under).await
    }

    /// A rootless engine of a user of its own.
    pub(crate) async fn rootless() -> PrivateEngine {
        let files = user_files();
        // As dockerd-rootless.sh does it, but for the network, which no container of paddock has.
        let own = "previous=\nfor word in \"$@\"; do\n\
                   [ \"$previous\" != --data-root ] || place=${word%/*}\nprevious=$word\ndone\n\
                   mkdir \"$place/run\"; chown mapped:mapped \"$place\" \"$place/run\"\n\
                   export HOME=$place XDG_RUNTIME_DIR=$place/run PATH=/usr/sbin:/sbin:/usr/bin:/bin\n\
                   set -- setpriv --reuid=mapped --regid=mapped --clear-groups -- rootlesskit --net=host \
                   --port-driver=none --copy-up=/etc --copy-up=/run \
                   sh -c 'rm -f /run/docker /run/containerd; exec \"$@\"' sh \"$@\"\n";
        let under = within_user_files(&files, own);
        let flags = ["--rootless", "--storage-driver=vfs"].map(str::to_owned);
        PrivateEngine::with_flags(&flags, &under).await
    }

    /// Copies an image from the main engine.
    pub(crate) fn load(&self, image: &str) {
        let archive = self.path("image.tar");
        let archive = archive.to_str().expect("text");
        run("docker", &["save", "-o", archive, image]);
        run("docker", &["-H", &self.host(), "load", "-q", "-i", archive]);
    }

    /// The same, but marked as built for another architecture.
    pub(crate) fn load_for(&self, image: &str, architecture: &str) {
        let (archive, folder) = (self.path("foreign.tar"), self.path("foreign"));
        let (archive, folder) = (archive.to_str().expect("text"), folder.to_str().expect("text"));
        run("docker", &["save", "-o", archive, image]);
        std::fs::create_dir(folder).expect("a folder");
        run("tar", &["-xf", archive, "-C", folder]);
        let manifest = std::fs::read(self.path("foreign/manifest.json")).expect("a manifest");
        let manifest: serde_json::Value = serde_json::from_slice(&manifest).expect("JSON");
        let config = self.path("foreign").join(manifest[0]["Config"].as_str().expect("a configuration"));
        let mut said: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&config).expect("a configuration")).expect("JSON");
        said["architecture"] = architecture.into();
        std::fs::write(&config, said.to_string()).expect("a configuration");
        run("tar", &["-cf", archive, "-C", folder, "."]);
        run("docker", &["-H", &self.host(), "load", "-q", "-i", archive]);
        std::fs::remove_dir_all(folder).expect("a folder of ours");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Its address in the form of `DOCKER_HOST`.
    pub(crate) fn host(&self) -> String {
        format!("unix://{}", self.path("docker.sock").display())
    }

    pub(crate) async fn start(&mut self) {
        // The next containerd must not wait for a containerd that died with its dockerd.
        let _ = std::fs::remove_file(self.path("exec/containerd/containerd.pid"));
        let mut words = self.under.iter().map(String::as_str).chain(["dockerd"]);
        let mut command = Command::new(words.next().expect("a program"));
        command.args(words).args(&self.flags);
        for (flag, name) in [("--data-root", self.data), ("--exec-root", "exec"), ("--pidfile", "pid")] {
            command.arg(flag).arg(self.path(name));
        }
        command.args(["-H", &self.host()]);
        if let Some(bridge) = &self.bridge {
            // A user's engine can make nothing of a bridge of the host.
            let is_users = self.flags.iter().any(|flag| flag == "--rootless");
            command.args(["--bridge", if is_users { "none" } else { bridge }]);
            command.args(["--iptables=false", "--ip-forward=false", "--ip-masq=false"]);
        }
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("dockerd");
        let (log, ended) = Log::read(child.stderr.take().expect("it is piped"));
        self.running = Some((child, ended));
        log.line("API listen on").await;
    }

    /// Stops it properly, moves everything that it keeps to another folder, and starts it there.
    pub(crate) async fn move_data(&mut self) {
        self.end(Signal::TERM);
        std::fs::rename(self.path(self.data), self.path("moved")).expect("the same file system");
        self.data = "moved";
        self.start().await;
    }

    /// Stops it properly and starts it with other flags.
    pub(crate) async fn restart_with(&mut self, flags: &[String]) {
        self.end(Signal::TERM);
        self.flags = flags.to_vec();
        self.start().await;
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        self.end(Signal::KILL);
    }

    /// Suspends it: it answers nobody until [`PrivateEngine::resume`].
    pub(crate) fn suspend(&self) {
        self.signal(Signal::STOP);
    }

    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// The process id of its containerd.
    pub(crate) fn containerd(&self) -> Option<Pid> {
        let text = std::fs::read_to_string(self.path("exec/containerd/containerd.pid")).ok()?;
        Pid::from_raw(text.trim().parse().ok()?)
    }

    /// Kills its containerd, which the engine starts again, and returns the dead one.
    pub(crate) fn kill_containerd(&self) -> Pid {
        let pid = self.containerd().expect("an engine that started a containerd");
        kill_process(pid, Signal::KILL).expect("a living containerd");
        pid
    }

    fn signal(&self, signal: Signal) {
        let (child, _) = self.running.as_ref().expect("a running engine");
        kill_process(Pid::from_child(child), signal).expect("a living engine");
    }

    fn end(&mut self, signal: Signal) {
        let Some((mut child, ended)) = self.running.take() else { return };
        let _ = kill_process(Pid::from_child(&child), signal);
        let _ = kill_process(Pid::from_child(&child), Signal::CONT);
        if ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            let _ = child.kill();
        }
        let _ = child.wait();
    }
}

impl PrivateEngine {
    /// Kills the processes that a killed engine leaves behind.
    fn kill_leftovers(&self) {
        let dir = self.dir.path().as_os_str().as_encoded_bytes();
        for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = process.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            let said = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
            if let Some(pid) = Pid::from_raw(pid).filter(|_| said.windows(dir.len()).any(|part| part == dir))
            {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }

    fn unmount(&self) {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let mounts = mounts.lines().rev().filter_map(|line| line.split(' ').nth(1));
        for mount in mounts.filter(|mount| Path::new(mount).starts_with(self.dir.path())) {
            let _ = Command::new("umount").args(["--lazy", mount]).status();
        }
    }
}

impl Drop for PrivateEngine {
    fn drop(&mut self) {
        self.end(Signal::TERM);
        self.kill_leftovers();
        self.unmount();
        if let Some(bridge) = &self.bridge {
            let _ = Command::new("ip").args(["link", "del", bridge]).status();
        }
    }
}

/// The host's files of users, with one more, whose subordinate users are 500000 to 565535.
fn user_files() -> TempDir {
    let dir = TempDir::new().expect("a directory");
    for (file, line) in [
        ("passwd", "mapped:x:4711:4711::/:/bin/false"),
        ("group", "mapped:x:4711:"),
        ("subuid", "mapped:500000:65536"),
        ("subgid", "mapped:500000:65536"),
    ] {
        let before = std::fs::read_to_string(format!("/etc/{file}")).unwrap_or_default();
        std::fs::write(dir.path().join(file), format!("{before}{line}\n")).expect("a file");
    }
    dir
}

/// The words that start a program with these files in place of the host's, in a mount namespace of its own,
/// so that the host's stay unchanged; `more` is done before.
fn within_user_files(files: &TempDir, more: &str) -> [String; 6] {
    let mut script = "set -e\n".to_owned();
    for file in ["passwd", "group", "subuid", "subgid"] {
        script.push_str(&format!("mount --bind {} /etc/{file}\n", files.path().join(file).display()));
    }
    script.push_str(&format!("{more}exec \"$@\"\n"));
    ["unshare", "-m", "sh", "-c", &script, "sh"].map(str::to_owned)
}

fn run(program: &str, args: &[&str]) {
    let done = Command::new(program).args(args).output().unwrap_or_else(|e| panic!("{program}: {e}"));
    assert!(done.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&done.stderr));
}
