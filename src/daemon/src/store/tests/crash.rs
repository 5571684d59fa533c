//! Crashes of the machine: the journal ends anywhere, and any part of its records is applied.

use super::journal::{name, number};
use super::model::{Change, Numbers, Tree, change, commit, copy, tree};
use super::record::{self, JournalFrame};
use super::*;

const SESSIONS: [&str; 3] = ["s0", "s1", "s2"];
type World = BTreeMap<&'static str, Tree>;

/// A store after some changes, and its state after each of them.
struct Life {
    root: TempDir,
    /// After each acknowledged change: the journal's file and length at that time, and the expected sessions.
    moments: Vec<(u64, u64, World)>,
}

/// Makes the changes of `seed` in three sessions; the journal is sealed now and then and never freed.
async fn live(seed: u64, changes: u64) -> Life {
    let root = TempDir::new_in(MEMORY).unwrap();
    let store = Arc::new(once_free(&root.path().join("live"), OPTIONS));
    *store.shared.stuck.lock().unwrap() = true; // no checkpoint frees the journal
    let mut numbers = Numbers(seed);
    let mut world: World = SESSIONS.map(|session| (session, Tree::new())).into();
    let mut moments = vec![(0, 0, world.clone())];
    copy(&root.path().join("live"), &root.path().join("0"));
    for n in 0..changes {
        if numbers.below(5) == 0 {
            store.shared.journal.seal();
        }
        let session = SESSIONS[numbers.index(3)];
        let one = Numbers::change(seed, n);
        let tree = world.get_mut(session).unwrap();
        commit(&store, session, tree, &one).await.unwrap();
        change(tree, &one);
        let (file, len) = journal_end(&root.path().join("live"));
        moments.push((file, len, world.clone()));
        copy(&root.path().join("live"), &root.path().join(format!("{}", n + 1)));
    }
    Life { root, moments }
}

/// The last file that is not empty, and its length.
fn journal_end(root: &Path) -> (u64, u64) {
    let mut files: Vec<_> = fs::read_dir(root.join("journal")).unwrap().map(|file| file.unwrap()).collect();
    files.retain(|file| file.metadata().unwrap().len() > 0);
    let last = files.iter().max_by_key(|file| file.file_name());
    last.map_or((0, 0), |file| {
        (number(file.file_name().to_str().unwrap()).unwrap(), file.metadata().unwrap().len())
    })
}

/// All frames of a journal file, with their ends.
fn frames(bytes: &[u8], seq: u64) -> Vec<(u64, JournalFrame)> {
    let (mut from, mut at, mut all) = (bytes, 0, Vec::new());
    while let Some((len, framed)) = record::read(&mut from, seq, at).unwrap() {
        at += len;
        all.push((at, framed));
    }
    all
}

impl Life {
    /// A store with `applied` changes and `more` operations of the next applied, and whose journal ends at
    /// byte `len` of `file`.
    fn crashed(&self, applied: usize, more: usize, file: u64, len: u64) -> PathBuf {
        let crashed = self.root.path().join("crashed");
        let _ = fs::remove_dir_all(&crashed);
        copy(&self.root.path().join(applied.to_string()), &crashed);
        // The journal and the files in tmp/ that it names are durable before anything is applied.
        let last = self.root.path().join("live");
        for dir in ["journal", "tmp"] {
            fs::remove_dir_all(crashed.join(dir)).unwrap();
            copy(&last.join(dir), &crashed.join(dir));
        }
        let journal = crashed.join("journal");
        for entry in fs::read_dir(&journal).unwrap() {
            let path = entry.unwrap().path();
            let seq = number(path.file_name().unwrap().to_str().unwrap()).unwrap();
            if seq > file {
                fs::remove_file(&path).unwrap();
            } else if seq == file {
                File::options().write(true).open(&path).unwrap().set_len(len).unwrap();
            }
        }
        let next = self.moments.get(applied + 1).filter(|(f, l, _)| *l > 0 && (*f, *l) <= (file, len));
        if let Some((f, l, _)) = next {
            let bytes = fs::read(journal.join(name(*f))).unwrap();
            let record = frames(&bytes, *f).into_iter().find(|(end, _)| end == l);
            let Some((_, JournalFrame::Change(mut record))) = record else { panic!("no record ends at {l}") };
            record.ops.truncate(more);
            apply::apply(&crashed, &crashed.join("tmp"), &record).unwrap();
        }
        crashed
    }
}

