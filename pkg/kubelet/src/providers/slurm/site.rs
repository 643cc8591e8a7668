//! A SLURM site as its administrator describes it: where it is, where jobs keep their files, who may submit as whom, and
//! what of a pod it can carry out.
//!
//! ```text
//! site.yaml ── parse, check ──> SiteConfig ──> door (here or SSH), options, script
//! ```
//!
//! A file that names a field that is not here, or a value that could not be meant, is refused before anything starts.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A site.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SiteConfig {
    /// The folder at the site below which each job has one of its own, by its pod's uid; jobs and login node see it by
    /// the same path. `{user}` in it is the user that the job runs as.
    pub data_root: String,
    /// How the site is reached; without it SLURM's commands are run on this machine.
    #[serde(default)]
    pub ssh: Option<SshConfig>,
    /// `SLURM_CONF` for SLURM's commands, where it is not in its usual place.
    #[serde(default)]
    pub slurm_conf: Option<String>,
    /// Who a namespace is at the site; `*` is every other. A namespace that is not here can run nothing.
    pub namespaces: BTreeMap<String, Identity>,
    /// What a resource of Kubernetes is to SLURM: `nvidia.com/gpu: gpu`, `nvidia.com/mig-1g.5gb: gpu:1g.5gb`.
    #[serde(default = "default_gpus")]
    pub gpus: BTreeMap<String, String>,
    /// Flags of sbatch that a pod may give in `slurm-job.vk.io/flags`, by their long names.
    #[serde(default = "default_flags")]
    pub allowed_flags: Vec<String>,
    /// The partition of jobs that name none; without it the site's default.
    #[serde(default)]
    pub partition: Option<String>,
    /// What runs containers.
    #[serde(default)]
    pub containers: ContainerRuntime,
    /// Folders of the site that pods may mount by `hostPath`, with everything below them.
    #[serde(default)]
    pub host_paths: Vec<String>,
    /// Lines of bash that every job begins with, such as `module load cuda`.
    #[serde(default)]
    pub preamble: String,
    /// How a source is compiled and run, by the ending of its name, beside the usual ways: `{source}` and `{program}` are
    /// filled in.
    #[serde(default)]
    pub compilers: BTreeMap<String, String>,
    /// How commands are run as another user: `{user}` is filled in.
    #[serde(default = "default_become")]
    pub r#become: Vec<String>,
    /// Pods at most.
    #[serde(default = "default_max_pods")]
    pub max_pods: u32,
    /// How often the queue is looked at, for all jobs at once.
    #[serde(default = "default_poll_seconds")]
    pub poll_seconds: u64,
    /// How often the nodes are looked at.
    #[serde(default = "default_nodes_seconds")]
    pub nodes_seconds: u64,
    /// SLURM's `MessageTimeout`: a job that may have been submitted is looked for twice as long.
    #[serde(default = "default_message_timeout")]
    pub message_timeout_seconds: u64,
    /// Jobs that are being submitted at once.
    #[serde(default = "default_at_once")]
    pub submissions_at_once: usize,
}

/// How the site is reached: by the system's `ssh`, its configuration, keys and agents. Passwords are never asked for.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SshConfig {
    /// `host`, `user@host`, or a name of the ssh configuration.
    pub destination: String,
    /// The port, where the ssh configuration does not say it.
    #[serde(default)]
    pub port: Option<u16>,
    /// The private key, where the ssh configuration does not say it.
    #[serde(default)]
    pub identity_file: Option<PathBuf>,
    /// The hosts that are known, instead of the user's; a host that is not among them is refused.
    #[serde(default)]
    pub known_hosts_file: Option<PathBuf>,
    /// Another ssh configuration than the user's.
    #[serde(default)]
    pub config_file: Option<PathBuf>,
}

/// Who a namespace is at the site. Nothing in a pod changes it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Identity {
    /// The user that jobs run as; without it the one who commands are run as, unless that is root.
    #[serde(default)]
    pub user: Option<String>,
    /// The account that is charged.
    #[serde(default)]
    pub account: Option<String>,
    /// The quality of service.
    #[serde(default)]
    pub qos: Option<String>,
}

