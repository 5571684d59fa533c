//! The diff of two trees against the real git: what `git apply` makes of the state before is the state after.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use paddock_proto::LinkTarget;
use proptest::prelude::*;

use super::*;

/// What is at a path of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Node {
    File { content: Vec<u8>, executable: bool },
    Link(Vec<u8>),
}

type Nodes = BTreeMap<RelPath, Node>;

fn path(text: &str) -> RelPath {
    RelPath::new(text).unwrap()
}

fn text(content: &str) -> Node {
    Node::File { content: content.as_bytes().to_vec(), executable: false }
}

/// Writes a tree to a folder.
fn write(folder: &Path, nodes: &Nodes) {
    for (path, node) in nodes {
        let at = folder.join(std::ffi::OsStr::from_bytes(path.as_bytes()));
        std::fs::create_dir_all(at.parent().unwrap()).unwrap();
        match node {
            Node::File { content, executable } => {
                std::fs::write(&at, content).unwrap();
                let mode = if *executable { 0o755 } else { 0o644 };
                std::fs::set_permissions(&at, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
            }
            Node::Link(target) => {
                std::os::unix::fs::symlink(std::ffi::OsStr::from_bytes(target), &at).unwrap();
            }
        }
    }
}

/// Reads a folder back.
fn read(folder: &Path, below: Option<&RelPath>, nodes: &mut Nodes) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name();
        let path =
            below.map_or_else(|| RelPath::new(name.as_bytes()), |dir| dir.join(name.as_bytes())).unwrap();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            read(&entry.path(), Some(&path), nodes);
        } else if kind.is_symlink() {
            let target = std::fs::read_link(entry.path()).unwrap();
            nodes.insert(path, Node::Link(target.as_os_str().as_bytes().to_vec()));
        } else {
            let mode = std::os::unix::fs::PermissionsExt::mode(&entry.metadata().unwrap().permissions());
            let content = std::fs::read(entry.path()).unwrap();
            nodes.insert(path, Node::File { content, executable: mode & 0o100 != 0 });
        }
    }
}

fn state<'a>(folder: &'a Path, nodes: &Nodes) -> TreeState<'a> {
    let entry = |(path, node): (&RelPath, &Node)| {
        let (kind, mode) = match node {
            Node::File { content, executable } => {
                (EntryKind::File(content.len() as u64), if *executable { 0o755 } else { 0o644 })
            }
            Node::Link(target) => (EntryKind::Link(LinkTarget::new(target.clone()).unwrap()), 0o777),
        };
        (path.clone(), Entry { path: path.clone(), kind, mode, mtime_ns: 0 })
    };
    let open = |path: &RelPath| File::open(folder.join(std::ffi::OsStr::from_bytes(path.as_bytes())));
    TreeState { entries: nodes.iter().map(entry).collect(), open: Box::new(open) }
}

/// The diff of two trees, in folders of their own.
fn difference(before: &Nodes, after: &Nodes, bounds: DiffBounds) -> (String, DiffSummary) {
    let (diff, summary) = bytes_of_difference(before, after, bounds);
    (String::from_utf8(diff).unwrap(), summary)
}

fn bytes_of_difference(before: &Nodes, after: &Nodes, bounds: DiffBounds) -> (Vec<u8>, DiffSummary) {
    let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(old.path(), before);
    write(new.path(), after);
    compare(&state(old.path(), before), &state(new.path(), after), bounds)
}

fn nodes<const N: usize>(all: [(&str, Node); N]) -> Nodes {
    all.into_iter().map(|(name, node)| (path(name), node)).collect()
}

