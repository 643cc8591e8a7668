//! InterLinkConfig.yaml, the environment that overrides it, and the `vk-cfg.json` with the node's size.
//!
//! ```text
//! InterLinkConfig.yaml ──> keys ──┐
//! environment          ──> keys ──┴──> Config        vk-cfg.json ──> Capacity of the node of that name
//! ```
//!
//! One file serves all three programs. What one of them does not use is read all the same; what nobody knows is named.

use api::Quantity;
use kubelet::host::Capacity;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Where the configuration is looked for if nobody says.
pub const DEFAULT_PATH: &str = "./kustomizations/InterLinkConfig.yaml";

/// The keys of the file, each with the variable that overrides it.
const KEYS: &[(&str, &str)] = &[
    ("InterlinkURL", "INTERLINKURL"),
    ("SidecarURL", "SIDECARURL"),
    ("InterlinkPort", "INTERLINKPORT"),
    ("SidecarPort", "SIDECARPORT"),
    ("SbatchPath", "SBATCHPATH"),
    ("ScancelPath", "SCANCELPATH"),
    ("VKTokenFile", "VKTOKENFILE"),
    ("CommandPrefix", ""),
    ("ExportPodData", ""),
    ("DataRootFolder", ""),
    ("ServiceAccount", ""),
    ("Namespace", ""),
    ("Tsocks", "TSOCKS"),
    ("TsocksPath", "TSOCKSPATH"),
    ("TsocksLoginNode", ""),
    // Not the seed's: what secures the two hops.
    ("TLS", ""),
    ("SidecarTLS", ""),
    ("SidecarTokenFile", "SIDECARTOKENFILE"),
];

/// Variables that no key stands for.
const VK_CONFIG_PATH: &str = "VK_CONFIG_PATH";
const SHARED_FS: &str = "SHARED_FS";
const CUSTOM_KUBECONF: &str = "CUSTOMKUBECONF";
/// Where the file is.
pub const CONFIG_PATH: &str = "INTERLINKCONFIGPATH";

/// What is wrong with a configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("read {path}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// It is no YAML or JSON.
    #[error("{path}: {what}")]
    Syntax {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// A key or variable is wrong.
    #[error("{key}: {what}")]
    Value {
        /// Which.
        key: String,
        /// What is wrong, and what is right.
        what: String,
    },
}

/// Certificates of one side of a hop.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Who signs the other side's certificate.
    pub ca: Option<PathBuf>,
    /// The own certificate.
    pub certificate: Option<PathBuf>,
    /// Its key.
    pub key: Option<PathBuf>,
}

/// All that the three programs are told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config {
    /// Where the API server is, without its port.
    pub interlink_url: String,
    /// Its port.
    pub interlink_port: u16,
    /// Where the plugin is, without its port.
    pub sidecar_url: String,
    /// Its port.
    pub sidecar_port: u16,
    /// sbatch.
    pub sbatch: Option<PathBuf>,
    /// scancel.
    pub scancel: Option<PathBuf>,
    /// The token of the hop between node and API server: sent by the one, asked for by the other.
    pub token_file: Option<PathBuf>,
    /// What runs before a job's script.
    pub command_prefix: String,
    /// Whether ConfigMaps, Secrets and so on are given to the plugin.
    pub export_pod_data: bool,
    /// Where files are kept.
    pub data_root: Option<PathBuf>,
    /// The service account whose credential is handed to the API server.
    pub service_account: String,
    /// Its namespace.
    pub namespace: String,
    /// Jobs reach out through tsocks.
    pub tsocks: bool,
    /// Its library.
    pub tsocks_path: Option<PathBuf>,
    /// The machine that they go through.
    pub tsocks_login_node: String,
    /// Certificates of the hop between node and API server, of the side that reads this.
    pub tls: TlsFiles,
    /// The same of the hop between API server and plugin.
    pub sidecar_tls: TlsFiles,
    /// The token of that hop.
    pub sidecar_token_file: Option<PathBuf>,
    /// The node's size.
    pub vk_config: Option<PathBuf>,
    /// The data folder is on the jobs' machines, too.
    pub shared_fs: bool,
    /// A kubeconfig to read ConfigMaps and Secrets with, instead of the one that is handed over.
    pub kubeconfig: Option<PathBuf>,
}

