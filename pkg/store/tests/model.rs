//! The embedded engine against a map: whatever is done to it, in whatever order, it answers the same.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;
use store::embedded::Options;
use store::{Change, Embedded, Error, Expect, News, Range, Revision, Store, Write};

/// So small that every run rolls segments and writes snapshots.
const SMALL: Options = Options { segment_bytes: 600, garbage_bytes_min: 300 };

#[derive(Debug, Clone)]
enum Step {
    Commit(Vec<(u8, Guess, Option<u16>)>),
    Read { back: u8, limit: usize, after: Option<u8> },
    Follow { back: u8, prefix: u8 },
    Compact { back: u8 },
    Reopen,
}

/// What a write expects: right or wrong.
#[derive(Debug, Clone, Copy)]
enum Guess {
    Any,
    Absent,
    Present,
    Unchanged,
    Stale,
}

fn step() -> impl Strategy<Value = Step> {
    let guess = prop_oneof![
        4 => Just(Guess::Any), 1 => Just(Guess::Absent), 3 => Just(Guess::Present), 1 => Just(Guess::Unchanged),
        1 => Just(Guess::Stale)
    ];
    let value = proptest::option::weighted(0.75, 0..300_u16);
    let writes = proptest::collection::vec((0..12_u8, guess, value), 1..4);
    prop_oneof![
        12 => writes.prop_map(Step::Commit),
        3 => (0..20_u8, 0..8_usize, proptest::option::of(0..12_u8))
            .prop_map(|(back, limit, after)| Step::Read { back, limit, after }),
        2 => (0..30_u8, 0..3_u8).prop_map(|(back, prefix)| Step::Follow { back, prefix }),
        2 => (0..15_u8).prop_map(|back| Step::Compact { back }),
        1 => Just(Step::Reopen),
    ]
}

type State = BTreeMap<String, (Vec<u8>, Revision, Revision)>;

/// Every state there ever was, and every change.
struct Model {
    states: Vec<State>,
    changes: Vec<Change>,
    compacted: Revision,
}

impl Model {
    fn revision(&self) -> Revision {
        self.states.len() as Revision - 1
    }

    fn back(&self, by: u8) -> Revision {
        self.revision().saturating_sub(by.into())
    }

    fn writes(&self, writes: &[(u8, Guess, Option<u16>)]) -> Vec<Write> {
        let mut distinct = BTreeMap::new();
        distinct.extend(writes.iter().map(|(key, guess, value)| (*key, (*guess, *value))));
        let write = |(key, (guess, value)): (u8, (Guess, Option<u16>))| {
            let key = name(key);
            let present = self.states.last().and_then(|state| state.get(&key)).map(|entry| entry.1);
            let expect = match guess {
                Guess::Any => Expect::Any,
                Guess::Absent => Expect::Absent,
                Guess::Present => present.map_or(Expect::Absent, Expect::Revision),
                Guess::Unchanged => present.map_or(Expect::Absent, Expect::Unchanged),
                Guess::Stale => Expect::Revision(present.unwrap_or(1).saturating_sub(1)),
            };
            let value = value.filter(|_| !matches!(expect, Expect::Unchanged(_)));
            Write { key, expect, value: value.map(|len| vec![len as u8; len.into()].into()) }
        };
        distinct.into_iter().map(write).collect()
    }

    /// The new revision, or the key of the first write that is refused.
    fn commit(&mut self, writes: &[Write]) -> Result<Revision, String> {
        let mut state = self.states.last().cloned().unwrap_or_default();
        for write in writes {
            let current = state.get(&write.key).map(|entry| entry.1);
            let holds = match write.expect {
                Expect::Any => true,
                Expect::Absent => current.is_none(),
                Expect::Revision(revision) | Expect::Unchanged(revision) => current == Some(revision),
            };
            if !holds {
                return Err(write.key.clone());
            }
        }
        let revision = self.revision() + 1;
        let before = self.changes.len();
        for Write { key, expect, value } in writes.iter().cloned() {
            if matches!(expect, Expect::Unchanged(_)) {
                continue;
            }
            let old = state.remove(&key);
            let created = match (&value, &old) {
                (Some(value), _) => {
                    let created = old.map_or(revision, |old| old.2);
                    state.insert(key.clone(), (value.to_vec(), revision, created));
                    created
                }
                (None, Some(_)) => revision,
                (None, None) => continue,
            };
            self.changes.push(Change { key, value, revision, created });
        }
        if self.changes.len() == before {
            return Ok(revision - 1);
        }
        self.states.push(state);
        Ok(revision)
    }
}

