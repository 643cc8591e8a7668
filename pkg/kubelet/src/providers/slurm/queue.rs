//! What SLURM's commands print, understood: squeue, sacct, sinfo. Pure.
//!
//! ```text
//! squeue ──> Row of each job     sacct ──> Ended of those that vanished     sinfo ──> SiteNodes
//! ```
//!
//! Sites print notes of their own, also on standard output: a line that is not of the form is passed over.

use super::states::JobState;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// SLURM's number of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobId(pub u64);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl JobId {
    /// What `sbatch --parsable` prints: the number, and the cluster where there are several.
    pub fn parse(text: &str) -> Option<JobId> {
        let last = text.lines().rev().find(|line| !line.trim().is_empty())?;
        last.trim().split(';').next()?.parse().ok().map(JobId)
    }
}

/// What squeue is asked for. The comment is the last: it may hold anything.
pub const SQUEUE_FORMAT: &str =
    "JobID:|,State:|,exit_code:|,RestartCnt:|,Reason:|,StartTime:|,EndTime:|,NodeList:|,Name:|,Comment:|";
/// What sacct is asked for.
pub const SACCT_FORMAT: &str = "JobIDRaw,State,ExitCode,Start,End,NodeList,JobName";
/// What sinfo is asked for: each node once for each of its partitions.
pub const SINFO_FORMAT: &str = "%N|%R|%c|%m|%G|%T";

/// What sstat is asked for.
pub const SSTAT_FORMAT: &str = "AveCPU,AveRSS";

/// CPU time in seconds, and memory in bytes, that sstat prints: `1-02:03:04|8192`.
pub fn sstat(text: &str) -> Option<(u64, u64)> {
    text.lines().find_map(|line| {
        let (cpu, memory) = line.trim().split_once('|')?;
        let (days, clock) = cpu.split_once('-').unwrap_or(("0", cpu));
        let clock = clock.split('.').next()?;
        let mut seconds = 0;
        for part in clock.split(':') {
            seconds = seconds * 60 + part.parse::<u64>().ok()?;
        }
        Some((days.parse::<u64>().ok()? * 86_400 + seconds, memory.parse::<f64>().ok()? as u64))
    })
}

/// A job in the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Which.
    pub job: JobId,
    /// As SLURM says it.
    pub state: &'static JobState,
    /// What it returned, if it has ended; 128 and a signal.
    pub exit_code: i32,
    /// How often it was requeued.
    pub restarts: i32,
    /// Why it is in that state, if SLURM says so.
    pub reason: Option<String>,
    /// When it started, or is expected to.
    pub start: Option<Timestamp>,
    /// When it ended, or must.
    pub end: Option<Timestamp>,
    /// Where it runs.
    pub nodes: String,
    /// Its name.
    pub name: String,
    /// Its comment: our mark, if it is ours.
    pub comment: String,
}

/// The jobs that squeue prints.
pub fn squeue(text: &str) -> Vec<Row> {
    text.lines().filter_map(row).collect()
}

fn row(line: &str) -> Option<Row> {
    let mut fields = line.splitn(10, '|').map(str::trim);
    let mut next = || fields.next();
    let job = JobId(next()?.parse().ok()?);
    let state = JobState::parse(next()?)?;
    let status: i32 = next()?.parse().ok()?;
    let restarts = next()?.parse().unwrap_or(0);
    let (reason, start, end) = (next()?, next()?, next()?);
    let (nodes, name) = (next()?, next()?);
    let comment = next()?.trim_end_matches('|');
    Some(Row {
        job,
        state,
        exit_code: of_wait_status(status),
        restarts,
        reason: Some(reason).filter(|reason| !reason.is_empty() && *reason != "None").map(str::to_owned),
        start: time(start),
        end: time(end),
        nodes: text_of(nodes),
        name: text_of(name),
        comment: text_of(comment),
    })
}

fn text_of(field: &str) -> String {
    if matches!(field, "(null)" | "N/A" | "None assigned") { String::new() } else { field.to_owned() }
}

