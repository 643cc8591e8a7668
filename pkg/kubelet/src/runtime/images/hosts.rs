//! Where images come from: containerd's folders `certs.d/<host>/hosts.toml`, with mirrors, authorities and plain HTTP.
//!
//! ```toml
//! server = "https://registry.example.com"
//! [host."https://mirror.example.com"]
//!   capabilities = ["pull", "resolve"]
//!   ca = "/etc/certs/mirror.pem"
//!   skip_verify = false
//! ```
//!
//! Of TOML only what such files use is understood; anything else is an error that names the line.

use super::super::Error;
use std::path::{Path, PathBuf};

/// A place to ask for an image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Endpoint {
    /// Host and port.
    pub(super) host: String,
    /// Without TLS.
    pub(super) is_plain: bool,
    /// Authorities to trust besides the usual ones.
    pub(super) authorities: Vec<PathBuf>,
    /// Believes any certificate.
    pub(super) skips_verification: bool,
}

/// The places to ask for images of a registry, mirrors first.
pub(super) fn endpoints(config_dir: &Path, registry: &str) -> Result<Vec<Endpoint>, Error> {
    // A colon cannot be in every folder's name, so containerd takes this as well.
    let folders = [registry.to_owned(), registry.replacen(':', "_", 1) + "_", "_default".to_owned()];
    for folder in folders.iter().map(|name| config_dir.join(name)) {
        let path = folder.join("hosts.toml");
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                let wrong = |why| Error::Container(format!("{}: {why}", path.display()));
                return parse(&text, &folder, registry).map_err(wrong);
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::Container(format!("{}: {error}", path.display()))),
        }
    }
    Ok(vec![default_endpoint(registry)])
}

/// Registries of this machine are plain unless somebody says otherwise.
fn default_endpoint(registry: &str) -> Endpoint {
    let host = if registry == "docker.io" { "index.docker.io" } else { registry };
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let is_plain = name == "localhost" || name.starts_with("127.") || name == "[::1]";
    Endpoint { host: host.to_owned(), is_plain, ..Endpoint::default() }
}

fn parse(text: &str, folder: &Path, registry: &str) -> Result<Vec<Endpoint>, String> {
    let mut server = None;
    let mut endpoints: Vec<Endpoint> = Vec::new();
    let mut pulls = Vec::new();
    let mut is_in_host = false;
    let mut is_skipped = false;
    for (number, line) in text.lines().enumerate() {
        let line = uncommented(line).trim();
        let wrong = |why: &str| format!("line {}: {why}", number + 1);
        if line.is_empty() {
            continue;
        }
        if let Some(table) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            let url = table.trim().strip_prefix("host.").map(str::trim).and_then(unquote);
            // Tables below a host, such as its headers, are not for us.
            is_skipped = url.is_none();
            is_in_host = url.is_some();
            if let Some(url) = url {
                endpoints.push(endpoint(url).map_err(|why| wrong(&why))?);
                pulls.push(true);
            } else if !table.trim().starts_with("host.") {
                return Err(wrong(&format!("unknown table {table}")));
            }
            continue;
        }
        let (key, value) = line.split_once('=').ok_or_else(|| wrong("expected key = value"))?;
        let value = value.trim();
        match (key.trim(), endpoints.last_mut().filter(|_| is_in_host)) {
            _ if is_skipped => {}
            ("server", None) => {
                let url = unquote(value).ok_or_else(|| wrong("expected a quoted address"))?;
                server = Some(endpoint(url).map_err(|why| wrong(&why))?);
            }
            ("ca", last) => {
                let files = strings(value).ok_or_else(|| wrong("expected a file or a list of files"))?;
                let files = files.iter().map(|file| folder.join(file));
                match last {
                    Some(endpoint) => endpoint.authorities.extend(files),
                    None => {
                        server.get_or_insert_with(|| default_endpoint(registry)).authorities.extend(files)
                    }
                }
            }
            ("skip_verify", last) => {
                let skips = value == "true";
                match last {
                    Some(endpoint) => endpoint.skips_verification = skips,
                    None => {
                        server.get_or_insert_with(|| default_endpoint(registry)).skips_verification = skips
                    }
                }
            }
            ("capabilities", Some(_)) => {
                let what = strings(value).ok_or_else(|| wrong("expected a list"))?;
                if let Some(last) = pulls.last_mut() {
                    *last = what.iter().any(|capability| capability == "pull");
                }
            }
            ("override_path" | "client" | "dial_timeout", _) => {}
            (key, _) => return Err(wrong(&format!("{key} is not supported"))),
        }
    }
    let mirrors = endpoints.into_iter().zip(pulls).filter(|(_, pulls)| *pulls).map(|(endpoint, _)| endpoint);
    Ok(mirrors.chain([server.unwrap_or_else(|| default_endpoint(registry))]).collect())
}