async fn check(root: &Path, world: &World, what: &str) {
    let store = Arc::new(Store::open(root, OPTIONS).unwrap_or_else(|error| panic!("{what}: {error}")));
    for (session, expected) in world {
        let found = tree(&store, session).await;
        assert_eq!(&found, expected, "{session}, {what}");
    }
    assert_eq!(fs::read_dir(root.join("tmp")).unwrap().count(), 0, "{what}");
}

#[tokio::test]
async fn after_any_crash_exactly_the_acknowledged_changes_are_there() {
    for seed in 0..6 {
        let life = live(seed, 24).await;
        let mut numbers = Numbers(seed + 100);
        for _ in 0..30 {
            // Everything up to `last` was acknowledged, and the journal may continue into the next record.
            let last = numbers.index(life.moments.len());
            let (file, len, world) = &life.moments[last];
            let (file, len, world, torn) = match life.moments.get(last + 1) {
                Some((next, end, _)) if next == file && end > len && numbers.below(2) == 0 => {
                    (*file, len + numbers.below(end - len), world, true)
                }
                _ => (*file, *len, world, false),
            };
            let applied = numbers.index(last + 1);
            let more = numbers.index(4);
            let root = life.crashed(applied, more, file, len);
            let what = format!(
                "seed {seed}: {last} acknowledged, {applied} in place and {more} steps, torn: {torn}"
            );
            check(&root, world, &what).await;
        }
    }
}

#[tokio::test]
async fn a_journal_cut_anywhere_has_the_complete_records_before_the_cut() {
    let life = live(7, 30).await;
    let mut records = 0;
    for entry in fs::read_dir(life.root.path().join("live/journal")).unwrap() {
        let path = entry.unwrap().path();
        let seq = number(path.file_name().unwrap().to_str().unwrap()).unwrap();
        let bytes = fs::read(&path).unwrap();
        let all = frames(&bytes, seq);
        assert_eq!(all.last().map_or(0, |(end, _)| *end), bytes.len() as u64);
        records += all.iter().filter(|(_, framed)| matches!(framed, JournalFrame::Change(_))).count();
        for cut in 0..bytes.len() {
            let whole = all.iter().take_while(|(end, _)| *end <= cut as u64).count();
            assert_eq!(frames(&bytes[..cut], seq).len(), whole, "cut at {cut}");
        }
        // A flipped bit ends it too, wherever it is.
        for flip in (0..bytes.len()).step_by(7) {
            let mut bytes = bytes.clone();
            bytes[flip] ^= 1 << (flip % 8);
            let whole = all.iter().take_while(|(end, _)| *end <= flip as u64).count();
            assert_eq!(frames(&bytes, seq).len(), whole, "flipped at {flip}");
        }
        assert!(frames(&bytes, seq + 1).is_empty(), "the bytes of one file are no records of another");
    }
    let batches = (0..30).filter(|n| matches!(Numbers::change(7, *n), Change::Batch(_))).count();
    assert!(records >= batches.min(10), "{records} records of {batches} batches");
}

#[tokio::test]
async fn damage_in_an_acknowledged_part_of_the_journal_stops_the_start() {
    let life = live(3, 12).await;
    let root = life.root.path().join("live");
    let (last, ..) = life.moments[life.moments.len() - 1];
    let first =
        (0..last).find(|seq| root.join("journal").join(name(*seq)).exists()).expect("more than one file");
    let path = root.join("journal").join(name(first));
    let mut bytes = fs::read(&path).unwrap();
    let end = bytes.len() - 1;
    bytes[end] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let error = Store::open(&root, OPTIONS).err().expect("the damage is seen").to_string();
    assert!(error.contains(&name(first)) && error.contains("damaged at byte"), "{error}");
    bytes[end] ^= 1;
    fs::write(&path, &bytes).unwrap();
    check(&root, &life.moments[life.moments.len() - 1].2, "mended").await;
}
