//! The packet filter's programs: single rules through `iptables`, many at once through `iptables-restore --noflush`.
//!
//! A restore names the chains that it replaces, and touches nothing else. It happens as a whole or not at all.

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{getpid, getppid};
use std::process::{Output, Stdio};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};

/// How long one waits for others who edit rules: the lock is held for milliseconds.
const WAIT_SECONDS: &str = "30";

/// Why rules are not as they should be.
#[derive(Debug, thiserror::Error)]
pub enum IptablesError {
    /// The program is not there.
    #[error("run {program}: is the package iptables installed?")]
    Missing {
        /// Which program.
        program: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It refused.
    #[error("{command}: {message}")]
    Refused {
        /// The command line.
        command: String,
        /// What it said.
        message: String,
    },
}

type Result<T, E = IptablesError> = std::result::Result<T, E>;

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its table.
    pub table: &'static str,
    /// Its chain.
    pub chain: String,
    /// The rest of the line, with quotes around what has spaces.
    pub rest: String,
}

impl Rule {
    /// A rule of a chain of a table.
    pub fn new(table: &'static str, chain: &str, rest: impl Into<String>) -> Rule {
        Rule { table, chain: chain.to_owned(), rest: rest.into() }
    }
}

/// The programs of one family of addresses and one backend.
#[derive(Clone, Debug)]
pub struct Iptables {
    program: String,
}

impl Iptables {
    /// `program` is `iptables`, `iptables-nft`, `ip6tables-legacy` and so on; the others are named after it.
    pub fn new(program: &str) -> Iptables {
        Iptables { program: program.to_owned() }
    }

