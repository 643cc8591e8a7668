//! What is done at a site: submitting, looking, cancelling, reading. Each is one command through the door.
//!
//! ```text
//! SlurmSite ──> sh submit.sh ──> sbatch        one squeue, sacct, sinfo for all jobs
//!           ──> scancel, srun --overlap, sstat  follow.sh: what jobs say of themselves
//! ```
//!
//! It knows sites and jobs, and nothing of a kubelet: whoever has a [`Rendered`] job can use it.

use super::door::{Door, DoorError, LocalDoor, Ran};
use super::journal::Journal;
use super::queue::{self, Ended, JobId, Row, SiteNodes};
use super::records::Record;
use super::script::Rendered;
use super::site::SiteConfig;
use super::ssh::SshDoor;
use crate::runtime::Usage;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long a command of SLURM may take: its own patience is `MessageTimeout`, and it tries again by itself.
const PATIENCE: Duration = Duration::from_secs(60);
/// Codes of `submit.sh` that are not sbatch's.
const NO_FOLDER: i32 = 120;
const UNKNOWN: i32 = 121;

/// What SLURM says when nobody knows whether it did what it was asked to do, or that it did nothing now.
const TRANSIENT: [&str; 12] = [
    "Socket timed out",
    "Unable to contact slurm controller",
    "Connection refused",
    "Connection timed out",
    "Connection reset",
    "Zero Bytes were transmitted",
    "temporarily unable",
    "Unexpected message received",
    "Transport endpoint",
    "Protocol authentication error",
    "Communication connection failure",
    "Message receive failure",
];
/// Refusals that pass by themselves.
const PASSING: [&str; 4] =
    ["MaxSubmitJob", "Job violates accounting/QOS policy", "queue is full", "Too many"];

/// What came of a submission.
#[derive(Debug)]
pub enum Submitted {
    /// It is this job; sites say more on standard error.
    Job(JobId, String),
    /// SLURM refuses it, for good or, `passing`, for now.
    Refused {
        /// In SLURM's own words.
        message: String,
        /// Whether it may be taken later.
        passing: bool,
    },
    /// It may have been submitted: it is to be looked for.
    Unknown(String),
    /// Nothing was submitted, and it can be tried again.
    NotNow(String),
}

/// Where a job's submission is, as its folder tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trace {
    /// It was not begun.
    Nothing,
    /// It was begun.
    Begun,
    /// It is this job.
    Job(JobId),
}

/// A site, and how it is reached.
pub struct SlurmSite {
    /// As its administrator describes it.
    pub config: SiteConfig,
    /// Where its commands are run.
    pub door: Arc<dyn Door>,
}

impl SlurmSite {
    /// A site; `folder` is for the sockets of its connection.
    pub async fn open(config: SiteConfig, folder: &Path) -> std::io::Result<SlurmSite> {
        let mut env = vec![("SLURM_TIME_FORMAT".to_owned(), "%s".to_owned())];
        env.extend(config.slurm_conf.clone().map(|file| ("SLURM_CONF".to_owned(), file)));
        let door: Arc<dyn Door> = match &config.ssh {
            None => Arc::new(LocalDoor { env }),
            Some(ssh) => Arc::new(SshDoor::new(ssh.clone(), env, folder).await?),
        };
        Ok(SlurmSite { config, door })
    }

