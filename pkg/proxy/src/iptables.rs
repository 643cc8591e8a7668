//! Our rules in the packet filter, by its programs.

use crate::rules::{self, is_service_chain};
use network::iptables::{Iptables as Programs, IptablesError, Rule};

type Result<T, E = IptablesError> = std::result::Result<T, E>;

/// The programs of one family of addresses and one backend.
#[derive(Clone, Debug)]
pub struct Iptables {
    programs: Programs,
    nft: bool,
}

impl Iptables {
    /// `program` is `iptables`, `iptables-nft`, `ip6tables-legacy` and so on; the others are named after it.
    pub async fn find(program: &str) -> Result<Iptables> {
        let programs = Programs::new(program);
        let nft = programs.version().await?.contains("nf_tables");
        programs.probe("nat").await?;
        Ok(Iptables { programs, nft })
    }

    /// Whether the kernel's nf_tables carries it out. That makes a large transaction slow, but costs nothing per
    /// transaction; the older one copies the whole table each time.
    pub fn is_nft(&self) -> bool {
        self.nft
    }

    /// Applies a text of tables and chains.
    pub async fn restore(&self, text: &str) -> Result<()> {
        self.programs.restore(text).await
    }

    /// Whether all of these rules are there.
    pub async fn has_all(&self, rules: &[Rule]) -> Result<bool> {
        self.programs.has_all(rules).await
    }

    /// The chains of a table that are ours and belong to single services or endpoints.
    pub async fn service_chains(&self, table: &str) -> Result<Vec<String>> {
        let mut names = self.programs.chains(table).await?;
        names.retain(|name| is_service_chain(name));
        Ok(names)
    }

    /// Leads packets to our chains.
    pub async fn add_jumps(&self) -> Result<()> {
        for jump in rules::jumps() {
            self.programs.insert(&jump).await?;
        }
        Ok(())
    }

    /// Removes every trace of ours, and nothing else.
    pub async fn cleanup(&self) -> Result<()> {
        for jump in rules::jumps() {
            self.programs.delete(&jump).await?;
        }
        let shared = rules::shared(std::iter::empty(), &rules::Settings::new(false));
        for (table, chains) in [("nat", shared.nat), ("filter", shared.filter)] {
            let present = self.programs.chains(table).await?;
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
}