    /// What it says of itself.
    pub async fn version(&self) -> Result<String> {
        let output = command(&self.program).arg("--version").output().await;
        let output = output.map_err(missing(&self.program))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Whether the kernel has a table.
    pub async fn probe(&self, table: &str) -> Result<()> {
        self.run(table, &["-n", "-L", "POSTROUTING"]).await
    }

    /// Applies a text of tables and chains.
    pub async fn restore(&self, text: &str) -> Result<()> {
        let program = format!("{}-restore", self.program);
        let mut command = command(&program);
        command.args(["--wait", WAIT_SECONDS, "--noflush", "--counters"]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut running = start(&program, &mut command)?;
        let mut stdin = running.stdin.take().expect("piped above");
        // It may complain before it has read everything, so both go on at once.
        let write = async {
            let _ = stdin.write_all(text.as_bytes()).await;
            drop(stdin);
        };
        let ((), output) = tokio::join!(write, running.wait_with_output());
        check(format!("{program} --noflush"), &output.map_err(missing(&program))?)
    }

    /// Whether all of these rules are there. One process looks for all of them.
    pub async fn has_all(&self, rules: &[Rule]) -> Result<bool> {
        let mut text = String::new();
        for table in ["nat", "filter"] {
            let checks = rules.iter().filter(|rule| rule.table == table);
            let checks: String = checks.map(|rule| format!("-C {} {}\n", rule.chain, rule.rest)).collect();
            text += &format!("*{table}\n{checks}COMMIT\n");
        }
        match self.restore(&text).await {
            Ok(()) => Ok(true),
            Err(IptablesError::Refused { message, .. }) => {
                tracing::debug!(message, "a rule is missing");
                Ok(false)
            }
            Err(missing) => Err(missing),
        }
    }

    /// Adds a rule at the end of its chain, unless it is there.
    pub async fn append(&self, rule: &Rule) -> Result<()> {
        self.add("-A", rule).await
    }

    /// Adds a rule at the beginning of its chain, unless it is there.
    pub async fn insert(&self, rule: &Rule) -> Result<()> {
        self.add("-I", rule).await
    }

    async fn add(&self, verb: &str, rule: &Rule) -> Result<()> {
        if self.has(rule).await? {
            return Ok(());
        }
        self.edit(verb, rule).await
    }

    /// Removes a rule, if it is there.
    pub async fn delete(&self, rule: &Rule) -> Result<()> {
        // A crash between looking and adding may have left it twice.
        while self.has(rule).await? {
            self.edit("-D", rule).await?;
        }
        Ok(())
    }

    async fn has(&self, rule: &Rule) -> Result<bool> {
        Ok(self.output(rule.table, &arguments("-C", rule)).await?.status.success())
    }

    async fn edit(&self, verb: &str, rule: &Rule) -> Result<()> {
        self.run(rule.table, &arguments(verb, rule)).await
    }

    /// Adds an empty chain, unless it is there.
    pub async fn add_chain(&self, table: &str, chain: &str) -> Result<()> {
        if self.has_chain(table, chain).await? {
            return Ok(());
        }
        match self.run(table, &["-N", chain]).await {
            // Somebody was faster, most likely ourselves.
            Err(IptablesError::Refused { message, .. }) if message.contains("exists") => Ok(()),
            other => other,
        }
    }

    /// Removes a chain to which nothing leads, if it is there.
    pub async fn remove_chain(&self, table: &str, chain: &str) -> Result<()> {
        if !self.has_chain(table, chain).await? {
            return Ok(());
        }
        self.run(table, &["-F", chain]).await?;
        self.run(table, &["-X", chain]).await
    }

    async fn has_chain(&self, table: &str, chain: &str) -> Result<bool> {
        Ok(self.output(table, &["-n", "-L", chain]).await?.status.success())
    }

    /// The names of a table's chains. What is saved may be long, so it is read line by line.
    pub async fn chains(&self, table: &str) -> Result<Vec<String>> {
        let program = format!("{}-save", self.program);
        let mut command = command(&program);
        command.args(["-t", table]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = start(&program, &mut command)?;
        let mut lines = BufReader::new(running.stdout.take().expect("piped above")).lines();
        let mut names = Vec::new();
        while let Some(line) = lines.next_line().await.map_err(missing(&program))? {
            if let Some(name) = line.strip_prefix(':').and_then(|rest| rest.split(' ').next()) {
                names.push(name.to_owned());
            }
        }
        let output = running.wait_with_output().await.map_err(missing(&program))?;
        check(program, &output)?;
        Ok(names)
    }

    async fn run(&self, table: &str, arguments: &[impl AsRef<str>]) -> Result<()> {
        let output = self.output(table, arguments).await?;
        let arguments: Vec<&str> = arguments.iter().map(AsRef::as_ref).collect();
        check(format!("{} -t {table} {}", self.program, arguments.join(" ")), &output)
    }

    async fn output(&self, table: &str, arguments: &[impl AsRef<str>]) -> Result<Output> {
        let mut command = command(&self.program);
        command.args(["-w", WAIT_SECONDS, "-t", table]).args(arguments.iter().map(AsRef::as_ref));
        command.output().await.map_err(missing(&self.program))
    }
}

/// A program that ends when we do, however we do: our successor's word is the last, and what we were about to do is not
/// done after it.
fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).kill_on_drop(true);
    let us = getpid();
    // SAFETY: between fork and exec nothing but system calls is done.
    #[expect(unsafe_code, reason = "there is no safe door to it")]
    unsafe {
        command.pre_exec(move || {
            set_pdeathsig(Signal::SIGKILL)?;
            // We may have ended before that.
            if getppid() == us { Ok(()) } else { Err(std::io::ErrorKind::BrokenPipe.into()) }
        });
    }
    command
}

fn start(program: &str, command: &mut Command) -> Result<Child> {
    command.spawn().map_err(missing(program))
}

fn missing(program: &str) -> impl FnOnce(std::io::Error) -> IptablesError {
    move |source| IptablesError::Missing { program: program.to_owned(), source }
}

fn check(command: String, output: &Output) -> Result<()> {
    match output.status.success() {
        true => Ok(()),
        false => {
            let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(IptablesError::Refused { command, message })
        }
    }
}

/// The words of an edit. They are split at spaces, but not within quotes.
fn arguments(verb: &str, rule: &Rule) -> Vec<String> {
    let rest = rule.rest.split('"').enumerate().flat_map(|(n, part)| match n % 2 {
        0 => part.split_whitespace().collect::<Vec<&str>>(),
        _ => vec![part],
    });
    [verb, &rule.chain].into_iter().chain(rest).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_quotes_is_one_word() {
        let rule = Rule::new("nat", "OUTPUT", "-m comment --comment \"two words\" -j X");
        let expected = ["-C", "OUTPUT", "-m", "comment", "--comment", "two words", "-j", "X"];
        assert_eq!(arguments("-C", &rule), expected);
    }
    #[test]
    fn a_program_ends_with_who_started_it() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let (program, pid) = (dir.path().join("slow"), dir.path().join("pid"));
        let script =
            format!("#!/bin/sh\necho $$ > {0}.new; mv {0}.new {0}\nexec sleep 1000\n", pid.display());
        let restore = dir.path().join("slow-restore");
        std::fs::write(&restore, script).unwrap();
        std::fs::set_permissions(&restore, std::fs::Permissions::from_mode(0o755)).unwrap();
        // As if it were killed: nothing that it has is dropped.
        let killed = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let slow = Iptables::new(&program.display().to_string());
            let mut restoring = Box::pin(async move { slow.restore("COMMIT\n").await });
            let pid = runtime.block_on(async {
                let runs = async {
                    loop {
                        if let Ok(pid) = std::fs::read_to_string(&pid) {
                            return pid;
                        }
                        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                    }
                };
                tokio::select! { pid = runs => pid, ended = &mut restoring => panic!("{ended:?}") }
            });
            std::mem::forget((restoring, runtime));
            pid
        });
        let status = format!("/proc/{}/status", killed.join().unwrap().trim());
        // Nobody takes note of its end: it stays as a name.
        let runs = || std::fs::read_to_string(&status).is_ok_and(|status| !status.contains("State:\tZ"));
        let ends = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while runs() {
            assert!(std::time::Instant::now() < ends, "it goes on");
            std::thread::yield_now();
        }
    }
}
