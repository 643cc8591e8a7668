//! Questions that nobody would ask, by everybody, and a model that says of every answer whether it may be.
//!
//! ```text
//! grammar (seed, number) ──> Question ──> world: a real server ──> Answer ──> model: nothing wrong
//!                                └──────> peer: upstream's  ──> it refuses what we refuse, or more: nothing wrong
//! planted: the same through a layer that has a fault ──> the model must see it
//! ```
//!
//! `SEED=n` asks other questions, `QUESTION=n` one of them, `QUESTIONS=n` as many, `SOAK=1` a million; `PEER_BIN` names a folder with upstream's
//! `kube-apiserver`, which is then asked the same.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod grammar;
mod model;
mod peer;
mod planted;
mod wire;
mod world;

use grammar::Question;
use model::{Meaning, meaning, wrong};
use parking_lot::Mutex;
use peer::Peer;
use planted::Fault;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use testing::TestServer;
use wire::Answer;
use world::World;

const QUESTIONS: u64 = 20_000;
const SOAK_QUESTIONS: u64 = 1_000_000;
/// Questions on their way at once.
const AT_ONCE: usize = 24;
/// More than this many wrong answers say nothing new.
const ENOUGH: usize = 40;

/// What came of many questions.
#[derive(Default)]
struct Report {
    asked: u64,
    /// Answers by who asked and the class of the code.
    answers: BTreeMap<String, u64>,
    /// What was wrong, by the number of the question.
    wrong: BTreeMap<u64, String>,
}

fn seed() -> u64 {
    std::env::var("SEED").ok().map_or(1, |seed| seed.parse().unwrap())
}

/// Asks questions until there are no more, or enough answers were wrong.
async fn ask_all(
    world: World,
    peer: Option<Peer>,
    fault: Option<Fault>,
    questions: u64,
    enough: usize,
) -> Report {
    let seed = seed();
    println!("SEED={seed}");
    let only: Option<u64> = std::env::var("QUESTION").ok().map(|number| number.parse().unwrap());
    let first = only.unwrap_or(0);
    let last = only.map_or(questions, |only| only + 1);
    let shared = Arc::new((world, peer, AtomicU64::new(first), Mutex::new(Report::default())));
    let asking = (0..AT_ONCE).map(|_| {
        let shared = shared.clone();
        tokio::spawn(async move {
            let (world, peer, next, report) = &*shared;
            loop {
                let number = next.fetch_add(1, Relaxed);
                if number >= last || report.lock().wrong.len() >= enough {
                    return;
                }
                let question = Question::of(seed, number);
                let answer = match fault {
                    Some(fault) => fault.ask(world, &question).await,
                    None => world.ask(&question).await,
                };
                let unanswered = (answer.code == 0).then(|| "is not answered".to_owned());
                let mut found = unanswered.or_else(|| wrong(&question, &answer));
                if let Some(peer) = peer {
                    let theirs = peer.world.ask(&question).await;
                    found = found.or(more_than_theirs(&question, &answer, &theirs));
                }
                let mut report = report.lock();
                report.asked += 1;
                *report.answers.entry(format!("{:?} {}xx", question.who, answer.code / 100)).or_default() +=
                    1;
                if let Some(found) = found {
                    let body: String = String::from_utf8_lossy(&answer.body).chars().take(300).collect();
                    let text = format!(
                        "SEED={seed} QUESTION={number}: {found}\n  {question:?}\n  {}: {body}",
                        answer.code
                    );
                    report.wrong.insert(number, text);
                }
            }
        })
    });
    for asking in asking.collect::<Vec<_>>() {
        asking.await.unwrap();
    }
    let (world, peer, _, report) = Arc::into_inner(shared).unwrap();
    drop((world, peer));
    report.into_inner()
}

/// What we permit and upstream refuses.
fn more_than_theirs(question: &Question, ours: &Answer, theirs: &Answer) -> Option<String> {
    // Upstream has no server for these behind it.
    let is_ours_alone =
        matches!(meaning(question), Meaning::Resource(asked) if asked.group == "metrics.k8s.io");
    let told = String::from_utf8_lossy(&theirs.body);
    // What form an answer or a body has is a matter of taste, and not of right. Nodes of tests are on the loopback, where
    // upstream finds no kubelet.
    let is_form = matches!(theirs.code, 406 | 415)
        || ["Object 'Kind' is missing", "address not allowed"].iter().any(|known| told.contains(known));
    let refuses = |answer: &Answer| answer.code == 0 || (400..500).contains(&answer.code);
    (!is_ours_alone && !is_form && !refuses(ours) && refuses(theirs)).then(|| {
        let told: String = told.chars().take(200).collect();
        format!("upstream refuses with {}: {told}", theirs.code)
    })
}

async fn server() -> (TestServer, World) {
    let server = TestServer::start().await;
    let world = World::make(server.address(), server.data_dir()).await;
    (server, world)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_gets_more_than_was_given() {
    let questions = match (std::env::var("QUESTIONS"), std::env::var_os("SOAK")) {
        (Ok(questions), _) => questions.parse().unwrap(),
        (_, Some(_)) => SOAK_QUESTIONS,
        _ => QUESTIONS,
    };
    let (_server, world) = server().await;
    let peer = Peer::start().await;
    let report = ask_all(world, peer, None, questions, ENOUGH).await;
    println!("{} questions: {:?}", report.asked, report.answers);
    let wrong: Vec<String> = report.wrong.into_values().collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    if std::env::var_os("QUESTION").is_none() {
        // Refusing everything would be right as well.
        let of = |key: &str| report.answers.get(key).copied().unwrap_or_default() * 100 / report.asked;
        for key in ["Admin 2xx", "Owner 2xx", "Holder 2xx", "Owner 4xx", "Holder 4xx", "Nobody 4xx"] {
            assert!(of(key) >= 1, "too few of {key}: {:?}", report.answers);
        }
    }
}

/// The model finds the fault within the questions that are asked in every run.
async fn is_found(fault: Fault) {
    let (_server, world) = server().await;
    let report = ask_all(world, None, Some(fault), QUESTIONS, 1).await;
    let (number, text) = report.wrong.first_key_value().unwrap_or_else(|| panic!("{fault:?} is not found"));
    println!("{fault:?} is found by question {number}: {text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scope_that_is_not_compared_is_found() {
    is_found(Fault::ScopeOfAnything).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_is_searched_in_text_is_found() {
    is_found(Fault::NameByText).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_watch_of_anything_is_found() {
    is_found(Fault::OldWatchOfAnything).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_of_many_by_one_name_is_found() {
    is_found(Fault::ManyByName).await;
}

#[test]
fn questions_follow_from_their_number() {
    let text = |number: u64| format!("{:?}", Question::of(7, number));
    assert_eq!(text(5), text(5));
    assert_ne!(text(5), text(6));
}