    /// Words that are run as a user.
    pub fn as_user(&self, user: Option<&str>, words: &[&str]) -> Vec<String> {
        let r#become = user
            .into_iter()
            .flat_map(|user| self.config.r#become.iter().map(move |word| word.replace("{user}", user)));
        r#become.chain(words.iter().map(|word| (*word).to_owned())).collect()
    }

    async fn run(&self, user: Option<&str>, words: &[&str], stdin: &[u8]) -> Result<Ran, DoorError> {
        self.door.run(&self.as_user(user, words), stdin, PATIENCE).await
    }

    /// Who commands are run as.
    pub async fn whoami(&self) -> Result<String, DoorError> {
        Ok(self.run(None, &["id", "-un"], b"").await?.text().trim().to_owned())
    }

    /// SLURM's version.
    pub async fn version(&self) -> Result<String, String> {
        let ran = self
            .run(None, &["sinfo", "--version"], b"")
            .await
            .map_err(|error| crate::error::chain(&error))?;
        let text = ran.text();
        match text.split_whitespace().last() {
            Some(version) if ran.code == 0 => Ok(version.to_owned()),
            _ => Err(said(&ran)),
        }
    }

    /// What its nodes have.
    pub async fn nodes(&self) -> Result<SiteNodes, String> {
        let words = ["sinfo", "--noheader", "--Node", "--exact", "--format", queue::SINFO_FORMAT];
        let ran = self.run(None, &words, b"").await.map_err(|error| crate::error::chain(&error))?;
        if ran.code != 0 { Err(said(&ran)) } else { Ok(queue::sinfo(&ran.text())) }
    }

    /// Submits a job. `again`: it is known that nothing came of an earlier call.
    pub async fn submit(&self, user: Option<&str>, job: &Rendered, again: bool) -> Submitted {
        let packed = match pack(job) {
            Ok(packed) => packed,
            Err(error) => return Submitted::NotNow(format!("pack the job's files: {error}")),
        };
        let again = if again { "again" } else { "" };
        let words = ["sh", "-c", include_str!("submit.sh"), "sh", &job.folder, &job.hints, again];
        match self.run(user, &words, &packed).await {
            Ok(ran) => judge(&ran),
            Err(DoorError::Silent { .. }) => Submitted::Unknown("sbatch did not answer".into()),
            // The connection may have broken after sbatch had begun.
            Err(error) => Submitted::Unknown(crate::error::chain(&error)),
        }
    }

    /// What became of a submission, as the job's folder tells: the job that runs, or the one that was submitted.
    pub async fn trace(&self, user: Option<&str>, folder: &str) -> Result<Trace, DoorError> {
        let script = "cd \"$1\" 2>/dev/null || { echo nothing; exit 0; }
            if readlink claim; then :; elif [ -s jobid ]; then cat jobid; elif [ -e submitting ]; then echo begun; else echo nothing; fi";
        let ran = self.run(user, &["sh", "-c", script, "sh", folder], b"").await?;
        let text = ran.text();
        if ran.code != 0 {
            return Err(DoorError::Unreachable(said(&ran)));
        }
        Ok(match JobId::parse(&text) {
            Some(job) => Trace::Job(job),
            None if text.trim() == "nothing" => Trace::Nothing,
            None => Trace::Begun,
        })
    }

    /// All jobs of all users that are namespaces here. `None`: of everybody that is seen.
    pub async fn queue(&self) -> Result<Vec<Row>, String> {
        let users: BTreeSet<&str> =
            self.config.namespaces.values().filter_map(|identity| identity.user.as_deref()).collect();
        let has_all = self.config.namespaces.values().all(|identity| identity.user.is_some());
        let mut words =
            vec!["squeue", "--noheader", "--states=all", "--array", "--Format", queue::SQUEUE_FORMAT];
        let list = users.into_iter().collect::<Vec<_>>().join(",");
        if has_all && !list.is_empty() {
            words.extend(["--user", &list]);
        } else {
            words.push("--me");
        }
        let ran = self.run(None, &words, b"").await.map_err(|error| crate::error::chain(&error))?;
        if ran.code != 0 { Err(said(&ran)) } else { Ok(queue::squeue(&ran.text())) }
    }

    /// What accounting knows of jobs; nothing where there is no accounting.
    pub async fn accounted(&self, jobs: &[JobId]) -> Result<Vec<Ended>, String> {
        let list = jobs.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        self.sacct(&["--jobs", &list]).await
    }

    /// What accounting knows of jobs of that name.
    pub async fn accounted_by_name(&self, name: &str) -> Result<Vec<Ended>, String> {
        self.sacct(&["--name", name, "--starttime", "now-7days", "--allusers"]).await
    }

    async fn sacct(&self, which: &[&str]) -> Result<Vec<Ended>, String> {
        let mut words =
            vec!["sacct", "--allocations", "--noheader", "--parsable2", "--format", queue::SACCT_FORMAT];
        words.extend(which);
        let ran = self.run(None, &words, b"").await.map_err(|error| crate::error::chain(&error))?;
        if ran.stderr.contains("accounting storage is disabled") {
            return Ok(Vec::new());
        }
        if ran.code != 0 { Err(said(&ran)) } else { Ok(queue::sacct(&ran.text())) }
    }

    /// Asks a job to end: one that waits is gone at once, one that runs is sent TERM.
    pub async fn terminate(&self, user: Option<&str>, job: JobId) -> Result<(), DoorError> {
        let script = "scancel --state=PENDING \"$1\"; scancel --batch --signal=TERM \"$1\"";
        self.run(user, &["sh", "-c", script, "sh", &job.to_string()], b"").await.map(drop)
    }

    /// Ends a job now. An error: it may still run.
    pub async fn kill(&self, user: Option<&str>, job: JobId) -> Result<(), String> {
        let script = "scancel --quiet --full --signal=KILL \"$1\"; exec scancel --quiet \"$1\"";
        let ran = self.run(user, &["sh", "-c", script, "sh", &job.to_string()], b"").await;
        let ran = ran.map_err(|error| crate::error::chain(&error))?;
        if ran.code == 0 || ran.stderr.contains("Invalid job id") || ran.stderr.contains("already") {
            return Ok(());
        }
        Err(said(&ran))
    }

    /// What a job uses; nothing if it does not run.
    pub async fn usage(&self, user: Option<&str>, job: JobId) -> Result<Option<Usage>, String> {
        let step = format!("{job}.batch");
        let words = [
            "sstat",
            "--noheader",
            "--parsable2",
            "--noconvert",
            "--format",
            queue::SSTAT_FORMAT,
            "--jobs",
            &step,
        ];
        let ran = self.run(user, &words, b"").await.map_err(|error| crate::error::chain(&error))?;
        Ok(queue::sstat(&ran.text()).map(|(cpu_seconds, memory_bytes)| Usage {
            at: Timestamp::now(),
            cpu_ns: cpu_seconds * 1_000_000_000,
            memory_bytes,
            working_set_bytes: memory_bytes,
            rss_bytes: memory_bytes,
            pids: 0,
        }))
    }

    /// Removes all that a job has at the site.
    pub async fn remove(&self, record: &Record) -> Result<(), DoorError> {
        let folder = record.folder();
        let words = ["rm", "-rf", "--", &folder];
        let ran = self.run(record.user.as_deref(), &words, b"").await?;
        if ran.code == 0 { Ok(()) } else { Err(DoorError::Unreachable(said(&ran))) }
    }

    /// Removes what a job that was killed could not: its secrets.
    pub async fn remove_secrets(&self, record: &Record) -> Result<(), DoorError> {
        let folder = record.folder();
        let script = "cd \"$1\" && rm -rf enter volumes roots";
        self.run(record.user.as_deref(), &["sh", "-c", script, "sh", &folder], b"").await.map(drop)
    }

    /// The end of what SLURM itself wrote about a job.
    pub async fn own_words(&self, record: &Record) -> String {
        let script = "tail -n 5 \"$1/slurm.log\" 2>/dev/null | cut -c 1-400";
        let folder = record.folder();
        let ran = self.run(record.user.as_deref(), &["sh", "-c", script, "sh", &folder], b"").await;
        ran.map(|ran| ran.text().trim().to_owned()).unwrap_or_default()
    }

    /// What jobs have said of themselves so far, by uid.
    pub async fn journals(&self, records: &[Record]) -> Result<BTreeMap<String, Journal>, DoorError> {
        let ran = self
            .run(None, &["sh", "-c", include_str!("follow.sh"), "sh", "once"], &beginnings(records))
            .await?;
        let mut reading = Reading::default();
        Ok(ran.text().lines().filter_map(|line| reading.take(line)).collect())
    }
}

/// What `follow.sh` begins with.
pub fn beginnings<'a>(records: impl IntoIterator<Item = &'a Record>) -> Vec<u8> {
    let lines = records.into_iter().map(|record| format!("{} {}\n", record.root, record.uid));
    lines.collect::<String>().into_bytes()
}

