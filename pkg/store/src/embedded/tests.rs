//! What happens to the files: torn, damaged, missing, full, reclaimed.

use super::files::{Kind, Listing, path};
use super::{Embedded, Options};
use crate::record::FILE_HEADER;
use crate::{Error, Expect, Range, Store, Write};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const SMALL: Options = Options { segment_bytes: 400, garbage_bytes_min: 500 };

async fn set(store: &Embedded, key: &str, value: &str) -> Result<u64, Error> {
    let value = Some(value.to_owned().into());
    store.commit(vec![Write { key: format!("/registry/{key}"), expect: Expect::Any, value }]).await
}

async fn keys(store: &Embedded) -> Vec<String> {
    let page = store.range(Range::default()).await.unwrap();
    page.entries.into_iter().map(|entry| entry.key.replace("/registry/", "")).collect()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

fn complaint(result: Result<Embedded, Error>) -> String {
    match result {
        Err(Error::Unavailable { doing, source }) => format!("{doing}: {source}"),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it opened"),
    }
}

/// A closed store whose last commit has two writes, the length of its log before that, and the log.
async fn two_commits(dir: &Path) -> (PathBuf, u64) {
    let store = Embedded::open(dir).unwrap();
    set(&store, "a", "1").await.unwrap();
    let before = store.disk_bytes();
    let write = |key: &str| Write {
        key: format!("/registry/{key}"),
        expect: Expect::Absent,
        value: Some("value".to_owned().into()),
    };
    store.commit(vec![write("b"), write("c")]).await.unwrap();
    (path(dir, Kind::Segment, 1), before)
}

#[tokio::test]
async fn a_commit_torn_anywhere_is_gone_as_a_whole() {
    let dir = tempfile::tempdir().unwrap();
    let original = dir.path().join("original");
    let (log, before) = two_commits(&original).await;
    let whole = fs::metadata(&log).unwrap().len();
    for len in before..=whole {
        let dir = dir.path().join(len.to_string());
        copy(&original, &dir);
        let log = path(&dir, Kind::Segment, 1);
        fs::File::options().write(true).open(&log).unwrap().set_len(len).unwrap();
        let store = Embedded::open(&dir).unwrap();
        let expect = if len == whole { vec!["a", "b", "c"] } else { vec!["a"] };
        assert_eq!(keys(&store).await, expect, "cut at {len}");
        // What comes next takes its place.
        let revision = set(&store, "d", "1").await.unwrap();
        assert_eq!(revision, if len == whole { 3 } else { 2 });
        drop(store);
        assert_eq!(Embedded::open(&dir).unwrap().revision().await.unwrap(), revision);
    }
}

#[tokio::test]
async fn a_torn_commit_with_garbage_behind_it_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let (log, before) = two_commits(dir.path()).await;
    // Pages reach the disk in any order: the beginning of the write is missing, its end is there.
    let mut bytes = fs::read(&log).unwrap();
    bytes[before as usize..before as usize + 20].fill(0);
    fs::write(&log, bytes).unwrap();
    assert_eq!(keys(&Embedded::open(dir.path()).unwrap()).await, ["a"]);
}

#[tokio::test]
async fn damage_to_what_was_durable_is_an_error_with_file_and_offset() {
    let dir = tempfile::tempdir().unwrap();
    let original = dir.path().join("original");
    let (_, before) = two_commits(&original).await;
    for i in FILE_HEADER as u64..before {
        let dir = dir.path().join(i.to_string());
        copy(&original, &dir);
        let log = path(&dir, Kind::Segment, 1);
        let mut bytes = fs::read(&log).unwrap();
        bytes[i as usize] ^= 0x40;
        fs::write(&log, &bytes).unwrap();
        let said = complaint(Embedded::open(&dir));
        assert!(said.contains("wal-0000000000000001.log is damaged at offset 20"), "byte {i}: {said}");
        assert_eq!(fs::read(&log).unwrap(), bytes, "it was changed");
    }
}

