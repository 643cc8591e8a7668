//! Which pods are which jobs, on disk: written before a job is submitted and after its number is known, so that a kubelet
//! that is killed at any moment knows what may have been submitted.
//!
//! ```text
//! <root>/slurm/<uid>.json     Record     written aside, synced, renamed
//! <root>/slurm/mark           what marks the jobs of this node, made once
//! ```

use super::queue::JobId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

/// How far a pod is on its way to a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Submission {
    /// It may have been submitted.
    Intended,
    /// It is this job.
    Submitted(JobId),
    /// It will never be one.
    Refused {
        /// In one word.
        reason: String,
        /// In SLURM's own words, or ours.
        message: String,
    },
}

/// What SLURM last said of a job that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastWord {
    /// Its state.
    pub state: String,
    /// What it returned.
    pub exit_code: i32,
    /// When it started, in seconds.
    pub start: Option<i64>,
    /// When it ended, in seconds.
    pub end: Option<i64>,
    /// Where it ran.
    pub nodes: String,
    /// The end of what SLURM wrote about it.
    #[serde(default)]
    pub output: String,
}

/// A pod and its job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The pod's namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// The user that the job runs as; none: who commands are run as.
    pub user: Option<String>,
    /// The folder of all jobs of that user.
    pub root: String,
    /// How far it is.
    pub submission: Submission,
    /// How it ended, where SLURM was asked.
    #[serde(default)]
    pub last_word: Option<LastWord>,
}

impl Record {
    /// The job's folder.
    pub fn folder(&self) -> String {
        format!("{}/{}", self.root, self.uid)
    }

    /// The job, once it is known.
    pub fn job(&self) -> Option<JobId> {
        match &self.submission {
            Submission::Submitted(job) => Some(*job),
            _ => None,
        }
    }
}

/// All records of this node.
pub struct Records {
    folder: PathBuf,
    /// What marks the jobs of this node.
    pub mark: String,
}

impl Records {
    /// Opens the folder, and makes it if it is not there.
    pub fn open(folder: &Path) -> std::io::Result<Records> {
        crate::host::make_private(folder)?;
        let path = folder.join("mark");
        let mark = match std::fs::read_to_string(&path) {
            Ok(mark) if !mark.trim().is_empty() => mark.trim().to_owned(),
            _ => {
                let made = uuid::Uuid::new_v4().simple().to_string()[..12].to_owned();
                write(folder, "mark", made.as_bytes())?;
                made
            }
        };
        Ok(Records { folder: folder.to_owned(), mark })
    }

    /// All of them, by uid. What cannot be read is named in the log and left where it is.
    pub fn load(&self) -> std::io::Result<BTreeMap<String, Record>> {
        let mut records = BTreeMap::new();
        for entry in std::fs::read_dir(&self.folder)? {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            match serde_json::from_slice::<Record>(&std::fs::read(&path)?) {
                Ok(record) => {
                    records.insert(record.uid.clone(), record);
                }
                Err(error) => {
                    tracing::error!(path = %path.display(), %error, "a record of a job cannot be read")
                }
            }
        }
        Ok(records)
    }

    /// Keeps one, on disk when it returns.
    pub fn save(&self, record: &Record) -> std::io::Result<()> {
        write(&self.folder, &format!("{}.json", record.uid), &serde_json::to_vec(record)?)
    }

    /// Forgets one.
    pub fn remove(&self, uid: &str) -> std::io::Result<()> {
        match std::fs::remove_file(self.folder.join(format!("{uid}.json"))) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

fn write(folder: &Path, name: &str, content: &[u8]) -> std::io::Result<()> {
    let aside = folder.join(format!("{name}.new"));
    let mut file = std::fs::File::create(&aside)?;
    file.write_all(content)?;
    file.sync_data()?;
    std::fs::rename(&aside, folder.join(name))?;
    std::fs::File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_there_after_a_restart() {
        let dir = tempfile::tempdir().expect("a folder");
        let records = Records::open(dir.path()).expect("opened");
        let mut record = Record {
            namespace: "a".into(),
            name: "b".into(),
            uid: "u".into(),
            user: None,
            root: "/s".into(),
            submission: Submission::Intended,
            last_word: None,
        };
        records.save(&record).expect("saved");
        record.submission = Submission::Submitted(JobId(7));
        records.save(&record).expect("saved");
        // What a crash left half written is none of them.
        std::fs::write(dir.path().join("v.json.new"), "{").expect("written");
        std::fs::write(dir.path().join("w.json"), "{").expect("written");
        let again = Records::open(dir.path()).expect("opened");
        assert_eq!(again.mark, records.mark);
        assert_eq!(again.load().expect("read"), [("u".to_owned(), record)].into());
        again.remove("u").expect("removed");
        again.remove("u").expect("removed twice");
    }
}