impl Config {
    /// Reads a file (`given`, or where the environment says) and the environment.
    pub fn load(given: Option<&Path>, env: impl Fn(&str) -> Option<String>) -> Result<Config, ConfigError> {
        let path = match (given, env(CONFIG_PATH)) {
            (Some(path), _) => path.to_owned(),
            (None, Some(path)) => path.into(),
            (None, None) => DEFAULT_PATH.into(),
        };
        let text = std::fs::read_to_string(&path)
            .map_err(|source| ConfigError::Read { path: path.clone(), source })?;
        let file: Option<Map<String, Value>> = serde_saphyr::from_str(&text)
            .map_err(|error| ConfigError::Syntax { path, what: error.to_string() })?;
        Config::read(file.unwrap_or_default(), env)
    }

    /// From keys and environment.
    fn read(
        mut keys: Map<String, Value>,
        env: impl Fn(&str) -> Option<String>,
    ) -> Result<Config, ConfigError> {
        if let Some(unknown) = keys.keys().find(|key| !KEYS.iter().any(|(known, _)| known == key)) {
            let alike = KEYS.iter().find(|(known, _)| known.eq_ignore_ascii_case(unknown));
            let known: Vec<&str> = KEYS.iter().map(|(known, _)| *known).collect();
            let what = match alike {
                Some((known, _)) => format!("unknown key: write {known}"),
                None => format!("unknown key: known are {}", known.join(", ")),
            };
            return Err(ConfigError::Value { key: unknown.clone(), what });
        }
        for (key, variable) in KEYS.iter().filter(|(_, variable)| !variable.is_empty()) {
            if let Some(value) = env(variable).filter(|value| !value.is_empty()) {
                keys.insert((*key).to_owned(), Value::String(value));
            }
        }
        let keys = Keys(keys);
        let variable = |name: &str| env(name).filter(|value| !value.is_empty());
        Ok(Config {
            interlink_url: keys.url("InterlinkURL")?,
            interlink_port: keys.port("InterlinkPort", 3000)?,
            sidecar_url: keys.url("SidecarURL")?,
            sidecar_port: keys.port("SidecarPort", 4000)?,
            sbatch: keys.path("SbatchPath")?,
            scancel: keys.path("ScancelPath")?,
            token_file: keys.path("VKTokenFile")?,
            command_prefix: keys.text("CommandPrefix")?,
            export_pod_data: keys.flag("ExportPodData")?,
            data_root: keys.path("DataRootFolder")?,
            service_account: keys.text("ServiceAccount")?,
            namespace: keys.text("Namespace")?,
            tsocks: keys.flag("Tsocks")?,
            tsocks_path: keys.path("TsocksPath")?,
            tsocks_login_node: keys.text("TsocksLoginNode")?,
            tls: keys.tls("TLS")?,
            sidecar_tls: keys.tls("SidecarTLS")?,
            sidecar_token_file: keys.path("SidecarTokenFile")?,
            vk_config: variable(VK_CONFIG_PATH).map(PathBuf::from),
            shared_fs: match variable(SHARED_FS) {
                Some(value) => truth(&value).ok_or_else(|| wrong(SHARED_FS, "write true or false"))?,
                None => false,
            },
            kubeconfig: variable(CUSTOM_KUBECONF).map(PathBuf::from),
        })
    }

    /// Where the data folder is; it has to be said.
    pub fn data_root(&self) -> Result<&Path, ConfigError> {
        let missing =
            || wrong("DataRootFolder", "must be set: the folder where what must survive a restart is kept");
        self.data_root.as_deref().ok_or_else(missing)
    }
}

/// The node of that name in a `vk-cfg.json`: `{"name": {"cpu": "8", "memory": "32Gi", "pods": "20"}}`.
pub fn read_size(path: &Path, node: &str) -> Result<Capacity, ConfigError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    size(&text, node).map_err(|what| ConfigError::Syntax { path: path.to_owned(), what })
}

fn size(text: &str, node: &str) -> Result<Capacity, String> {
    let nodes: BTreeMap<String, BTreeMap<String, Value>> = serde_json::from_str(text).map_err(|error| {
        format!("{error}: write {{\"{node}\": {{\"cpu\": \"8\", \"memory\": \"32Gi\"}}}}")
    })?;
    let named: Vec<&str> = nodes.keys().map(String::as_str).collect();
    let found = nodes.get(node).ok_or_else(|| {
        format!(
            "no node {node:?} in it, only {}: the name must be that of the virtual node",
            named.join(", ")
        )
    })?;
    let amount = |(name, value): (&String, &Value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let amount: Quantity =
            text.parse().map_err(|_| format!("{node}.{name}: {text:?} is not a quantity"))?;
        Ok((name.clone(), amount))
    };
    found.iter().map(amount).collect()
}

