//! The programs that are measured: started, asked for their memory and CPU time, and ended.

use anyhow::{Context, Result};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::time::Duration;

/// A program that ends when this is dropped.
pub struct Program(Child);

impl Program {
    /// Starts it, without anything to read.
    pub fn start(mut command: Command) -> Result<Program> {
        let name = command.get_program().to_owned();
        let started = command.stdin(Stdio::null()).spawn();
        Ok(Program(started.with_context(|| format!("start {}", name.display()))?))
    }

    /// What it says, where its command pipes that, and once.
    pub fn stdout(&mut self) -> Option<ChildStdout> {
        self.0.stdout.take()
    }

    /// What it complains of; likewise.
    pub fn stderr(&mut self) -> Option<ChildStderr> {
        self.0.stderr.take()
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Memory of a process in bytes: its share of what is resident (PSS), and the most that ever was resident.
pub fn memory(pid: u32) -> Result<(f64, f64)> {
    let field = |file: &str, name: &str| -> Result<f64> {
        let path = PathBuf::from(format!("/proc/{pid}/{file}"));
        let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let line = text.lines().find_map(|line| line.strip_prefix(name)).context("no such line")?;
        let kilobytes: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
        Ok(kilobytes * 1024.0)
    };
    Ok((field("smaps_rollup", "Pss:")?, field("status", "VmHWM:")?))
}

/// The most that ever was resident is counted anew from now on.
pub fn forget_peak(pid: u32) -> Result<()> {
    let path = PathBuf::from(format!("/proc/{pid}/clear_refs"));
    std::fs::write(&path, "5").with_context(|| format!("write {}", path.display()))
}

/// The share of one core that a process takes during a while.
pub async fn idle_cpu(pid: u32, during: Duration) -> Result<f64> {
    let before = cpu_seconds(pid)?;
    tokio::time::sleep(during).await;
    Ok((cpu_seconds(pid)? - before) / during.as_secs_f64())
}

/// The CPU time that a process has taken.
pub fn cpu_seconds(pid: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, fields) = stat.rsplit_once(')').context("not a stat file")?;
    let mut fields = fields.split_whitespace().skip(11);
    let mut next = || fields.next().unwrap_or_default().parse::<f64>();
    // A tick is a hundredth of a second, on every Linux that there is.
    Ok((next()? + next()?) / 100.0)
}