fn endpoint(url: &str) -> Result<Endpoint, String> {
    let (is_plain, rest) = match url.split_once("://") {
        Some(("http", rest)) => (true, rest),
        Some(("https", rest)) => (false, rest),
        Some((scheme, _)) => return Err(format!("{scheme} is neither http nor https")),
        None => (default_endpoint(url).is_plain, url),
    };
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    if !matches!(path.trim_matches('/'), "" | "v2") {
        return Err(format!("{url}: a path is not supported"));
    }
    Ok(Endpoint { host: host.to_owned(), is_plain, ..Endpoint::default() })
}

fn uncommented(line: &str) -> &str {
    let mut is_quoted = false;
    for (at, character) in line.char_indices() {
        match character {
            '"' => is_quoted = !is_quoted,
            '#' if !is_quoted => return &line[..at],
            _ => {}
        }
    }
    line
}

fn unquote(text: &str) -> Option<&str> {
    let inside = |quote| text.strip_prefix(quote)?.strip_suffix(quote);
    inside('"').or_else(|| inside('\''))
}

fn strings(value: &str) -> Option<Vec<String>> {
    match value.strip_prefix('[').and_then(|value| value.strip_suffix(']')) {
        Some(list) => {
            let items = list.split(',').map(str::trim).filter(|item| !item.is_empty());
            items.map(|item| unquote(item).map(str::to_owned)).collect()
        }
        None => Some(vec![unquote(value)?.to_owned()]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<Vec<Endpoint>, String> {
        parse(text, Path::new("/certs.d/example.com"), "example.com")
    }

    #[test]
    fn mirrors_come_before_the_registry_itself() {
        let text = r#"
            server = "https://example.com" # itself
            [host."http://mirror:5000"]
              capabilities = ["pull", "resolve"]
            [host."https://other.example.com/v2"]
              ca = ["ca.pem", "/etc/other.pem"]
              skip_verify = true
              [host."https://other.example.com/v2".header]
                x-custom = "1"
            [host."https://push.example.com"]
              capabilities = ["push"]
        "#;
        let expected = vec![
            Endpoint { host: "mirror:5000".into(), is_plain: true, ..Endpoint::default() },
            Endpoint {
                host: "other.example.com".into(),
                authorities: vec!["/certs.d/example.com/ca.pem".into(), "/etc/other.pem".into()],
                skips_verification: true,
                ..Endpoint::default()
            },
            Endpoint { host: "example.com".into(), ..Endpoint::default() },
        ];
        assert_eq!(check(text), Ok(expected));
    }

    #[test]
    fn what_is_not_understood_is_named() {
        assert_eq!(check("server = \"ftp://x\""), Err("line 1: ftp is neither http nor https".into()));
        assert_eq!(check("\nspeed = 1"), Err("line 2: speed is not supported".into()));
        assert_eq!(check("[mirror]"), Err("line 1: unknown table mirror".into()));
    }

    #[test]
    fn without_a_file_registries_of_this_machine_are_plain() {
        let dir = tempfile::tempdir().expect("a folder");
        for (registry, host, is_plain) in [
            ("docker.io", "index.docker.io", false),
            ("127.0.0.1:5000", "127.0.0.1:5000", true),
            ("localhost:5000", "localhost:5000", true),
            ("quay.io", "quay.io", false),
        ] {
            let found = endpoints(dir.path(), registry).expect("no file");
            assert_eq!(found, [Endpoint { host: host.into(), is_plain, ..Endpoint::default() }]);
        }
        std::fs::create_dir(dir.path().join("quay.io")).expect("made");
        std::fs::write(dir.path().join("quay.io/hosts.toml"), "server = \"http://quay.io\"")
            .expect("written");
        assert!(endpoints(dir.path(), "quay.io").expect("a file")[0].is_plain);
    }
}
