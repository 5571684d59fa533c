//! The checks of a store's folder, defect by defect.

use super::super::check::Status::{Fail, Warn};
use super::super::check::tests::lacks;
use super::*;
use crate::holder::HoldingProcess;

const GIB: u64 = 1 << 30;

fn good() -> StoreFacts {
    StoreFacts {
        root: "/var/lib/paddock".into(),
        exists: true,
        unwritable: None,
        distrusted: None,
        held: LockState::Free,
        file_system: FileSystem::Disk("ext4"),
        free: 100 * GIB,
        free_inodes: Some(1_000_000),
        stored: GIB,
        counted: true,
        sync: Some(Duration::from_millis(2)),
        max_bytes: 50 * GIB,
        session: (GIB / 4, 16_384),
    }
}

#[test]
fn each_defect_gives_its_check_and_no_other() {
    for fine in [
        good(),
        StoreFacts { exists: false, ..good() },
        StoreFacts { held: LockState::HeldBy(HoldingProcess { pid: 7, name: "paddock".into() }), ..good() },
        StoreFacts { held: LockState::Unseen, ..good() },
        StoreFacts { file_system: FileSystem::Other(1), ..good() },
        StoreFacts { free: 20 * GIB, stored: 40 * GIB, ..good() },
        StoreFacts { free: 20 * GIB, counted: false, ..good() },
        StoreFacts { free_inodes: None, ..good() },
    ] {
        assert_eq!(lacks(&judge(&fine)), [], "{fine:?}");
    }
    for (facts, name, status, word) in [
        (StoreFacts { unwritable: Some("why".into()), ..good() }, "writable", Fail, "why"),
        (
            StoreFacts { distrusted: Some("/s is open: close it".into()), ..good() },
            "owner",
            Fail,
            "/s is open",
        ),
        (StoreFacts { file_system: FileSystem::of(0x0102_1994), ..good() }, "file system", Warn, "tmpfs"),
        (StoreFacts { file_system: FileSystem::of(0x794c_7630), ..good() }, "file system", Warn, "overlay"),
        (StoreFacts { file_system: FileSystem::of(0x6969), ..good() }, "file system", Warn, "nfs"),
        (StoreFacts { free: 20 * GIB, ..good() }, "space", Warn, "20.0 GiB are free"),
        (StoreFacts { free: 1 << 20, ..good() }, "space", Fail, "is full"),
        (StoreFacts { free_inodes: Some(100), ..good() }, "inodes", Warn, "100 inodes"),
        (StoreFacts { sync: Some(Duration::from_millis(45)), ..good() }, "sync", Warn, "45.0 ms"),
    ] {
        let checks = judge(&facts);
        assert_eq!(lacks(&checks), [(name, status)], "{facts:?}");
        assert!(checks.iter().any(|check| check.found.contains(word)), "{word}: {checks:?}");
    }
}

#[test]
fn the_examination_leaves_nothing_and_counts_stored_bytes() {
    let dir = tempfile::tempdir().expect("a folder");
    timed_syncs(dir.path()).expect("it can be written");
    assert_eq!(fs::read_dir(dir.path()).expect("a folder").count(), 0);
    fs::create_dir(dir.path().join("a")).expect("a folder");
    fs::write(dir.path().join("a/b"), [0; 1000]).expect("a file");
    assert_eq!(count(dir.path()), (1000, true));
}