/// What runs containers at the site.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ContainerRuntime {
    /// Nothing: the command is run as a process, and the image does not matter.
    #[default]
    None,
    /// Apptainer, or Singularity under that name.
    Apptainer,
    /// NVIDIA's enroot.
    Enroot,
    /// NVIDIA's pyxis, a plug-in of srun.
    Pyxis,
}

/// Why a description of a site is not one.
#[derive(Debug, thiserror::Error)]
pub enum SiteError {
    /// It cannot be read.
    #[error("read {path}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// It is not YAML of that form.
    #[error("{path}: {what}")]
    Form {
        /// Which.
        path: PathBuf,
        /// Where, and what was expected.
        what: String,
    },
}

impl SiteConfig {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<SiteConfig, SiteError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| SiteError::Read { path: path.to_owned(), source })?;
        SiteConfig::parse(&text).map_err(|what| SiteError::Form { path: path.to_owned(), what })
    }

    /// Reads a text.
    pub fn parse(text: &str) -> Result<SiteConfig, String> {
        let mut site: SiteConfig = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        let own = std::mem::replace(&mut site.compilers, default_compilers());
        site.compilers.extend(own);
        site.check()?;
        Ok(site)
    }

    fn check(&self) -> Result<(), String> {
        let is_plain_path = |path: &str| {
            path.starts_with('/')
                && !path.contains("/../")
                && !path.ends_with("/..")
                && path.chars().all(is_path)
        };
        if !is_plain_path(&self.data_root.replace("{user}", "user")) {
            return Err(format!(
                "dataRoot: {:?} is not an absolute path of letters, digits and ._-/",
                self.data_root
            ));
        }
        if let Some(wrong) = self.host_paths.iter().find(|path| !is_plain_path(path)) {
            return Err(format!("hostPaths: {wrong:?} is not an absolute path of letters, digits and ._-/"));
        }
        let mut users: Vec<Option<&str>> =
            self.namespaces.values().map(|identity| identity.user.as_deref()).collect();
        users.sort_unstable();
        users.dedup();
        if users.len() > 1 && !self.data_root.contains("{user}") {
            return Err(
                "dataRoot: has no {user}, and namespaces run as several users: /scratch/{user}/pods".into()
            );
        }
        for (namespace, identity) in &self.namespaces {
            for (field, value) in
                [("user", &identity.user), ("account", &identity.account), ("qos", &identity.qos)]
            {
                if let Some(wrong) = value.as_ref().filter(|value| !is_word(value)) {
                    return Err(format!("namespaces.{namespace}.{field}: {wrong:?} is not a name"));
                }
            }
        }
        if let Some((resource, gres)) = self.gpus.iter().find(|(_, gres)| !gres.split(':').all(is_word)) {
            return Err(format!("gpus.{resource}: {gres:?} is not a name, or a name and a type (gpu:a100)"));
        }
        if let Some(partition) = self.partition.as_ref().filter(|partition| !is_word(partition)) {
            return Err(format!("partition: {partition:?} is not a name"));
        }
        if let Some(flag) = self.allowed_flags.iter().find(|flag| IDENTITY_FLAGS.contains(&flag.as_str())) {
            return Err(format!("allowedFlags: {flag} says who a job is: that follows from namespaces only"));
        }
        if self.poll_seconds == 0 || self.nodes_seconds == 0 || self.submissions_at_once == 0 {
            return Err("pollSeconds, nodesSeconds and submissionsAtOnce must be more than 0".into());
        }
        Ok(())
    }

    /// Who a namespace is here.
    pub fn identity(&self, namespace: &str) -> Option<&Identity> {
        self.namespaces.get(namespace).or_else(|| self.namespaces.get("*"))
    }

    /// The folder of all jobs of a user.
    pub fn root_of(&self, user: Option<&str>) -> String {
        self.data_root.replace("{user}", user.unwrap_or_default()).trim_end_matches('/').to_owned()
    }

    /// The folders of all jobs of all users.
    pub fn roots(&self) -> Vec<String> {
        let mut roots: Vec<String> =
            self.namespaces.values().map(|identity| self.root_of(identity.user.as_deref())).collect();
        roots.sort_unstable();
        roots.dedup();
        roots
    }
}