#[test]
fn every_kind_of_change_is_as_git_writes_it() {
    let script = |content: &str| Node::File { content: content.into(), executable: true };
    let binary = |byte: u8| Node::File { content: vec![0, byte], executable: false };
    let before = nodes([
        ("a b.txt", text("one\n")),
        ("bin", binary(1)),
        ("gone", text("x\n")),
        ("link", Node::Link(b"gone".to_vec())),
        ("same", text("s")),
        ("tool", text("#!\n")),
        (".agent/x", text("1")),
        (".git/config", text("[core]\n")),
        ("sub/.git/hooks/pre-commit", text("1")),
    ]);
    let after = nodes([
        ("a b.txt", text("two")),
        ("bin", binary(2)),
        ("empty", text("")),
        ("link", text("gone")),
        ("same", text("s")),
        ("tool", script("#!\n")),
        ("new\u{1b}\n", text("n\n")),
        (".agent/x", text("2")),
        (".git/config", text("[core]\nfsmonitor = touch /tmp/x\n")),
    ]);
    let (diff, summary) = difference(&before, &after, DiffBounds::OF_A_TASK);
    let expected = r#"diff --git a/a b.txt b/a b.txt
index 5626abf0f72e58d7a153368ba57db4c673c0e171..64c5e5885a4b1e4c93f3e19c4a7c3e62d2c7f1b5 100644
--- a/a b.txt	
+++ b/a b.txt	
@@ -1 +1 @@
-one
+two
\ No newline at end of file
diff --git a/bin b/bin
Binary files a/bin and b/bin differ
diff --git a/empty b/empty
new file mode 100644
diff --git a/gone b/gone
deleted file mode 100644
--- a/gone
+++ /dev/null
@@ -1 +0,0 @@
-x
diff --git a/link b/link
deleted file mode 120000
--- a/link
+++ /dev/null
@@ -1 +0,0 @@
-gone
\ No newline at end of file
diff --git a/link b/link
new file mode 100644
--- /dev/null
+++ b/link
@@ -0,0 +1 @@
+gone
\ No newline at end of file
diff --git "a/new\033\n" "b/new\033\n"
new file mode 100644
--- /dev/null
+++ "b/new\033\n"
@@ -0,0 +1 @@
+n
diff --git a/tool b/tool
old mode 100644
new mode 100755
"#;
    let without_ids = |text: &str| -> String {
        text.lines().filter(|line| !line.starts_with("index ")).map(|line| format!("{line}\n")).collect()
    };
    assert_eq!(without_ids(&diff), without_ids(expected));
    // What `git hash-object` says of `one` and a newline, and of an empty file.
    assert!(diff.contains("index 5626abf0f72e58d7a153368ba57db4c673c0e171.."), "{diff}");
    assert!(diff.contains("000000..e69de29bb2d1d6434b8b29ae775ad8c2e48c5391\n"), "{diff}");
    assert_eq!((summary.files_changed, summary.insertions, summary.deletions), (7, 3, 3));
    assert!(!summary.is_truncated());
}

#[test]
fn what_does_not_fit_is_named_without_its_lines_and_counted() {
    let before = nodes([("a", text(&"a\n".repeat(1000))), ("b", text("b\n")), ("c", text("c\n"))]);
    let after = nodes([("a", text(&"x\n".repeat(1000))), ("b", text("y\n")), ("c", text("z\n"))]);
    let bounds = DiffBounds { total: 900, ..DiffBounds::OF_A_TASK };
    let (diff, summary) = difference(&before, &after, bounds);
    assert!(diff.contains("Binary files a/a and b/a differ\n") && diff.contains("-b\n+y\n"), "{diff}");
    assert_eq!((summary.files_changed, summary.without_lines, summary.left_out), (3, 1, 0), "{diff}");
    let (diff, summary) = difference(&before, &after, DiffBounds { total: 200, ..bounds });
    assert!(diff.len() <= 200 && summary.left_out == 2, "{summary:?} {diff}");
    let (diff, summary) = difference(&before, &after, DiffBounds { file: 100, ..bounds });
    assert!(diff.contains("Binary files a/a and b/a differ\n") && summary.is_truncated(), "{diff}");
    let (_, summary) = difference(&before, &after, DiffBounds { time: Duration::ZERO, ..bounds });
    assert_eq!((summary.without_lines, summary.insertions), (3, 0));
}

/// Runs git without any configuration of this machine.
fn git(folder: &Path, words: &[&str]) -> std::process::Output {
    let mut git = Command::new("git");
    git.args(words).current_dir(folder);
    git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
    git.env("GIT_CEILING_DIRECTORIES", folder.parent().unwrap());
    git.output().expect("git")
}

/// Names that have to be quoted, or look like something else.
const ODD_NAMES: [&str; 9] = ["x\ty", "q\"q", "n\nl", "\u{1b}[31m", "é", "b\\n", "-", "--- a", " "];

/// Lines, some of which look like those of a diff.
const LINES: [&str; 12] = [
    "a",
    "b",
    "c",
    "",
    " x",
    "-- a/b",
    "++ b/a",
    "@@ -1 +1 @@",
    "diff --git a/a b/a",
    "x\r",
    "\u{1b}[31m",
    "\\ No newline",
];

fn name() -> impl Strategy<Value = RelPath> {
    let part = prop_oneof![
        4 => "[ab]",
        1 => "[a-c ]{1,3}",
        1 => proptest::sample::select(&ODD_NAMES[..]).prop_map(str::to_owned),
    ];
    proptest::collection::vec(part, 1..4).prop_map(|parts| path(&parts.join("/")))
}