/// Puts together what `follow.sh` says.
#[derive(Default)]
pub struct Reading {
    lines: BTreeMap<String, Vec<String>>,
}

impl Reading {
    /// Takes a line; the last one of a job gives its journal.
    pub fn take(&mut self, line: &str) -> Option<(String, Journal)> {
        let (uid, rest) = line.split_once(' ')?;
        if rest != "." {
            self.lines.entry(uid.to_owned()).or_default().push(rest.to_owned());
            return None;
        }
        let lines = self.lines.remove(uid).unwrap_or_default();
        Some((uid.to_owned(), Journal::parse(lines.iter().map(String::as_str))))
    }
}

/// What a command that failed said about it.
fn said(ran: &Ran) -> String {
    let text = if ran.stderr.trim().is_empty() { ran.text() } else { ran.stderr.clone() };
    let text = text.trim();
    if text.is_empty() { format!("it returned {}", ran.code) } else { text.chars().take(1000).collect() }
}

/// The exit status is the truth; what is on standard error beside it is only told.
fn judge(ran: &Ran) -> Submitted {
    let words = said(ran);
    if ran.code == 0 {
        return match JobId::parse(&ran.text()) {
            Some(job) => Submitted::Job(job, ran.stderr.trim().to_owned()),
            None => Submitted::Unknown(format!("sbatch said no number: {words}")),
        };
    }
    let contains = |list: &[&str]| list.iter().any(|text| ran.stderr.contains(text));
    match ran.code {
        NO_FOLDER => Submitted::NotNow(format!("make the job's folder: {words}")),
        UNKNOWN => Submitted::Unknown("an earlier submission may be under way".into()),
        _ if contains(&TRANSIENT) => Submitted::Unknown(words),
        _ => Submitted::Refused { passing: contains(&PASSING), message: words },
    }
}

