//! Programs that are run in a job beside its own: `srun --overlap`, with pipes or on a terminal.
//!
//! ```text
//! ExecSpec ──> srun --jobid … bash enter/<container> PROGRAM …    pipes ──────────────> Session
//!                                       setsid --ctty … a terminal of this machine ───> Session
//! ```

use super::commands::SlurmSite;
use super::door::{exit_code, spawn};
use super::queue::JobId;
use crate::runtime::{Error, ExecSpec, Session};
use nix::pty::{OpenptyResult, openpty};
use std::os::fd::OwnedFd;
use std::process::Stdio;
use tokio::fs::File;
use tokio::process::Command;
use tokio::sync::mpsc;

/// Sizes of a terminal that nobody has set yet.
const SIZES: usize = 4;

/// Which container of which job.
pub struct Where<'a> {
    /// The job.
    pub job: JobId,
    /// Who it runs as, if it is not who commands are run as.
    pub user: Option<&'a str>,
    /// Its folder.
    pub folder: &'a str,
    /// The container.
    pub container: &'a str,
}

/// Runs it.
pub async fn exec(site: &SlurmSite, place: Where<'_>, spec: &ExecSpec) -> Result<Session, Error> {
    let job = format!("--jobid={}", place.job);
    let enter = format!("{}/enter/{}", place.folder, place.container);
    let mut words =
        vec!["srun", "--quiet", &job, "--overlap", "--nodes=1", "--ntasks=1", "--mpi=none", "--export=NIL"];
    if spec.tty {
        words.push("--pty");
    } else if !spec.stdin {
        words.push("--input=none");
    }
    words.extend(["--chdir=/", "/bin/bash", &enter]);
    words.extend(spec.command.iter().map(String::as_str));
    let words = site.as_user(place.user, &words);
    let failed =
        |source: std::io::Error| Error::Unavailable { doing: "run srun".into(), source: source.into() };
    let command = site.door.command(&words, spec.tty).await;
    let command = command
        .map_err(|error| Error::Unavailable { doing: "reach the site".into(), source: error.into() })?;
    if spec.tty { on_terminal(&command).map_err(failed) } else { on_pipes(command, spec).map_err(failed) }
}

fn on_pipes(command: Command, spec: &ExecSpec) -> std::io::Result<Session> {
    let mut child = spawn(command)?;
    let stdin = child.stdin.take().filter(|_| spec.stdin);
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    // Nobody resizes what is no terminal.
    let (resize, _) = mpsc::channel(1);
    Ok(Session {
        stdin: stdin.map(|pipe| Box::new(pipe) as _),
        stdout: stdout.map(|pipe| Box::new(pipe) as _),
        stderr: stderr.map(|pipe| Box::new(pipe) as _),
        resize,
        exit: Box::pin(async move { waited(child.wait().await) }),
    })
}

fn waited(ended: std::io::Result<std::process::ExitStatus>) -> Result<i32, Error> {
    ended
        .map(exit_code)
        .map_err(|source| Error::Unavailable { doing: "wait for srun".into(), source: source.into() })
}

/// On a terminal of this machine, which srun (or ssh) has as its own and passes on.
fn on_terminal(command: &Command) -> std::io::Result<Session> {
    let OpenptyResult { master, slave } = openpty(None, None)?;
    let name = nix::unistd::ttyname(&slave)?;
    let given = command.as_std();
    let mut own = Command::new("setsid");
    own.args(["--ctty", "--wait"]).arg(given.get_program()).args(given.get_args()).env_clear();
    own.envs(given.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .env("TERM", "xterm")
        .current_dir("/");
    let end = |fd: &OwnedFd| -> std::io::Result<Stdio> { Ok(Stdio::from(fd.try_clone()?)) };
    own.stdin(end(&slave)?).stdout(end(&slave)?).stderr(end(&slave)?).kill_on_drop(true);
    let mut child = own.spawn()?;
    drop(own);
    drop(slave);
    let (resize, mut sizes) = mpsc::channel::<(u16, u16)>(SIZES);
    let resizing = tokio::spawn(async move {
        while let Some((columns, rows)) = sizes.recv().await {
            let mut stty = Command::new("stty");
            stty.arg("-F").arg(&name).args(["cols", &columns.to_string(), "rows", &rows.to_string()]);
            let _ = stty.stdin(Stdio::null()).output().await;
        }
    });
    let reader = File::from_std(std::fs::File::from(master.try_clone()?));
    let writer = File::from_std(std::fs::File::from(master));
    Ok(Session {
        stdin: Some(Box::new(writer)),
        stdout: Some(Box::new(Terminal(reader))),
        stderr: None,
        resize,
        exit: Box::pin(async move {
            let ended = waited(child.wait().await);
            resizing.abort();
            ended
        }),
    })
}

/// Reads a terminal: when nobody has its other side any more, that is an end and no error.
struct Terminal(File);

impl tokio::io::AsyncRead for Terminal {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        let read = std::pin::Pin::new(&mut self.0).poll_read(context, buffer);
        read.map(|read| match read {
            Err(error) if error.raw_os_error() == Some(libc::EIO) => Ok(()),
            read => read,
        })
    }
}