/// A time in seconds, as `SLURM_TIME_FORMAT=%s` makes SLURM print it.
fn time(text: &str) -> Option<Timestamp> {
    text.parse::<i64>()
        .ok()
        .filter(|second| *second > 0)
        .and_then(|second| Timestamp::from_second(second).ok())
}

/// As `wait(2)` has it.
fn of_wait_status(status: i32) -> i32 {
    let signal = status & 0x7f;
    if signal != 0 { 128 + signal } else { (status >> 8) & 0xff }
}

/// A job that accounting tells of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Which.
    pub job: JobId,
    /// As accounting has it.
    pub state: &'static JobState,
    /// What it returned; 128 and a signal.
    pub exit_code: i32,
    /// When it started.
    pub start: Option<Timestamp>,
    /// When it ended.
    pub end: Option<Timestamp>,
    /// Where it ran.
    pub nodes: String,
    /// Its name.
    pub name: String,
}

/// The jobs that sacct prints.
pub fn sacct(text: &str) -> Vec<Ended> {
    text.lines().filter_map(ended).collect()
}

fn ended(line: &str) -> Option<Ended> {
    let mut fields = line.splitn(7, '|').map(str::trim);
    let mut next = || fields.next();
    let job = JobId(next()?.parse().ok()?);
    let state = JobState::parse(next()?)?;
    let (code, signal) = next()?.split_once(':')?;
    let signal: i32 = signal.parse().ok()?;
    let exit_code = if signal != 0 { 128 + signal } else { code.parse().ok()? };
    let (start, end) = (next()?, next()?);
    let (nodes, name) = (next()?, next()?);
    Some(Ended {
        job,
        state,
        exit_code,
        start: time(start),
        end: time(end),
        nodes: text_of(nodes),
        name: text_of(name),
    })
}

/// What a site's nodes have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SiteNodes {
    /// Processors.
    pub cpus: u64,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// How many of each generic resource, by its name and by its name and type: `gpu` and `gpu:a100`.
    pub gres: BTreeMap<String, u64>,
    /// The partitions.
    pub partitions: Vec<String>,
    /// Nodes that take jobs.
    pub usable: usize,
    /// Nodes that take none: down, drained, failing.
    pub unusable: usize,
}

/// The nodes that sinfo prints. Only those that take jobs count.
pub fn sinfo(text: &str) -> SiteNodes {
    let mut nodes: BTreeMap<&str, (u64, u64, &str, bool)> = BTreeMap::new();
    let mut found = SiteNodes::default();
    for line in text.lines() {
        let fields: Vec<&str> = line.split('|').map(str::trim).collect();
        let [name, partition, cpus, memory, gres, state] = fields[..] else { continue };
        let (Ok(cpus), Ok(memory)) = (cpus.parse(), memory.parse()) else { continue };
        nodes.insert(name, (cpus, memory, gres, takes_jobs(state)));
        if !found.partitions.iter().any(|known| known == partition) {
            found.partitions.push(partition.to_owned());
        }
    }
    for (cpus, memory, gres, is_usable) in nodes.into_values() {
        if !is_usable {
            found.unusable += 1;
            continue;
        }
        found.usable += 1;
        found.cpus += cpus;
        found.memory_mib += memory;
        for (name, count) in gres_of(gres) {
            *found.gres.entry(name).or_default() += count;
        }
    }
    found.partitions.sort();
    found
}

/// What sinfo appends to a state (`*`: does not answer) is no part of it.
fn takes_jobs(state: &str) -> bool {
    if state.ends_with('*') {
        return false;
    }
    let word = state.trim_end_matches(['~', '#', '!', '%', '$', '@', '^', '-', '+']);
    matches!(
        word.to_lowercase().as_str(),
        "idle"
            | "allocated"
            | "mixed"
            | "completing"
            | "planned"
            | "reserved"
            | "powered_down"
            | "powering_up"
    )
}

