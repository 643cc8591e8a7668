//! What a job says of itself, in its own file: the first truth about it. Pure.
//!
//! ```text
//! boot 0 12 1795122622 n1        it runs, for the first time, as job 12
//! start 0 train 1795122622       a container began …
//! end 0 train 1795122630 3       … and returned 3             (told: it was told to stop)
//! done 0 1795122630 3            all that there was to do is done      (or: stopped, and SLURM says what comes next)
//! ```

use jiff::Timestamp;
use std::collections::BTreeMap;

/// One run of a container.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ContainerRun {
    /// When it began.
    pub start: Option<Timestamp>,
    /// When it ended, and what it returned.
    pub end: Option<(Timestamp, i32)>,
    /// It was told to end: whether it runs again is SLURM's to say.
    pub was_told: bool,
}

/// One run of a job: SLURM may requeue it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobRun {
    /// When it began.
    pub start: Option<Timestamp>,
    /// Its nodes.
    pub nodes: String,
    /// Its containers, by name.
    pub containers: BTreeMap<String, ContainerRun>,
    /// When it had done all that there was to do.
    pub done: Option<Timestamp>,
    /// When it was told to stop, and had.
    pub stopped: Option<Timestamp>,
}

/// All that a job has said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Journal {
    /// Its runs, by how often it had been requeued before.
    pub runs: BTreeMap<u32, JobRun>,
}

impl Journal {
    /// Reads it. A line that is not whole yet is none.
    pub fn parse<'a>(lines: impl Iterator<Item = &'a str>) -> Journal {
        let mut journal = Journal::default();
        for line in lines {
            let _ = journal.take(line);
        }
        journal
    }

    fn take(&mut self, line: &str) -> Option<()> {
        let mut words = line.split_whitespace();
        let what = words.next()?;
        let run = self.runs.entry(words.next()?.parse().ok()?).or_default();
        match what {
            "boot" => {
                let _job = words.next()?;
                run.start = time(words.next()?);
                run.nodes = words.next().unwrap_or_default().to_owned();
            }
            "start" => {
                let (container, at) = (words.next()?.to_owned(), time(words.next()?)?);
                run.containers.entry(container).or_default().start = Some(at);
            }
            "end" => {
                let container = words.next()?.to_owned();
                let (at, code) = (time(words.next()?)?, words.next()?.parse().ok()?);
                let run = run.containers.entry(container).or_default();
                run.end = Some((at, code));
                run.was_told = words.next() == Some("told");
            }
            "done" => {
                let (at, _code) = (time(words.next()?)?, words.next()?);
                run.done = Some(at);
            }
            "stopped" => run.stopped = Some(time(words.next()?)?),
            _ => {}
        }
        Some(())
    }

    /// How often it was requeued, and the run that is the present one.
    pub fn last(&self) -> Option<(u32, &JobRun)> {
        self.runs.last_key_value().map(|(number, run)| (*number, run))
    }

    /// Whether all that there was to do is done.
    pub fn is_done(&self) -> bool {
        self.last().is_some_and(|(_, run)| run.done.is_some())
    }

    /// Whether nothing of it runs now: it is done, or was told to stop and has.
    pub fn is_quiet(&self) -> bool {
        self.last().is_some_and(|(_, run)| run.done.is_some() || run.stopped.is_some())
    }
}

fn time(text: &str) -> Option<Timestamp> {
    Timestamp::from_second(text.parse().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_is_requeued_begins_again() {
        let text = "boot 0 12 100 n1\nstart 0 a 101\nend 0 a 105 143\nstopped 0 105\n\
                    boot 1 12 200 n[1-2]\nstart 1 a 201\nend 1 a 20";
        let journal = Journal::parse(text.lines());
        let (number, run) = journal.last().expect("a run");
        assert_eq!((number, run.nodes.as_str()), (1, "n[1-2]"));
        assert!(run.containers["a"].start.is_some());
        // A line that is cut in the middle is not believed.
        assert_eq!(run.containers["a"].end, None);
        assert_eq!(journal.runs[&0].containers["a"].end.map(|(_, code)| code), Some(143));
        assert!(!journal.is_done() && !journal.is_quiet());
        let done = Journal::parse("boot 0 1 1 n\nstart 0 a 1\nend 0 a 2 0\ndone 0 2 0\n".lines());
        assert!(done.is_done() && done.is_quiet());
    }

    #[test]
    fn what_is_not_understood_changes_nothing() {
        assert_eq!(
            Journal::parse(["", "boot", "boot x", "start 0", "end -1 a 2 0"].into_iter())
                .last()
                .map(|(_, run)| run.done),
            Some(None)
        );
    }
}