/// What says who a job is, or runs something beside it: never a pod's to say, whatever a site allows.
pub(super) const IDENTITY_FLAGS: [&str; 8] =
    ["uid", "gid", "account", "qos", "get-user-env", "wrap", "bb", "bbf"];

/// A name as SLURM has them, which no shell, no list and no option takes for anything else.
pub(super) fn is_word(text: &str) -> bool {
    let is_first = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.starts_with(is_first)
        && text.len() <= 128
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '+' | '@'))
}

fn is_path(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-')
}

fn default_gpus() -> BTreeMap<String, String> {
    BTreeMap::from([("nvidia.com/gpu".to_owned(), "gpu".to_owned())])
}

fn default_flags() -> Vec<String> {
    let flags = [
        "time",
        "time-min",
        "mem",
        "mem-per-cpu",
        "mem-per-gpu",
        "cpus-per-task",
        "cpus-per-gpu",
        "mincpus",
        "nodes",
        "ntasks",
        "ntasks-per-node",
        "gres",
        "gpus",
        "gpus-per-node",
        "gpus-per-task",
        "partition",
        "constraint",
    ];
    flags.map(str::to_owned).to_vec()
}

fn default_compilers() -> BTreeMap<String, String> {
    let compilers = [
        ("cu", "nvcc {source} -o {program} && ./{program}"),
        ("c", "cc -O2 {source} -o {program} -lm && ./{program}"),
        ("cc", "c++ -O2 {source} -o {program} && ./{program}"),
        ("cpp", "c++ -O2 {source} -o {program} && ./{program}"),
        ("cxx", "c++ -O2 {source} -o {program} && ./{program}"),
        ("py", "python3 {source}"),
        ("sh", "sh {source}"),
    ];
    compilers.map(|(ending, command)| (ending.to_owned(), command.to_owned())).into()
}

fn default_become() -> Vec<String> {
    ["runuser", "-u", "{user}", "--"].map(str::to_owned).to_vec()
}

fn default_max_pods() -> u32 {
    1000
}

fn default_poll_seconds() -> u64 {
    6
}

fn default_nodes_seconds() -> u64 {
    30
}

fn default_message_timeout() -> u64 {
    10
}

fn default_at_once() -> usize {
    8
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: &str = "dataRoot: /scratch/pods\nnamespaces: {'*': {}}\n";

    #[test]
    fn a_namespace_is_who_the_table_says() {
        let site = SiteConfig::parse(
            "dataRoot: /scratch/{user}\nnamespaces:\n  physics: {user: phys, account: p1}\n  '*': {user: guest}\n",
        )
        .expect("a site");
        assert_eq!(site.identity("physics").and_then(|who| who.user.as_deref()), Some("phys"));
        assert_eq!(site.identity("other").and_then(|who| who.user.as_deref()), Some("guest"));
        assert_eq!(site.roots(), ["/scratch/guest", "/scratch/phys"]);
        let strict = SiteConfig::parse("dataRoot: /s\nnamespaces: {physics: {}}\n").expect("a site");
        assert_eq!(strict.identity("other"), None);
    }

    #[test]
    fn what_could_not_be_meant_is_refused() {
        assert!(SiteConfig::parse(LEAST).is_ok());
        for (more, said) in [
            ("colour: red\n", "colour"),
            ("hostPaths: [scratch]\n", "hostPaths"),
            ("allowedFlags: [time, uid]\n", "follows from namespaces"),
            ("gpus: {a: 'gpu; rm'}\n", "gpus.a"),
            ("pollSeconds: 0\n", "more than 0"),
            ("partition: 'a b'\n", "partition"),
        ] {
            let error = SiteConfig::parse(&format!("{LEAST}{more}")).expect_err("refused");
            assert!(error.contains(said), "{error}");
        }
        let users = "dataRoot: /s\nnamespaces: {a: {user: x}, b: {user: y}}\n";
        assert!(SiteConfig::parse(users).expect_err("refused").contains("{user}"));
        let hostile = "dataRoot: \"/s/$(id)\"\nnamespaces: {a: {}}\n";
        assert!(SiteConfig::parse(hostile).expect_err("refused").contains("dataRoot"));
    }
}