/// The files of a job, as tar has them.
fn pack(job: &Rendered) -> std::io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    let header = |mode: u32, size: u64, kind: tar::EntryType| {
        let mut header = tar::Header::new_gnu();
        header.set_mode(mode);
        header.set_size(size);
        header.set_entry_type(kind);
        header
    };
    for folder in &job.folders {
        let mut header = header(0o700, 0, tar::EntryType::Directory);
        archive.append_data(&mut header, format!("{folder}/"), std::io::empty())?;
    }
    for (path, target) in &job.links {
        let mut header = header(0o777, 0, tar::EntryType::Symlink);
        archive.append_link(&mut header, path, target)?;
    }
    let script = (&"script".to_owned(), 0o600, job.script.as_bytes());
    let files = job.files.iter().map(|file| (&file.path, file.mode, file.content.as_slice()));
    for (path, mode, content) in files.chain([script]) {
        let mut header = header(mode, content.len() as u64, tar::EntryType::Regular);
        archive.append_data(&mut header, path, content)?;
    }
    archive.into_inner()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(code: i32, stdout: &str, stderr: &str) -> String {
        let ran = Ran { code, stdout: stdout.into(), stderr: stderr.into() };
        match judge(&ran) {
            Submitted::Job(job, note) => format!("job {job} {note}"),
            Submitted::Refused { passing: true, .. } => "refused for now".into(),
            Submitted::Refused { message, .. } => format!("refused: {message}"),
            Submitted::Unknown(_) => "unknown".into(),
            Submitted::NotNow(_) => "not now".into(),
        }
    }

    #[test]
    fn the_exit_status_is_the_truth() {
        assert_eq!(
            judged(0, "12\n", "sbatch: your project ends soon\n"),
            "job 12 sbatch: your project ends soon"
        );
        let refused = "sbatch: error: Batch job submission failed: Invalid partition name specified";
        assert_eq!(judged(1, "", refused), format!("refused: {refused}"));
        let timed_out = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation";
        assert_eq!(judged(1, "", timed_out), "unknown");
        assert_eq!(judged(1, "", "Unable to contact slurm controller (connect failure)"), "unknown");
        assert_eq!(judged(1, "", "error: QOSMaxSubmitJobPerUserLimit"), "refused for now");
        assert_eq!(judged(121, "", ""), "unknown");
        assert_eq!(judged(120, "", "mkdir: cannot create"), "not now");
        assert_eq!(judged(0, "", ""), "unknown");
    }

    #[test]
    fn journals_come_in_pieces() {
        let mut reading = Reading::default();
        assert_eq!(reading.take("u boot 0 1 100 n"), None);
        assert_eq!(reading.take(""), None);
        assert_eq!(reading.take("v ."), Some(("v".into(), Journal::default())));
        let (uid, journal) = reading.take("u done 0 101 0").or_else(|| reading.take("u .")).expect("whole");
        assert_eq!((uid.as_str(), journal.is_done()), ("u", true));
    }
}
