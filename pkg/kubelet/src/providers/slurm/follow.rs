//! How all jobs are: one squeue for all of them per interval, accounting for those that vanished, and what each says of
//! itself, as it says it.
//!
//! ```text
//! every interval ── squeue ──> rows ──┬─ ours, running ──> status
//!                                     ├─ over, vanished ──> its journal, sacct ──> its end
//!                                     └─ ours, of no pod or a second time ──> scancel
//! follow.sh ── journals as they grow ──> status
//! ```

use super::commands::{Reading, Trace, beginnings};
use super::door::spawn;
use super::node::{Entry, SlurmNode};
use super::queue::{JobId, Row};
use super::records::{LastWord, Record, Submission};
use super::script::parse_comment;
use super::states::Stage;
use crate::provider::Change;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::time::Instant;

/// Two looks at the queue are no nearer to each other, whoever is in a hurry.
const NEAREST: Duration = Duration::from_secs(1);
/// A follower that ended is started again after this long.
const FOLLOW_AGAIN: Duration = Duration::from_secs(1);
/// Nothing has run for so long: nobody follows.
const FOLLOW_IDLE: Duration = Duration::from_secs(30);
/// A follower shows more often than this that it lives.
const SILENCE: Duration = Duration::from_secs(30);
/// A job that the queue and accounting do not know is lost when that was so this often.
const LOST_AFTER: u32 = 3;

