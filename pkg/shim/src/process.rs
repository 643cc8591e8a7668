//! One process of a container: its first, or one that is executed in it.

use crate::io::{Held, Paths};
use crate::keeper::{self, Exit, Exits, Prepared};
use crate::oci::Process as Program;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use tokio::sync::watch;

/// How far a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It is set up, or its set-up is known.
    Created,
    /// It runs.
    Running,
    /// It has ended.
    Stopped(Exit),
}

/// A process.
pub struct Process {
    /// Where its streams are.
    pub paths: Paths,
    /// What of them is ours.
    pub held: Held,
    /// What is to be executed; the first process is set up when it is made.
    pub program: Option<Program>,
    /// Held while it is started: its end is told after its start.
    pub starting: tokio::sync::Mutex<()>,
    known: Mutex<Known>,
    end: watch::Sender<Option<Exit>>,
}

#[derive(Default)]
struct Known {
    pid: u32,
    handle: Option<OwnedFd>,
    waits: Option<(Prepared, File)>,
    is_started: bool,
}

impl Process {
    /// One that is not there yet.
    pub fn new(paths: Paths, program: Option<Program>) -> Self {
        Process {
            paths,
            held: Held::default(),
            program,
            starting: tokio::sync::Mutex::default(),
            known: Mutex::default(),
            end: watch::channel(None).0,
        }
    }

    /// It is there, and waits for its start. Gives what hears of its end.
    pub fn prepared(&self, prepared: Prepared, start: File) -> io::Result<Exits> {
        let exits = prepared.exits.clone();
        let handle = keeper::pidfd(prepared.pid);
        if prepared.terminal > 0 {
            let master = keeper::taken(prepared.pid, prepared.terminal)?;
            crate::io::copy_terminal(master, &self.paths, &self.held)?;
        }
        if let Ok(mut known) = self.known.lock() {
            // One that has been killed already has none.
            known.handle = handle.ok();
            known.pid = prepared.pid;
            known.waits = Some((prepared, start));
        }
        Ok(exits)
    }

    /// Lets it start, and tells whether it became its program.
    pub async fn start(&self) -> Result<u32, String> {
        let waits = self.known.lock().ok().and_then(|mut known| known.waits.take());
        let (prepared, mut start) = waits.ok_or("it was started already")?;
        // One that was killed meanwhile says so below.
        let _ = start.write_all(&[crate::setup::START]);
        drop(start);
        prepared.started().await?;
        if let Ok(mut known) = self.known.lock() {
            known.is_started = true;
        }
        Ok(prepared.pid)
    }

    /// Its number; zero before it has one.
    pub fn pid(&self) -> u32 {
        self.known.lock().map_or(0, |known| known.pid)
    }

    /// How far it is.
    pub fn stage(&self) -> Stage {
        if let Some(exit) = *self.end.borrow() {
            return Stage::Stopped(exit);
        }
        if self.known.lock().is_ok_and(|known| known.is_started) { Stage::Running } else { Stage::Created }
    }

    /// It has ended.
    pub fn ended(&self, exit: Exit) {
        self.held.close();
        if let Ok(mut known) = self.known.lock() {
            known.handle = None;
            known.waits = None;
        }
        self.end.send_replace(Some(exit));
    }

    /// Waits for its end.
    pub async fn wait(&self) -> Exit {
        let mut end = self.end.subscribe();
        let ended = end.wait_for(Option::is_some).await.ok().and_then(|exit| *exit);
        ended.unwrap_or_else(keeper::lost)
    }

    /// Sends a signal; false: it has ended, or is not there yet.
    pub fn signal(&self, signal: u32) -> io::Result<bool> {
        let Ok(known) = self.known.lock() else { return Ok(false) };
        let Some(handle) = &known.handle else { return Ok(false) };
        match keeper::signal(handle, signal) {
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(false),
            other => other.map(|()| true),
        }
    }
}