fn name(key: u8) -> String {
    format!("/registry/{}/{key:02}", key % 3)
}

async fn run(dir: &Path, steps: &[Step]) {
    let mut store = Embedded::open_with(dir, SMALL).unwrap();
    let mut model = Model { states: vec![State::new()], changes: Vec::new(), compacted: 0 };
    for step in steps {
        match step {
            Step::Commit(writes) => commit(&store, &mut model, writes).await,
            Step::Read { back, limit, after } => read(&store, &model, *back, *limit, *after).await,
            Step::Follow { back, prefix } => follow(&store, &model, *back, *prefix).await,
            Step::Compact { back } => {
                let revision = model.back(*back);
                store.compact(revision).await.unwrap();
                model.compacted = model.compacted.max(revision);
            }
            Step::Reopen => {
                drop(store);
                store = Embedded::open_with(dir, SMALL).unwrap();
            }
        }
        assert_eq!(store.revision().await.unwrap(), model.revision());
    }
    drop(store);
    let store = Embedded::open_with(dir, SMALL).unwrap();
    for back in 0..=model.revision().min(255) as u8 {
        read(&store, &model, back, 0, None).await;
        follow(&store, &model, back, 9).await;
    }
}

async fn commit(store: &Embedded, model: &mut Model, writes: &[(u8, Guess, Option<u16>)]) {
    let writes = model.writes(writes);
    let expect = model.commit(&writes);
    match (store.commit(writes).await, expect) {
        (Ok(revision), Ok(expect)) => assert_eq!(revision, expect),
        (Err(Error::Conflict { key, current }), Err(expect)) => {
            assert_eq!(key, expect);
            let state = model.states.last().and_then(|state| state.get(&key));
            assert_eq!(current.map(|c| (c.value.to_vec(), c.modified, c.created)), state.cloned());
        }
        (result, expect) => panic!("{result:?} instead of {expect:?}"),
    }
}

async fn read(store: &Embedded, model: &Model, back: u8, limit: usize, after: Option<u8>) {
    let revision = model.back(back);
    let after = after.map(name);
    let range = Range { prefix: "/registry/".into(), after: after.clone(), limit, revision: Some(revision) };
    let page = match store.range(range).await {
        Ok(page) => page,
        Err(Error::Compacted { .. }) if revision < model.compacted => return,
        Err(error) => panic!("{error}"),
    };
    assert!(revision >= model.compacted);
    let all: Vec<_> = model.states[revision as usize]
        .iter()
        .filter(|(key, _)| after.as_ref().is_none_or(|after| *key > after))
        .map(|(key, (value, modified, created))| (key.clone(), value.clone(), *modified, *created))
        .collect();
    let count = if limit == 0 { all.len() } else { limit.min(all.len()) };
    let found: Vec<_> =
        page.entries.into_iter().map(|e| (e.key, e.value.to_vec(), e.modified, e.created)).collect();
    assert_eq!(found, all[..count]);
    assert_eq!(page.remaining as usize, all.len() - count);
}

async fn follow(store: &Embedded, model: &Model, back: u8, prefix: u8) {
    let after = model.back(back);
    let prefix = if prefix < 3 { format!("/registry/{prefix}/") } else { "/registry/".to_owned() };
    let mut feed = match store.changes(&prefix, after).await {
        Ok(feed) => feed,
        Err(Error::Compacted { .. }) if after < model.compacted => return,
        Err(error) => panic!("{error}"),
    };
    assert!(after >= model.compacted);
    store.request_progress().await.unwrap();
    let mut told = Vec::new();
    while let News::Changes(changes) = support::next(&mut *feed).await.unwrap() {
        told.extend(changes);
    }
    let wanted = |change: &&Change| change.revision > after && change.key.starts_with(&prefix);
    let expect: Vec<_> = model.changes.iter().filter(wanted).cloned().collect();
    assert_eq!(told, expect);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_embedded_engine_is_a_map_with_a_memory(steps in proptest::collection::vec(step(), 1..120)) {
        let dir = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(run(dir.path(), &steps));
    }
}
