//! The door to a site: commands that are run there, on this machine or through SSH, by the same words.
//!
//! ```text
//! SlurmSite ── words, standard input ──> Door ─┬─ this machine
//!                                              └─ ssh, over one kept connection
//! ```
//!
//! It runs what it is given and says what came of it. It knows nothing of SLURM.

use async_trait::async_trait;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

/// An answer is no longer than this.
const MOST_BYTES: u64 = 64 << 20;

/// What came of a command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ran {
    /// What it returned.
    pub code: i32,
    /// What it said.
    pub stdout: Vec<u8>,
    /// What it complained of.
    pub stderr: String,
}

impl Ran {
    /// What it said, as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
}

/// Why a command was not run, or nobody knows whether it was.
#[derive(Debug, thiserror::Error)]
pub enum DoorError {
    /// The site cannot be reached: nothing was run.
    #[error("the site cannot be reached: {0}")]
    Unreachable(String),
    /// It did not end in time; it may have done its work.
    #[error("{what} did not answer for {seconds} s")]
    Silent {
        /// Which command.
        what: String,
        /// How long it was waited for.
        seconds: u64,
    },
    /// Its process could not be started, or be spoken to.
    #[error("run {what}")]
    Io {
        /// Which command.
        what: String,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
}

/// Runs commands at a site.
#[async_trait]
pub trait Door: Send + Sync + 'static {
    /// The process that runs these words at the site; with `tty`, on a terminal there that follows its own.
    async fn command(&self, words: &[String], tty: bool) -> Result<Command, DoorError>;
    /// A process of [`Door::command`] ended with this code and these words: an error, if that was the door's own doing.
    async fn judge(&self, _code: i32, _stderr: &str) -> Result<(), DoorError> {
        Ok(())
    }
    /// Waits until another short command may be run.
    async fn turn(&self) -> Option<tokio::sync::OwnedSemaphorePermit> {
        None
    }

    /// Runs a command to its end.
    async fn run(&self, words: &[String], stdin: &[u8], patience: Duration) -> Result<Ran, DoorError> {
        let _turn = self.turn().await;
        let what = words.first().cloned().unwrap_or_default();
        let failed = |source| DoorError::Io { what: what.clone(), source };
        let mut child = spawn(self.command(words, false).await?).map_err(failed)?;
        let ran = tokio::time::timeout(patience, finish(&mut child, stdin)).await;
        let Ok(ran) = ran else {
            let _ = child.kill().await;
            return Err(DoorError::Silent { what, seconds: patience.as_secs() });
        };
        let ran = ran.map_err(failed)?;
        self.judge(ran.code, &ran.stderr).await?;
        Ok(ran)
    }
}

/// Starts a command with pipes. It ends with who holds it.
pub fn spawn(mut command: Command) -> std::io::Result<Child> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).spawn()
}

async fn finish(child: &mut Child, stdin: &[u8]) -> std::io::Result<Ran> {
    let pipe = child.stdin.take();
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let give = async move {
        let Some(mut pipe) = pipe else { return };
        // Who does not read it all says why by how it ends.
        let _ = pipe.write_all(stdin).await;
        let _ = pipe.shutdown().await;
    };
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let read_out = async {
        match out {
            Some(out) => out.take(MOST_BYTES).read_to_end(&mut stdout).await.map(drop),
            None => Ok(()),
        }
    };
    let read_err = async {
        match err {
            Some(err) => err.take(MOST_BYTES).read_to_end(&mut stderr).await.map(drop),
            None => Ok(()),
        }
    };
    let ((), out, err) = tokio::join!(give, read_out, read_err);
    out?;
    err?;
    let status = child.wait().await?;
    Ok(Ran { code: exit_code(status), stdout, stderr: String::from_utf8_lossy(&stderr).into_owned() })
}

/// As a shell has it.
pub fn exit_code(status: std::process::ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1)
}

/// This machine.
pub struct LocalDoor {
    /// Variables that every command has.
    pub env: Vec<(String, String)>,
}

#[async_trait]
impl Door for LocalDoor {
    async fn command(&self, words: &[String], _tty: bool) -> Result<Command, DoorError> {
        let mut command = Command::new(words.first().map_or("true", String::as_str));
        command.args(words.iter().skip(1));
        // What happens to be set for this program must become neither an option of a job nor known to it.
        command.env_clear();
        for name in ["PATH", "HOME", "USER", "LOGNAME"] {
            command.envs(std::env::var_os(name).map(|value| (name, value)));
        }
        command.envs(self.env.iter().cloned()).current_dir("/");
        Ok(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[tokio::test]
    async fn what_is_run_here_says_how_it_ended() {
        let door = LocalDoor { env: vec![("A".into(), "1".into())] };
        let patience = Duration::from_secs(60);
        let ran = door.run(&words(&["sh", "-c", "cat; echo $A >&2; exit 3"]), b"hello", patience).await;
        let ran = ran.expect("it runs");
        assert_eq!((ran.code, ran.text().as_str(), ran.stderr.as_str()), (3, "hello", "1\n"));
        let silent = door.run(&words(&["sleep", "60"]), b"", Duration::from_millis(10)).await;
        assert!(matches!(silent, Err(DoorError::Silent { .. })), "{silent:?}");
        let missing = door.run(&words(&["/no/such/program"]), b"", patience).await;
        assert!(matches!(missing, Err(DoorError::Io { .. })), "{missing:?}");
    }
}