#[tokio::test]
async fn every_file_is_needed() {
    let dir = tempfile::tempdir().unwrap();
    let original = dir.path().join("original");
    let store = Embedded::open_with(&original, SMALL).unwrap();
    for i in 0..60 {
        set(&store, &format!("k{}", i % 3), "some value").await.unwrap();
        if i == 40 {
            store.compact(35).await.unwrap();
        }
    }
    eventually(|| original.join("snapshot-0000000000000023.db").exists() && !has_segment(&original, 1)).await;
    drop(store);
    let listing = Listing::read(&original).unwrap();
    assert!(listing.segments.len() > 3, "{listing:?}");
    let (last, others) = listing.segments.split_last().unwrap();
    for (_, missing) in others.iter().chain(&listing.snapshots) {
        let name = missing.file_name().unwrap();
        let dir = dir.path().join(name);
        copy(&original, &dir);
        fs::remove_file(dir.join(name)).unwrap();
        assert!(complaint(Embedded::open(&dir)).contains("missing"));
        // Cut short, it is as good as missing, unless it is the end of the log.
        copy(&original, &dir);
        let file = fs::File::options().write(true).open(dir.join(name)).unwrap();
        file.set_len(file.metadata().unwrap().len() - 3).unwrap();
        assert!(complaint(Embedded::open(&dir)).contains("damaged"));
    }
    // A new segment whose header the crash cut off was never written to.
    fs::File::options().write(true).open(&last.1).unwrap().set_len(7).unwrap();
    assert_eq!(Embedded::open(&original).unwrap().revision().await.unwrap(), last.0 - 1);
}

#[tokio::test]
async fn one_process_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path()).unwrap();
    assert!(complaint(Embedded::open(dir.path())).contains("another process has this store open"));
    drop(store);
    Embedded::open(dir.path()).unwrap();
}

#[tokio::test]
async fn space_comes_back_while_history_stays() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { segment_bytes: 64 << 10, garbage_bytes_min: 128 << 10 };
    let store = Embedded::open_with(dir.path(), options).unwrap();
    let value = "x".repeat(1000);
    let mut most = 0;
    for i in 0..3000_u64 {
        let revision = set(&store, &format!("k{}", i % 20), &value).await.unwrap();
        if i % 100 == 99 {
            store.compact(revision - 50).await.unwrap();
            most = most.max(store.disk_bytes());
        }
    }
    // 3 MB were written, 20 kB are alive.
    eventually(|| store.disk_bytes() < 400 << 10).await;
    assert!(most < 2 << 20, "{most} bytes at most");
    let on_disk = || -> u64 {
        fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
    };
    eventually(|| on_disk() == store.disk_bytes()).await;
    let mut feed = store.changes("/registry/", 2950).await.unwrap();
    let mut next = 2951;
    while next <= 3000 {
        let crate::News::Changes(changes) = feed.next().await.unwrap() else { continue };
        for change in changes {
            assert_eq!(change.revision, next);
            next += 1;
        }
    }
    drop((feed, store));
    let store = Embedded::open_with(dir.path(), options).unwrap();
    assert_eq!(keys(&store).await.len(), 20);
    assert!(matches!(store.changes("", 2949).await, Err(Error::Compacted { oldest: 2950, .. })));
}

#[tokio::test]
async fn a_closed_store_ends_its_feeds() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path()).unwrap();
    let mut feed = store.changes("/registry/", 0).await.unwrap();
    set(&store, "a", "").await.unwrap();
    drop(store);
    assert!(matches!(feed.next().await, Ok(crate::News::Changes(_))));
    assert!(matches!(feed.next().await, Err(Error::Unavailable { .. })));
}

/// A small file system of its own, in memory; gone when dropped.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount(size: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut mount = std::process::Command::new("mount");
        let mount = mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(dir.path());
        assert!(mount.status().unwrap().success(), "mounting needs root");
        Self(dir)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[tokio::test]
async fn a_full_disk_refuses_writes_until_there_is_room() {
    let disk = SmallDisk::mount("2m");
    let dir = disk.0.path().join("store");
    let ballast = disk.0.path().join("ballast");
    fs::write(&ballast, vec![1; 1 << 20]).unwrap();
    let store = Embedded::open(&dir).unwrap();
    let value = "x".repeat(50_000);
    let mut written = 0;
    let error = loop {
        match set(&store, &format!("k{written:03}"), &value).await {
            Ok(revision) => written = revision,
            Err(Error::Unavailable { source, .. }) => break source.to_string(),
            Err(other) => panic!("{other}"),
        }
    };
    assert!(error.contains("No space left on device"), "{error}");
    assert!(written > 10);
    assert_eq!(keys(&store).await.len() as u64, written, "reads go on");
    assert!(set(&store, "k", &value).await.is_err());
    fs::remove_file(&ballast).unwrap();
    assert_eq!(set(&store, "later", &value).await.unwrap(), written + 1);
    drop(store);
    let store = Embedded::open(&dir).unwrap();
    assert_eq!(keys(&store).await.len() as u64, written + 1);
    assert_eq!(store.revision().await.unwrap(), written + 1);
}

fn has_segment(dir: &Path, first: u64) -> bool {
    path(dir, Kind::Segment, first).exists()
}

/// Waits for what another thread does in its own time.
async fn eventually(condition: impl Fn() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < Duration::from_secs(60), "it does not come true");
        tokio::task::yield_now().await;
    }
}