/// Looks at the queue, as long as there is a job.
pub(super) async fn queue(node: &Arc<SlurmNode>) {
    let every = Duration::from_secs(node.site.config.poll_seconds);
    let mut backoff = every;
    let mut last: Option<Instant> = None;
    loop {
        let due = last.map(|last| last + backoff);
        let wait = async {
            match due {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = wait => {}
            () = node.look.notified() => {
                if let Some(last) = last {
                    tokio::time::sleep_until(last + NEAREST).await;
                }
            }
            () = node.follow.notified(), if last.is_none() => tokio::time::sleep(NEAREST).await,
        }
        let has_jobs = node.table.lock().values().any(Entry::is_live);
        match node.site.queue().await {
            Ok(rows) => {
                backoff = every;
                let was = node.trouble.lock().take();
                if was.is_some() {
                    node.outbox.put(Change::Node);
                }
                take_rows(node, rows).await;
            }
            Err(why) => {
                // Who is asked too often says so; who is away is not helped by questions.
                backoff = (backoff * 2).min(every * 10);
                tracing::warn!(why, "look at the queue");
                let was = node.trouble.lock().replace(why);
                if was.is_none() {
                    node.outbox.put(Change::Node);
                }
            }
        }
        let is_well = node.trouble.lock().is_none();
        last = Some(Instant::now()).filter(|_| has_jobs || !is_well);
    }
}

async fn take_rows(node: &Arc<SlurmNode>, rows: Vec<Row>) {
    let mut by_job: BTreeMap<JobId, Row> = BTreeMap::new();
    let mut strays = Vec::new();
    {
        let is_complete = *node.is_complete.borrow();
        let table = node.table.lock();
        let unclaimed = node.unclaimed.lock();
        for row in rows {
            let Some((mark, uid)) = parse_comment(&row.comment) else { continue };
            let record = table.get(uid).and_then(|entry| entry.record.as_ref());
            match record.and_then(Record::job) {
                Some(job) if job == row.job => {
                    by_job.insert(job, row);
                }
                // Submitted twice, or of a pod that is gone.
                Some(_) if mark == node.records.mark => strays.push(row),
                None if mark == node.records.mark
                    && is_complete
                    && !table.contains_key(uid)
                    && !unclaimed.contains_key(uid) =>
                {
                    strays.push(row);
                }
                _ => {}
            }
        }
    }
    for row in strays.into_iter().filter(|row| !row.state.is_over() && row.state.name != "COMPLETING") {
        if runs(node, &row).await {
            continue;
        }
        tracing::warn!(job = %row.job, name = row.name, "end a job that no pod has");
        if let Err(error) = node.site.kill(None, row.job).await {
            tracing::warn!(job = %row.job, error, "end a job that no pod has");
        }
    }
    let mut doubtful = Vec::new();
    let live: Vec<(String, Record)> = {
        let table = node.table.lock();
        let live = table.iter().filter(|(_, entry)| entry.is_live());
        live.filter_map(|(uid, entry)| Some((uid.clone(), entry.record.clone()?))).collect()
    };
    for (uid, record) in live {
        let row = record.job().and_then(|job| by_job.remove(&job));
        let is_doubtful = row.as_ref().is_none_or(|row| row.state.is_over());
        node.change(&uid, |entry| {
            if row.is_some() {
                entry.missed = 0;
            }
            entry.row = row.clone().or(entry.row.take());
        });
        if is_doubtful {
            doubtful.push((record, row));
        }
    }
    if !doubtful.is_empty() {
        settle(node, doubtful).await;
    }
}

/// Whether it is a second job of a pod that started before the one that is known: then it is the pod's.
async fn runs(node: &SlurmNode, row: &Row) -> bool {
    let uid = parse_comment(&row.comment).map(|(_, uid)| uid).unwrap_or_default();
    let record = node.table.lock().get(uid).and_then(|entry| entry.record.clone());
    let Some(record) = record else { return false };
    match node.site.trace(record.user.as_deref(), &record.folder()).await {
        Ok(Trace::Job(job)) if job == row.job => {
            tracing::warn!(%job, uid, "a second job of a pod runs, and is the pod's");
            let record = Record { submission: Submission::Submitted(job), ..record };
            node.keep(record).inspect_err(|error| tracing::warn!(%error, "write down a job")).is_ok()
        }
        Ok(_) => false,
        // Who cannot tell leaves it.
        Err(_) => true,
    }
}

/// Jobs that are over for the queue, or that it does not know any more.
async fn settle(node: &Arc<SlurmNode>, doubtful: Vec<(Record, Option<Row>)>) {
    let records: Vec<Record> = doubtful.iter().map(|(record, _)| record.clone()).collect();
    match node.site.journals(&records).await {
        Ok(journals) => {
            for (uid, journal) in journals {
                node.change(&uid, |entry| entry.journal = journal);
            }
        }
        Err(error) => {
            tracing::warn!(error = crate::error::chain(&error), "read what jobs said");
            return;
        }
    }
    let is_open = |record: &Record| node.table.lock().get(&record.uid).is_some_and(Entry::is_live);
    let (ended, vanished): (Vec<_>, Vec<_>) =
        doubtful.into_iter().filter(|(record, _)| is_open(record)).partition(|(_, row)| row.is_some());
    for (record, row) in ended {
        let Some(row) = row else { continue };
        let missed = miss(node, &record);
        // What it says itself may need a moment more to be seen from here.
        if row.state.stage == Stage::Succeeded && missed < LOST_AFTER {
            continue;
        }
        let word = LastWord {
            state: row.state.name.to_owned(),
            exit_code: row.exit_code,
            start: row.start.map(jiff::Timestamp::as_second),
            end: row.end.map(jiff::Timestamp::as_second),
            nodes: row.nodes,
            output: node.site.own_words(&record).await,
        };
        close(node, record, word).await;
    }
    if vanished.is_empty() {
        return;
    }
    let jobs: Vec<JobId> = vanished.iter().filter_map(|(record, _)| record.job()).collect();
    let accounted = match node.site.accounted(&jobs).await {
        Ok(accounted) => accounted,
        Err(why) => {
            tracing::warn!(why, "ask accounting");
            return;
        }
    };
    for (record, _) in vanished {
        let word = accounted.iter().find(|ended| Some(ended.job) == record.job());
        let word = match word {
            // Accounting is behind.
            Some(ended) if !ended.state.is_over() => continue,
            Some(ended) => LastWord {
                state: ended.state.name.to_owned(),
                exit_code: ended.exit_code,
                start: ended.start.map(jiff::Timestamp::as_second),
                end: ended.end.map(jiff::Timestamp::as_second),
                nodes: ended.nodes.clone(),
                output: node.site.own_words(&record).await,
            },
            None if miss(node, &record) < LOST_AFTER => continue,
            None => {
                let words = "neither the queue nor accounting knows the job, and it left no word of its end";
                let pod = node.table.lock().get(&record.uid).map(|entry| entry.pod.clone());
                if let Some(pod) = pod {
                    node.events.warning(&pod, "JobLost", words);
                }
                let output = words.to_owned();
                LastWord {
                    state: "FAILED".into(),
                    exit_code: 1,
                    start: None,
                    end: None,
                    nodes: String::new(),
                    output,
                }
            }
        };
        close(node, record, word).await;
    }
}

fn miss(node: &SlurmNode, record: &Record) -> u32 {
    let mut table = node.table.lock();
    let Some(entry) = table.get_mut(&record.uid) else { return 0 };
    entry.missed += 1;
    entry.missed
}

/// A job has ended, and SLURM says how.
async fn close(node: &Arc<SlurmNode>, record: Record, word: LastWord) {
    if let Err(error) = node.site.remove_secrets(&record).await {
        tracing::warn!(uid = record.uid, error = crate::error::chain(&error), "remove what a job left");
    }
    if let Err(error) = node.keep(Record { last_word: Some(word), ..record }) {
        tracing::warn!(%error, "write down how a job ended");
    }
}

/// Follows what jobs say of themselves, as long as there is one.
pub(super) async fn journals(node: &Arc<SlurmNode>) {
    loop {
        if !node.table.lock().values().any(Entry::is_live) {
            let mut turns = node.turned.subscribe();
            while !node.table.lock().values().any(Entry::is_live) {
                if turns.changed().await.is_err() {
                    return;
                }
            }
        }
        if let Err(error) = follow(node).await {
            tracing::warn!(%error, "follow the jobs");
        }
        tokio::time::sleep(FOLLOW_AGAIN).await;
    }
}

async fn follow(node: &Arc<SlurmNode>) -> std::io::Result<()> {
    let other = std::io::Error::other::<String>;
    let script = include_str!("follow.sh");
    let roots = node.site.config.roots();
    let mut words = vec!["sh", "-c", script, "sh", &node.records.mark];
    words.extend(roots.iter().map(String::as_str));
    let words = node.site.as_user(None, &words);
    let command = node.site.door.command(&words, false).await;
    let mut child = spawn(command.map_err(|error| other(crate::error::chain(&error)))?)?;
    let live: Vec<Record> = {
        let table = node.table.lock();
        table.values().filter(|entry| entry.is_live()).filter_map(|entry| entry.record.clone()).collect()
    };
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(&beginnings(&live)).await?;
        stdin.shutdown().await?;
    }
    let Some(stdout) = child.stdout.take() else { return Ok(()) };
    let mut lines = BufReader::new(stdout).lines();
    let mut reading = Reading::default();
    let mut idle_since: Option<Instant> = None;
    loop {
        let line = tokio::time::timeout(SILENCE, lines.next_line()).await;
        let Some(line) = line.map_err(|_| other("nothing was heard of the follower".into()))?? else {
            let ended = child.wait_with_output().await?;
            let said = String::from_utf8_lossy(&ended.stderr).trim().to_owned();
            let _ = node.site.door.judge(super::door::exit_code(ended.status), &said).await;
            return Err(other(format!("the follower ended: {said}")));
        };
        if let Some((uid, journal)) = reading.take(&line) {
            let stops = journal.last().is_some_and(|(_, run)| run.stopped.is_some());
            node.change(&uid, |entry| entry.journal = journal);
            if stops {
                // Whether it starts again only SLURM knows.
                node.look.notify_one();
            }
        }
        if node.table.lock().values().any(Entry::is_live) {
            idle_since = None;
        } else if idle_since.get_or_insert_with(Instant::now).elapsed() > FOLLOW_IDLE {
            return Ok(());
        }
    }
}
