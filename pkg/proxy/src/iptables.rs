//! The packet filter's programs: the bulk through `iptables-restore --noflush`, single rules through `iptables`.
//!
//! A restore names the chains that it replaces, and touches nothing else. It happens as a whole or not at all.

use crate::rules::{self, is_service_chain};
use std::process::{Output, Stdio};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

/// Why the rules are not as they should be.
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

/// The programs of one family of addresses and one backend.
#[derive(Clone, Debug)]
pub struct Iptables {
    program: String,
    nft: bool,
}

impl Iptables {
    /// `program` is `iptables`, `iptables-nft`, `ip6tables-legacy` and so on; the others are named after it.
    pub async fn find(program: &str) -> Result<Iptables> {
        let iptables = Iptables { program: program.to_owned(), nft: false };
        let version = iptables.output(program, &["--version"]).await?;
        let nft = String::from_utf8_lossy(&version.stdout).contains("nf_tables");
        Ok(Iptables { nft, ..iptables })
    }

    /// Whether the kernel's nf_tables carries it out. That makes a large transaction slow, but costs nothing per
    /// transaction; the older one copies the whole table each time.
    pub fn is_nft(&self) -> bool {
        self.nft
    }

    /// Applies a text of tables and chains.
    pub async fn restore(&self, text: &str) -> Result<()> {
        let program = format!("{}-restore", self.program);
        let missing = |source| IptablesError::Missing { program: program.clone(), source };
        let output = network::restore(&program, text).await.map_err(missing)?;
        check(format!("{program} --noflush"), &output)
    }

    /// The chains of a table that are ours and belong to single services or endpoints.
    pub async fn service_chains(&self, table: &str) -> Result<Vec<String>> {
        let mut names = self.chains(table).await?;
        names.retain(|name| is_service_chain(name));
        Ok(names)
    }

    /// Leads packets to our chains.
    pub async fn add_jumps(&self) -> Result<()> {
        for (table, chain, rest) in rules::jumps() {
            if !self.single(table, "-C", chain, &rest).await?.status.success() {
                let output = self.single(table, "-I", chain, &rest).await?;
                check(format!("{} -t {table} -I {chain} {rest}", self.program), &output)?;
            }
        }
        Ok(())
    }

    /// Whether all [signs](rules::signs) of our rules are there.
    pub async fn has(&self, signs: &str) -> Result<bool> {
        match self.restore(signs).await {
            Ok(()) => Ok(true),
            Err(IptablesError::Refused { message, .. }) => {
                tracing::debug!(message, "a rule is missing");
                Ok(false)
            }
            Err(missing) => Err(missing),
        }
    }

    /// Removes every trace of ours, and nothing else.
    pub async fn cleanup(&self) -> Result<()> {
        for (table, chain, rest) in rules::jumps() {
            while self.single(table, "-C", chain, &rest).await?.status.success() {
                let output = self.single(table, "-D", chain, &rest).await?;
                check(format!("{} -t {table} -D {chain} {rest}", self.program), &output)?;
            }
        }
        let shared = rules::shared(std::iter::empty(), &rules::Settings::new(false));
        for (table, chains) in [("nat", shared.nat), ("filter", shared.filter)] {
            let present = self.chains(table).await?;
            let ours = |name: &&String| is_service_chain(name) || chains.contains_key(*name);
            let mut text = format!("*{table}\n");
            let ours: Vec<&String> = present.iter().filter(ours).collect();
            ours.iter().for_each(|name| text += &format!(":{name} - [0:0]\n"));
            ours.iter().for_each(|name| text += &format!("-X {name}\n"));
            text += "COMMIT\n";
            if !ours.is_empty() {
                self.restore(&text).await?;
            }
        }
        Ok(())
    }

    /// The names of a table's chains. What is saved may be long, so it is read line by line.
    async fn chains(&self, table: &str) -> Result<Vec<String>> {
        let program = format!("{}-save", self.program);
        let mut command = Command::new(&program);
        command.args(["-t", table]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let missing = |source| IptablesError::Missing { program: program.clone(), source };
        let mut running = command.kill_on_drop(true).spawn().map_err(missing)?;
        let mut lines = BufReader::new(running.stdout.take().expect("piped above")).lines();
        let mut names = Vec::new();
        while let Some(line) = lines.next_line().await.map_err(missing)? {
            if let Some(name) = line.strip_prefix(':').and_then(|rest| rest.split(' ').next()) {
                names.push(name.to_owned());
            }
        }
        let output = running.wait_with_output().await.map_err(missing)?;
        check(program.clone(), &output)?;
        Ok(names)
    }

    async fn single(&self, table: &str, verb: &str, chain: &str, rest: &str) -> Result<Output> {
        let rest = words(rest);
        let mut arguments = vec!["-w", "30", "-t", table, verb, chain];
        arguments.extend(rest.iter().map(String::as_str));
        self.output(&self.program, &arguments).await
    }

    async fn output(&self, program: &str, arguments: &[&str]) -> Result<Output> {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
        let missing = |source| IptablesError::Missing { program: program.to_owned(), source };
        command.output().await.map_err(missing)
    }
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

/// Split at spaces, but not within quotes.
fn words(rule: &str) -> Vec<String> {
    let parts = rule.split('"').enumerate().flat_map(|(n, part)| match n % 2 {
        0 => part.split_whitespace().map(str::to_owned).collect::<Vec<_>>(),
        _ => vec![part.to_owned()],
    });
    parts.collect()
}