/// `gpu:a100:2(S:0-1),shard:8` is 2 of gpu, 2 of gpu:a100 and 8 of shard.
fn gres_of(text: &str) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    let mut depth = 0usize;
    let parts = text.split(|c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    });
    for part in parts {
        let part = part.split('(').next().unwrap_or_default();
        let fields: Vec<&str> = part.split(':').collect();
        match fields[..] {
            [name, count] => found.extend(count.parse().ok().map(|count| (name.to_owned(), count))),
            [name, kind, count] => {
                if let Ok(count) = count.parse() {
                    found.push((name.to_owned(), count));
                    found.push((format!("{name}:{kind}"), count));
                }
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_read_between_a_sites_notes() {
        let text = "Welcome! Maintenance on | Monday\n\
                    3|FAILED|768|0|NonZeroExitCode|1795122622|1795122624|n1|a.b|minik8s:x|y|\n\
                    4|PENDING|0|2|Resources|1795122700|N/A||c|(null)|\n\
                    5|CANCELLED|15|0|None|N/A|N/A|None assigned|d|(null)|\n\
                    6|UNHEARD_OF|0|0|None|N/A|N/A||e|(null)|\n";
        let rows = squeue(text);
        let said: Vec<(u64, &str, i32, i32)> =
            rows.iter().map(|row| (row.job.0, row.state.name, row.exit_code, row.restarts)).collect();
        assert_eq!(said, [(3, "FAILED", 3, 0), (4, "PENDING", 0, 2), (5, "CANCELLED", 143, 0)]);
        assert_eq!(rows[0].comment, "minik8s:x|y");
        assert_eq!(rows[0].nodes, "n1");
        assert_eq!(rows[1].reason.as_deref(), Some("Resources"));
        assert_eq!(rows[1].start.map(Timestamp::as_second), Some(1_795_122_700));
        assert_eq!((rows[2].nodes.as_str(), rows[2].start), ("", None));
    }

    #[test]
    fn accounting_tells_codes_and_signals() {
        let text = "7|CANCELLED by 0|0:15|1795122622|1795122624|n1|j\n8|FAILED|3:0|Unknown|Unknown|None assigned|k\n";
        let said: Vec<(u64, &str, i32)> =
            sacct(text).iter().map(|ended| (ended.job.0, ended.state.name, ended.exit_code)).collect();
        assert_eq!(said, [(7, "CANCELLED", 143), (8, "FAILED", 3)]);
    }

    #[test]
    fn nodes_count_once_whatever_partitions_they_are_in() {
        let text = "n1|dgx2|8|8000|gpu:a100:2(S:0,1),gpu:v100:1,shard:8|mixed\nn2|dgx2|8|8000|(null)|idle\n\
                    n2|cpu|8|8000|(null)|idle\nn3|cpu|8|8000|(null)|down*\nn4|cpu|8|8000|(null)|idle*\n";
        let nodes = sinfo(text);
        assert_eq!((nodes.cpus, nodes.memory_mib, nodes.usable, nodes.unusable), (16, 16_000, 2, 2));
        assert_eq!(nodes.partitions, ["cpu", "dgx2"]);
        let gres: Vec<(&str, u64)> = nodes.gres.iter().map(|(name, count)| (name.as_str(), *count)).collect();
        assert_eq!(gres, [("gpu", 3), ("gpu:a100", 2), ("gpu:v100", 1), ("shard", 8)]);
    }

    #[test]
    fn usage_is_seconds_and_bytes() {
        assert_eq!(sstat("1-02:03:04|8192\n"), Some((93_784, 8192)));
        assert_eq!(sstat("00:07.123|4096.00\n"), Some((7, 4096)));
        assert_eq!(sstat("\n"), None);
    }

    #[test]
    fn the_id_is_the_last_line() {
        assert_eq!(JobId::parse("12\n"), Some(JobId(12)));
        assert_eq!(JobId::parse("note\n12;cluster\n"), Some(JobId(12)));
        assert_eq!(JobId::parse("Submitted\n"), None);
    }
}