fn wrong(key: &str, what: &str) -> ConfigError {
    ConfigError::Value { key: key.to_owned(), what: what.to_owned() }
}

fn truth(text: &str) -> Option<bool> {
    match text {
        "true" | "True" | "TRUE" => Some(true),
        "false" | "False" | "FALSE" => Some(false),
        _ => None,
    }
}

struct Keys(Map<String, Value>);

impl Keys {
    fn text(&self, key: &str) -> Result<String, ConfigError> {
        match self.0.get(key) {
            None | Some(Value::Null) => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(_) => Err(wrong(key, "must be text: put it into quotation marks")),
        }
    }

    fn path(&self, key: &str) -> Result<Option<PathBuf>, ConfigError> {
        Ok(Some(self.text(key)?).filter(|path| !path.is_empty()).map(PathBuf::from))
    }

    fn flag(&self, key: &str) -> Result<bool, ConfigError> {
        match self.0.get(key) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(value)) => Ok(*value),
            Some(Value::String(text)) if truth(text).is_some() => Ok(truth(text) == Some(true)),
            Some(_) => Err(wrong(key, "must be true or false")),
        }
    }

    fn port(&self, key: &str, default: u16) -> Result<u16, ConfigError> {
        let given = match self.0.get(key) {
            None | Some(Value::Null) => return Ok(default),
            Some(Value::String(text)) => text.parse().ok(),
            Some(other) => other.as_u64().and_then(|port| u16::try_from(port).ok()),
        };
        given.filter(|port| *port > 0).ok_or_else(|| wrong(key, "must be a port: a number from 1 to 65535"))
    }

    fn url(&self, key: &str) -> Result<String, ConfigError> {
        let text = self.text(key)?;
        let text = text.trim_end_matches('/');
        let Some((scheme, host)) = text.split_once("://") else {
            return if text.is_empty() {
                Ok(String::new())
            } else {
                Err(wrong(key, "must begin with http:// or https://"))
            };
        };
        if !matches!(scheme, "http" | "https") {
            return Err(wrong(key, &format!("{scheme}:// is not supported: http:// and https:// are")));
        }
        let host_end = host.rfind(']').map_or(0, |at| at + 1);
        if host.is_empty() || host.contains(['/', '?', '#', '@', ' ']) {
            return Err(wrong(key, "must be a scheme and a host only, such as http://localhost"));
        }
        if host[host_end..].contains(':') {
            return Err(wrong(key, "must have no port: it has a key of its own"));
        }
        Ok(text.to_owned())
    }

    fn tls(&self, key: &str) -> Result<TlsFiles, ConfigError> {
        let fields = match self.0.get(key) {
            None | Some(Value::Null) => return Ok(TlsFiles::default()),
            Some(Value::Object(fields)) => fields.clone(),
            Some(_) => return Err(wrong(key, "must have keys CACertFile, CertFile, KeyFile")),
        };
        if let Some(unknown) =
            fields.keys().find(|name| !["CACertFile", "CertFile", "KeyFile"].contains(&name.as_str()))
        {
            return Err(wrong(
                &format!("{key}.{unknown}"),
                "unknown key: known are CACertFile, CertFile, KeyFile",
            ));
        }
        let inner = Keys(fields);
        let files = TlsFiles {
            ca: inner.path("CACertFile")?,
            certificate: inner.path("CertFile")?,
            key: inner.path("KeyFile")?,
        };
        if files.certificate.is_some() != files.key.is_some() {
            return Err(wrong(key, "CertFile and KeyFile go together"));
        }
        Ok(files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, env: &[(&str, &str)]) -> Result<Config, String> {
        let keys: Option<Map<String, Value>> = serde_saphyr::from_str(text).unwrap();
        let env: BTreeMap<&str, &str> = env.iter().copied().collect();
        Config::read(keys.unwrap_or_default(), |name| env.get(name).map(|value| (*value).to_owned()))
            .map_err(|error| error.to_string())
    }

    /// Both tables of the document, row by row.
    #[test]
    fn every_key_and_variable_counts() {
        let text = "
InterlinkURL: http://api
SidecarURL: \"http://plugin\"
InterlinkPort: \"3001\"
SidecarPort: 4001
SbatchPath: /usr/bin/sbatch
ScancelPath: /usr/bin/scancel
VKTokenFile: /token
CommandPrefix: \"module load x\"
ExportPodData: true
DataRootFolder: /data/
ServiceAccount: interlink
Namespace: vk
Tsocks: false
TsocksPath: /lib/libtsocks.so
TsocksLoginNode: login0
";
        let file = read(text, &[]).unwrap();
        assert_eq!((file.interlink_url.as_str(), file.interlink_port), ("http://api", 3001));
        assert_eq!((file.sidecar_url.as_str(), file.sidecar_port), ("http://plugin", 4001));
        assert_eq!(file.sbatch.clone().unwrap(), Path::new("/usr/bin/sbatch"));
        assert_eq!(file.scancel.clone().unwrap(), Path::new("/usr/bin/scancel"));
        assert_eq!(file.token_file.clone().unwrap(), Path::new("/token"));
        assert_eq!(file.command_prefix, "module load x");
        assert!(file.export_pod_data && !file.tsocks && !file.shared_fs);
        assert_eq!(file.data_root().unwrap(), Path::new("/data/"));
        assert_eq!((file.service_account.as_str(), file.namespace.as_str()), ("interlink", "vk"));
        assert_eq!(file.tsocks_path.clone().unwrap(), Path::new("/lib/libtsocks.so"));
        assert_eq!(file.tsocks_login_node, "login0");
        let env = [
            ("VK_CONFIG_PATH", "/vk-cfg.json"),
            ("INTERLINKURL", "https://other"),
            ("INTERLINKPORT", "3100"),
            ("SIDECARURL", "http://side"),
            ("SIDECARPORT", "4100"),
            ("SBATCHPATH", "/s"),
            ("SCANCELPATH", "/c"),
            ("VKTOKENFILE", "/t"),
            ("SHARED_FS", "true"),
            ("CUSTOMKUBECONF", "/k"),
            ("TSOCKS", "true"),
            ("TSOCKSPATH", "/l"),
        ];
        let over = read(text, &env).unwrap();
        assert_eq!((over.interlink_url.as_str(), over.interlink_port), ("https://other", 3100));
        assert_eq!((over.sidecar_url.as_str(), over.sidecar_port), ("http://side", 4100));
        let paths = [
            &over.vk_config,
            &over.sbatch,
            &over.scancel,
            &over.token_file,
            &over.kubeconfig,
            &over.tsocks_path,
        ];
        let paths: Vec<_> = paths.iter().map(|path| path.as_deref().unwrap().to_str().unwrap()).collect();
        assert_eq!(paths, ["/vk-cfg.json", "/s", "/c", "/t", "/k", "/l"]);
        assert!(over.tsocks && over.shared_fs);
    }

    #[test]
    fn the_file_is_found_by_its_variable() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.yaml");
        std::fs::write(&path, "Namespace: here\n").unwrap();
        let env = |name: &str| (name == CONFIG_PATH).then(|| path.display().to_string());
        assert_eq!(Config::load(None, env).unwrap().namespace, "here");
        let missing = Config::load(Some(Path::new("/nowhere")), |_| None).unwrap_err();
        assert!(missing.to_string().contains("/nowhere"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, said) in [
            ("InterlinkUrl: http://x", "InterlinkUrl: unknown key: write InterlinkURL"),
            ("Colour: red", "Colour: unknown key: known are InterlinkURL"),
            ("InterlinkURL: http://x:3000", "InterlinkURL: must have no port"),
            ("SidecarURL: unix:///x", "SidecarURL: unix:// is not supported"),
            ("SidecarURL: localhost", "must begin with http://"),
            ("SidecarPort: 70000", "SidecarPort: must be a port"),
            ("ExportPodData: often", "ExportPodData: must be true or false"),
            ("TLS: {CertFile: x}", "TLS: CertFile and KeyFile go together"),
            ("TLS: {Cert: x}", "TLS.Cert: unknown key"),
        ] {
            let error = read(text, &[]).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
        assert!(read("", &[("SHARED_FS", "perhaps")]).unwrap_err().contains("SHARED_FS"));
        assert_eq!(read("InterlinkURL: http://[::1]/", &[]).unwrap().interlink_url, "http://[::1]");
    }

    #[test]
    fn the_size_of_a_node_is_found_by_its_name() {
        let text = r#"{"vk": {"cpu": "8", "memory": "32Gi", "pods": 20, "nvidia.com/gpu": "2"}}"#;
        let found = size(text, "vk").unwrap();
        assert_eq!(found["pods"].value(), 20);
        assert_eq!(found["nvidia.com/gpu"].value(), 2);
        assert!(size(text, "other").unwrap_err().contains("no node \"other\" in it, only vk"));
        assert!(size(r#"{"vk": {"cpu": "many"}}"#, "vk").unwrap_err().contains("vk.cpu"));
    }
}
