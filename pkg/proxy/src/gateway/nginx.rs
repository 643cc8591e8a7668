//! Sites as the text of an nginx configuration.

use super::{Backend, Match, PathRule, Site, Sites};
use std::fmt::Write as _;
use std::path::Path;

/// The whole configuration. `dir` is where nginx keeps everything; `certificate` says where a secret's files are, if
/// it has usable ones.
pub fn render(
    sites: &Sites,
    dir: &Path,
    ports: (u16, u16),
    certificate: &dyn Fn(&(String, String)) -> Option<(String, String)>,
) -> String {
    let mut text = preamble(dir);
    for (host, site) in sites.hosts.iter().filter(|(host, _)| !host.is_empty()) {
        let files = site.tls.as_ref().and_then(certificate);
        text += &server(host, "", site, sites, ports, files);
    }
    let nameless = sites.hosts.get("").cloned().unwrap_or_default();
    text += &server("_", " default_server", &nameless, sites, ports, None);
    text += "}\n";
    text
}

fn preamble(dir: &Path) -> String {
    let dir = dir.display();
    format!(
        "# Written by kubeproxy from DNS objects and ingresses; changes are overwritten.\n\
         user www-data;\nworker_processes auto;\npid \"{dir}/nginx.pid\";\nerror_log \"{dir}/error.log\" warn;\n\
         events {{ worker_connections 1024; }}\n\
         http {{\n\
         access_log off;\nserver_tokens off;\nserver_names_hash_bucket_size 256;\nserver_names_hash_max_size 8192;\n\
         client_max_body_size 0;\nproxy_http_version 1.1;\n\
         client_body_temp_path \"{dir}/tmp/body\";\nproxy_temp_path \"{dir}/tmp/proxy\";\n\
         fastcgi_temp_path \"{dir}/tmp/fastcgi\";\nuwsgi_temp_path \"{dir}/tmp/uwsgi\";\nscgi_temp_path \"{dir}/tmp/scgi\";\n\
         map $http_upgrade $connection_upgrade {{ default upgrade; '' ''; }}\n\
         proxy_set_header Host $http_host;\nproxy_set_header X-Real-IP $remote_addr;\n\
         proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\nproxy_set_header X-Forwarded-Host $http_host;\n\
         proxy_set_header X-Forwarded-Proto $scheme;\nproxy_set_header Upgrade $http_upgrade;\n\
         proxy_set_header Connection $connection_upgrade;\nproxy_connect_timeout 5s;\n"
    )
}

fn server(
    name: &str,
    default: &str,
    site: &Site,
    sites: &Sites,
    (http, https): (u16, u16),
    files: Option<(String, String)>,
) -> String {
    let mut text = format!("server {{\nserver_name {};\nlisten {http}{default};\n", quoted(name));
    if let Some((certificate, key)) = files {
        let (certificate, key) = (quoted(&certificate), quoted(&key));
        let _ =
            writeln!(text, "listen {https} ssl;\nssl_certificate {certificate};\nssl_certificate_key {key};");
    }
    for rule in &site.paths {
        text += &locations(rule);
    }
    if !site.paths.iter().any(|rule| rule.path == "/" && rule.matching != Match::Exact) {
        let rest = match &sites.default {
            Some(backend) => action(backend, ""),
            None => "return 404 \"default backend - 404\\n\";".to_owned(),
        };
        let _ = writeln!(text, "location / {{ {rest} }}");
    }
    text += "}\n";
    text
}

fn locations(rule: &PathRule) -> String {
    let trimmed = rule.path.trim_end_matches('/');
    let root = if rule.matching == Match::Stripped { "/" } else { "" };
    let to = action(&rule.backend, root);
    if rule.matching == Match::Exact {
        return format!("location = {} {{ {to} }}\n", quoted(&rule.path));
    }
    if trimmed.is_empty() {
        return format!("location / {{ {} }}\n", action(&rule.backend, ""));
    }
    // `/cart` fits `/cart` and `/cart/x`, but not `/cartoon`.
    let (itself, below) = (quoted(trimmed), quoted(&format!("{trimmed}/")));
    format!("location = {itself} {{ {to} }}\nlocation {below} {{ {to} }}\n")
}

fn action(backend: &Backend, root: &str) -> String {
    match backend {
        Backend::At(address) => format!("proxy_pass http://{address}{root};"),
        Backend::Missing(_, message) => {
            let plain: String =
                message.chars().filter(|c| !matches!(c, '"' | '\\' | '$') && !c.is_control()).collect();
            format!("default_type text/plain; return 503 \"{plain}\\n\";")
        }
    }
}

/// A word of the configuration, whatever it contains.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(path: &str, matching: Match) -> PathRule {
        PathRule { path: path.into(), matching, backend: Backend::At("10.96.0.5:80".parse().unwrap()) }
    }

    #[test]
    fn paths_match_whole_segments() {
        let check = |path: &str, matching: Match, expected: &str| {
            assert_eq!(locations(&rule(path, matching)), expected, "{path} {matching:?}");
        };
        let to = "{ proxy_pass http://10.96.0.5:80; }";
        let stripped = "{ proxy_pass http://10.96.0.5:80/; }";
        check("/a", Match::Exact, &format!("location = \"/a\" {to}\n"));
        check("/a", Match::Prefix, &format!("location = \"/a\" {to}\nlocation \"/a/\" {to}\n"));
        check("/a/", Match::Prefix, &format!("location = \"/a\" {to}\nlocation \"/a/\" {to}\n"));
        check("/a", Match::Stripped, &format!("location = \"/a\" {stripped}\nlocation \"/a/\" {stripped}\n"));
        check("/", Match::Stripped, &format!("location / {to}\n"));
        check("/\"; x", Match::Exact, &format!("location = \"/\\\"; x\" {to}\n"));
    }

    #[test]
    fn nginx_takes_what_is_rendered() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("tmp")).unwrap();
        let mut sites = Sites { default: None, ..Sites::default() };
        let missing = Backend::Missing("ServiceNotFound", "service \"pay\" not found".into());
        let site = Site {
            paths: vec![
                rule("/", Match::Stripped),
                rule("/a b", Match::Prefix),
                PathRule { path: "/pay".into(), matching: Match::Stripped, backend: missing },
            ],
            tls: None,
        };
        sites.hosts.insert("shop.example.com".into(), site.clone());
        sites.hosts.insert("*.example.org".into(), site.clone());
        sites.hosts.insert(String::new(), site);
        let text =
            render(&sites, dir.path(), (0, 0), &|_| None).replace("listen 0", "listen 127.0.0.1:18081");
        let path = dir.path().join("nginx.conf");
        std::fs::write(&path, text).unwrap();
        let output = std::process::Command::new("nginx").arg("-t").arg("-c").arg(&path).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}