fn node() -> impl Strategy<Value = Node> {
    let line = proptest::sample::select(&LINES[..]);
    let content = (proptest::collection::vec(line, 0..12), any::<bool>()).prop_map(|(lines, ends)| {
        let mut text = lines.join("\n").into_bytes();
        text.extend(ends.then_some(b'\n'));
        text
    });
    let bytes = proptest::collection::vec(1u8.., 0..30);
    let binary = proptest::collection::vec(any::<u8>(), 0..20).prop_map(|mut bytes| {
        bytes.push(0);
        bytes
    });
    let content = prop_oneof![6 => content, 2 => bytes, 1 => binary];
    let file = (content, any::<bool>()).prop_map(|(content, executable)| Node::File { content, executable });
    // Links lead nowhere: where one leads into the tree, git itself cannot put a folder in its place.
    let link = "gone-[a-c]{1,3}".prop_map(|target| Node::Link(target.into_bytes()));
    prop_oneof![6 => file, 1 => link]
}

fn tree() -> impl Strategy<Value = Nodes> {
    proptest::collection::vec((name(), node()), 0..8).prop_map(|all| {
        let mut nodes = Nodes::new();
        for (path, node) in all {
            let is_free =
                nodes.keys().all(|other| *other != path && !other.is_below(&path) && !path.is_below(other));
            if is_free {
                nodes.insert(path, node);
            }
        }
        nodes
    })
}

/// A tree, and another that has much in common with it.
fn trees() -> impl Strategy<Value = (Nodes, Nodes)> {
    (tree(), tree(), any::<u64>()).prop_map(|(before, other, keep)| {
        let mut after = other;
        for (index, (path, node)) in before.iter().enumerate() {
            let is_free = after.keys().all(|new| new != path && !new.is_below(path) && !path.is_below(new));
            if is_free && keep >> (index % 64) & 1 == 1 {
                after.insert(path.clone(), node.clone());
            }
        }
        (before, after)
    })
}

fn is_binary(node: Option<&Node>) -> bool {
    matches!(node, Some(Node::File { content, .. }) if content.contains(&0))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Git is the oracle. Binary contents are not in the diff: git is told to leave those paths alone.
    #[test]
    fn git_applies_a_diff_and_gets_the_state_after((before, after) in trees()) {
        let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        write(old.path(), &before);
        write(new.path(), &after);
        let (diff, summary) =
            compare(&state(old.path(), &before), &state(new.path(), &after), DiffBounds::OF_A_TASK);
        let changed: BTreeSet<&RelPath> = before.keys().chain(after.keys())
            .filter(|path| before.get(path) != after.get(path)).collect();
        prop_assert_eq!(summary.files_changed, changed.len() as u64);
        let parsed = parse(&diff).expect("the parser reads every diff");
        let named: BTreeSet<RelPath> =
            parsed.iter().map(|change| RelPath::new(change.name.clone()).unwrap()).collect();
        prop_assert_eq!(named.iter().collect::<BTreeSet<_>>(), changed.clone());

        // Without the sections of binary files, and without such files.
        let is_of_binary = |path: &RelPath| is_binary(before.get(path)) || is_binary(after.get(path));
        let mut patch = Vec::new();
        for change in &parsed {
            if !is_of_binary(&RelPath::new(change.name.clone()).unwrap()) {
                patch.extend_from_slice(&diff[change.range.clone()]);
            }
        }
        let apart = tempfile::tempdir().unwrap();
        let textual = |nodes: &Nodes| -> Nodes {
            let texts = nodes.iter().filter(|(path, _)| !is_of_binary(path));
            texts.map(|(path, node)| (path.clone(), node.clone())).collect()
        };
        write(apart.path(), &textual(&before));
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &patch).unwrap();
        if !patch.is_empty() {
            let applied = git(apart.path(), &["apply", "--whitespace=nowarn", file.path().to_str().unwrap()]);
            prop_assert!(applied.status.success(), "{}\n{}", String::from_utf8_lossy(&applied.stderr),
                String::from_utf8_lossy(&diff));
        }
        let mut got = Nodes::new();
        read(apart.path(), None, &mut got);
        prop_assert_eq!(got, textual(&after), "{}", String::from_utf8_lossy(&diff));
    }

    /// The names of contents are those of git itself.
    #[test]
    fn contents_have_the_names_that_git_gives_them(
        content in proptest::collection::vec(any::<u8>(), 0..200)
    ) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("f"), &content).unwrap();
        let hashed = git(folder.path(), &["hash-object", "--no-filters", "f"]);
        let expected = String::from_utf8(hashed.stdout).unwrap();
        prop_assert_eq!(blob_id(&content[..], content.len() as u64).unwrap(), expected.trim());
    }
}
