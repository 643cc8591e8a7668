//! The SLURM plugin: the same code as the SLURM node's, with the objects that came along instead of an apiserver's.

use super::provided::{Adapt, Adapted, Kept, ProvidedSite};
use crate::api::Error;
use crate::config::Config;
use crate::gather::{contents_of, contents_of_secret};
use crate::wire::RetrievedPod;
use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use kubelet::objects::Data;
use kubelet::providers::slurm::{NodeParts, PodData, PodObjects, SiteConfig, SlurmNode, SlurmSite};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// What came along with pods, by their uids, until the pods are gone.
#[derive(Default, Clone)]
struct Along(Arc<Mutex<BTreeMap<String, PodData>>>);

#[async_trait]
impl PodObjects for Along {
    async fn of(&self, pod: &Pod) -> Result<PodData, String> {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        Ok(self.0.lock().get(uid).cloned().unwrap_or_default())
    }
}

impl Adapt for Along {
    fn adapt(&self, given: RetrievedPod, _folder: &Path) -> Result<Adapted, String> {
        let mut pod = given.pod.clone();
        pod.status = None;
        pod.metadata.deletion_timestamp = None;
        Ok(Adapted { pod, folders: Vec::new(), files: Vec::new(), given: Some(given) })
    }

    fn begins(&self, kept: &Kept) {
        let Ok(given) = serde_json::from_value::<RetrievedPod>(kept.given.clone()) else { return };
        let uid = kept.pod.metadata.uid.clone().unwrap_or_default();
        self.0.lock().insert(uid, data(&given));
    }

    fn ends(&self, uid: &str) {
        self.0.lock().remove(uid);
    }
}

fn data(given: &RetrievedPod) -> PodData {
    let mut all = PodData::default();
    let of = |data: BTreeMap<String, Vec<u8>>| Data { data, ..Data::default() };
    for container in &given.container {
        for object in &container.config_maps {
            all.config_maps.insert(object.metadata.name.clone().unwrap_or_default(), of(contents_of(object)));
        }
        for object in &container.secrets {
            all.secrets
                .insert(object.metadata.name.clone().unwrap_or_default(), of(contents_of_secret(object)));
        }
    }
    all
}

/// What a site is told by the keys of InterLinkConfig.yaml.
fn site_config(config: &Config, site: Option<&Path>) -> Result<SiteConfig, Error> {
    let failed = |why: String| Error::Site(why.into());
    let root = config.data_root()?;
    let mut made = match site {
        Some(path) => SiteConfig::read(path).map_err(|error| Error::Site(error.into()))?,
        None => {
            let text =
                serde_json::json!({"dataRoot": root.join("jobs"), "namespaces": {"*": {}}}).to_string();
            SiteConfig::parse(&text).map_err(failed)?
        }
    };
    for (key, given, name) in
        [("SbatchPath", &config.sbatch, "sbatch"), ("ScancelPath", &config.scancel, "scancel")]
    {
        if let Some(given) = given
            && !is_found(given, name)
        {
            return Err(failed(format!(
                "{key}: {} is not the {name} that PATH leads to: put its folder first in PATH",
                given.display()
            )));
        }
    }
    made.preamble = preamble(config, &made.preamble);
    Ok(made)
}

/// Whether a program that is called by its name is that one.
fn is_found(given: &Path, name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|program| program.exists());
    let real = |path: &Path| path.canonicalize().ok();
    found.is_some_and(|found| real(&found).is_some() && real(&found) == real(given))
}

/// What every job begins with: the site's own lines, the prefix, and the way out through tsocks.
fn preamble(config: &Config, own: &str) -> String {
    let mut text = own.to_owned();
    let mut line = |line: &str| {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(line);
        text.push('\n');
    };
    if config.tsocks {
        let quote = |word: &str| format!("'{}'", word.replace('\'', "'\\''"));
        let library =
            config.tsocks_path.as_ref().map_or("libtsocks.so".into(), |path| path.display().to_string());
        let mut lines = String::new();
        let _ = write!(
            lines,
            "tsocks_port=$((20000 + RANDOM % 20000))\n\
             ssh -o BatchMode=yes -o ExitOnForwardFailure=yes -N -D \"$tsocks_port\" {} &\n\
             printf 'server = 127.0.0.1\\nserver_port = %s\\nserver_type = 5\\n' \"$tsocks_port\" > \"${{TMPDIR:-/tmp}}/tsocks.$SLURM_JOB_ID\"\n\
             export TSOCKS_CONF_FILE=\"${{TMPDIR:-/tmp}}/tsocks.$SLURM_JOB_ID\" LD_PRELOAD={}",
            quote(&config.tsocks_login_node),
            quote(&library),
        );
        line(&lines);
    }
    if !config.command_prefix.is_empty() {
        line(&config.command_prefix);
    }
    text
}

/// The site, and what has to run beside it. `site` describes it in the words of the SLURM node, beyond what the keys of
/// interLink say.
pub async fn start(
    config: &Config,
    site: Option<&Path>,
    shutdown: &CancellationToken,
) -> Result<(Arc<ProvidedSite>, JoinSet<()>), Error> {
    let root = config.data_root()?.join("slurm");
    let keep = |error: std::io::Error| Error::Keep { path: root.display().to_string(), source: error.into() };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&root).map_err(keep)?;
    let described = site_config(config, site)?;
    let along = Along::default();
    let parts = NodeParts {
        site: SlurmSite::open(described, &SlurmNode::sockets(&root)).await.map_err(keep)?,
        folder: root.clone(),
        node_name: "interlink".into(),
        objects: Arc::new(along.clone()),
        events: kubelet::Events::default(),
    };
    let node = SlurmNode::new(parts, shutdown.clone()).map_err(keep)?;
    let made = ProvidedSite::new(node, Box::new(along), &root.join("interlink")).map_err(keep)?;
    let mut tasks = JoinSet::new();
    tasks.spawn(made.clone().run(shutdown.clone()));
    Ok((made, tasks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_the_seed_become_lines_of_a_job() {
        let config = Config {
            command_prefix: "module load x".into(),
            tsocks: true,
            tsocks_path: Some("/opt/libtsocks.so".into()),
            tsocks_login_node: "login'0".into(),
            ..Config::default()
        };
        let text = preamble(&config, "umask 077");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines[0], *lines.last().unwrap()), ("umask 077", "module load x"));
        assert!(text.contains(r"'login'\''0' &"), "{text}");
        assert!(text.contains("LD_PRELOAD='/opt/libtsocks.so'"), "{text}");
        assert_eq!(preamble(&Config::default(), ""), "");
    }

    #[test]
    fn a_program_that_is_not_the_one_of_path_is_named() {
        let config = Config {
            sbatch: Some("/nowhere/sbatch".into()),
            data_root: Some("/d".into()),
            ..Config::default()
        };
        let error = site_config(&config, None).unwrap_err();
        assert!(kubelet::error::chain(&error).contains("SbatchPath"), "{error}");
    }
}
