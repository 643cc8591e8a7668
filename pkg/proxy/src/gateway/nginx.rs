//! Sites as the text of an nginx configuration.

use super::{Backend, Match, PathRule, Site, Sites};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

/// Who cannot be reached is the same as who is not there, to whoever asks. What a service itself says stays as it is.
const NOBODY: &str = "the service has nobody who answers";

/// Where a secret's certificate and key are, by its namespace and name.
pub type CertificateFiles<'a> = dyn Fn(&(String, String)) -> Option<(String, String)> + 'a;

/// Where nginx listens.
#[derive(Clone, Copy, Debug)]
pub struct Listen {
    /// The port without TLS.
    pub http: u16,
    /// The port with TLS.
    pub https: u16,
    /// Whether at IPv6 addresses too.
    pub ipv6: bool,
}

impl Listen {
    /// The lines of a server that say so.
    fn lines(self, port: u16, rest: &str) -> String {
        let ipv6 = if self.ipv6 { format!("listen [::]:{port}{rest};\n") } else { String::new() };
        format!("listen {port}{rest};\n{ipv6}")
    }
}

/// The whole configuration. `dir` is where nginx keeps everything; `certificate` says where a secret's files are, if
/// it has usable ones.
pub fn render(sites: &Sites, dir: &Path, listen: Listen, certificate: &CertificateFiles<'_>) -> String {
    let mut text = preamble(dir);
    text += &upstreams(sites);
    let mut any_secured = false;
    for (host, site) in sites.hosts.iter().filter(|(host, _)| !host.is_empty()) {
        let files = site.tls.as_ref().and_then(certificate);
        any_secured |= files.is_some();
        text += &server(host, "", site, listen, files);
    }
    let nameless = sites.hosts.get("").cloned().unwrap_or_default();
    let files = nameless.tls.as_ref().and_then(certificate);
    if any_secured && files.is_none() {
        text += &stranger(listen);
    }
    text += &server("_", " default_server", &nameless, listen, files);
    text += "}\n";
    text
}

/// The endpoints of headless services. One that cannot be reached is left out for a while, and another is asked.
fn upstreams(sites: &Sites) -> String {
    let served: BTreeMap<&str, &BTreeSet<SocketAddr>> = sites
        .backends()
        .filter_map(|backend| match backend {
            Backend::Among(name, places) if !places.is_empty() => Some((name.as_str(), places)),
            _ => None,
        })
        .collect();
    let mut text = String::new();
    for (name, places) in served {
        let servers: String = places.iter().map(|place| format!(" server {place};")).collect();
        let _ = writeln!(text, "upstream {name} {{{servers} }}");
    }
    text
}

/// Who asks with TLS for a host that has no certificate must not be shown another host's, nor its pages.
fn stranger(listen: Listen) -> String {
    let listens = listen.lines(listen.https, " ssl default_server");
    format!("server {{\nserver_name _;\n{listens}ssl_reject_handshake on;\nreturn 421;\n}}\n")
}

/// Where nginx would put what does not fit into memory. It makes all of these folders whether it needs them or not, and not
/// in ours unless it is told.
pub fn temporary(dir: &Path) -> String {
    let folders = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    folders.map(|what| format!("{what}_temp_path \"{}/tmp/{what}\";\n", dir.display())).concat()
}

fn preamble(dir: &Path) -> String {
    let (temporary, dir) = (temporary(dir), dir.display());
    // A bucket holds the longest name, which is of 253 characters, or nginx takes nobody's. Nothing that passes is put on
    // disk: bodies flow at the pace of whoever is slower, and workers may not write to our folder.
    format!(
        "# Written by kubeproxy from DNS objects and ingresses; changes are overwritten.\n\
         user www-data;\nworker_processes auto;\npid \"{dir}/nginx.pid\";\nerror_log \"{dir}/error.log\" warn;\n\
         events {{ worker_connections 1024; }}\n\
         http {{\n\
         access_log off;\nserver_tokens off;\nserver_names_hash_bucket_size 512;\nserver_names_hash_max_size 8192;\n\
         client_max_body_size 0;\nproxy_http_version 1.1;\nproxy_request_buffering off;\nproxy_max_temp_file_size 0;\n\
         {temporary}\
         map $http_upgrade $connection_upgrade {{ default upgrade; '' ''; }}\n\
         proxy_set_header Host $http_host;\nproxy_set_header X-Real-IP $remote_addr;\n\
         proxy_set_header X-Forwarded-For $remote_addr;\nproxy_set_header X-Forwarded-Host $http_host;\n\
         proxy_set_header X-Forwarded-Proto $scheme;\nproxy_set_header Upgrade $http_upgrade;\n\
         proxy_set_header Connection $connection_upgrade;\nproxy_connect_timeout 5s;\n"
    )
}

fn server(name: &str, default: &str, site: &Site, listen: Listen, files: Option<(String, String)>) -> String {
    let listens = listen.lines(listen.http, default);
    let mut text = format!(
        "server {{\nserver_name {};\n{listens}error_page 502 = @nobody;\nlocation @nobody {{ {} }}\n",
        server_name(name),
        unavailable(NOBODY)
    );
    if let Some((certificate, key)) = files {
        let (certificate, key) = (quoted(&certificate), quoted(&key));
        text += &listen.lines(listen.https, &format!(" ssl{default}"));
        let _ = writeln!(text, "ssl_certificate {certificate};\nssl_certificate_key {key};");
    }
    for rule in &site.paths {
        text += &locations(rule, site.has_exact(&rule.path));
    }
    if !site.paths.iter().any(|rule| rule.path == "/" && rule.matching != Match::Exact) {
        let rest = match &site.default {
            Some((backend, _)) => action(backend, ""),
            None => "return 404 \"default backend - 404\\n\";".to_owned(),
        };
        let _ = writeln!(text, "location / {{ {rest} }}");
    }
    text += "}\n";
    text
}

/// `*.example.com` is one name more and not several, which only an expression can say.
fn server_name(host: &str) -> String {
    match host.strip_prefix("*.") {
        Some(domain) => format!("\"~^[^.]+\\.{}$\"", domain.replace('.', "\\.")),
        None => quoted(host),
    }
}

/// `elsewhere`: another rule has the path itself, and this one what is below.
fn locations(rule: &PathRule, elsewhere: bool) -> String {
    let root = if rule.matching == Match::Stripped && rule.path != "/" { "/" } else { "" };
    let to = action(&rule.backend, root);
    let location = |how: &str, path: &str| format!("location {how}{} {{ {to} }}\n", quoted(path));
    // `/cart` fits `/cart` and `/cart/x`, but not `/cartoon`.
    let below = format!("{}/", rule.path.trim_end_matches('/'));
    match rule.matching {
        Match::Exact => location("= ", &rule.path),
        _ if elsewhere || below == rule.path => location("", &below),
        _ => location("= ", &rule.path) + &location("", &below),
    }
}

fn action(backend: &Backend, root: &str) -> String {
    match backend {
        Backend::At(address) => format!("proxy_pass http://{address}{root};"),
        Backend::Among(_, places) if places.is_empty() => unavailable(NOBODY),
        Backend::Among(name, _) => format!("proxy_pass http://{name}{root};"),
        Backend::Missing(_, message) => unavailable(message),
    }
}

fn unavailable(message: &str) -> String {
    let plain: String =
        message.chars().filter(|c| !matches!(c, '"' | '\\' | '$') && !c.is_control()).collect();
    format!("default_type text/plain; return 503 \"{plain}\\n\";")
}

/// A word of the configuration, whatever it contains.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::Owner;

    fn rule(path: &str, matching: Match) -> PathRule {
        PathRule::new(path, matching, Backend::At("10.96.0.5:80".parse().unwrap()), &Owner::default())
            .unwrap()
    }

    #[test]
    fn paths_match_whole_segments() {
        let check = |path: &str, matching: Match, elsewhere: bool, expected: &str| {
            let found = locations(&rule(path, matching), elsewhere);
            assert_eq!(found, expected, "{path} {matching:?} {elsewhere}");
        };
        let to = "{ proxy_pass http://10.96.0.5:80; }";
        let stripped = "{ proxy_pass http://10.96.0.5:80/; }";
        let both = format!("location = \"/a\" {to}\nlocation \"/a/\" {to}\n");
        check("/a", Match::Exact, true, &format!("location = \"/a\" {to}\n"));
        check("/a", Match::Prefix, false, &both);
        check("/a/", Match::Prefix, false, &both);
        check("/a", Match::Prefix, true, &format!("location \"/a/\" {to}\n"));
        check("/a", Match::Stripped, false, &both.replace(to, stripped));
        check("/", Match::Stripped, false, &format!("location \"/\" {to}\n"));
        check("/\"; x", Match::Exact, false, &format!("location = \"/\\\"; x\" {to}\n"));
    }

    fn nginx_takes(sites: &Sites, dir: &Path, certificate: &CertificateFiles<'_>) -> String {
        std::fs::create_dir_all(dir.join("tmp")).unwrap();
        let text = render(sites, dir, Listen { http: 18081, https: 18443, ipv6: true }, certificate);
        let path = dir.join("nginx.conf");
        std::fs::write(&path, &text).unwrap();
        let output = std::process::Command::new("nginx").arg("-t").arg("-c").arg(&path).output().unwrap();
        assert!(output.status.success(), "{}\n{text}", String::from_utf8_lossy(&output.stderr));
        text
    }

    #[test]
    fn nginx_takes_what_is_rendered() {
        let dir = tempfile::tempdir().unwrap();
        let mut sites = Sites::default();
        let at = || Backend::At("10.96.0.5:80".parse().unwrap());
        let missing = || Backend::Missing("ServiceNotFound", "service \"pay\" not found".into());
        for host in ["shop.example.com", "*.example.org", ""] {
            for path in ["/", "/a b", "/a%20b/", "/a/", "/a", "/long/path"] {
                for matching in [Match::Exact, Match::Stripped, Match::Prefix] {
                    sites.add(host, path, matching, at(), &Owner::default());
                }
            }
            sites.add(host, "/pay", Match::Stripped, missing(), &Owner::default());
            for (path, places) in [("/db", vec!["10.244.1.7:5432", "[fd00::7]:5432"]), ("/idle", vec![])] {
                let places = places.into_iter().map(|place| place.parse().unwrap()).collect();
                let among = Backend::Among(format!("ns_a-b.c{}_80", path.replace('/', "-")), places);
                sites.add(host, path, Match::Stripped, among, &Owner::default());
            }
        }
        // The longest names that there can be.
        let label = |length: usize| "x".repeat(length);
        let long = [label(63), label(63), label(63), label(61)].join(".");
        let below = ["*".to_owned(), label(63), label(63), label(63), label(59)].join(".");
        for host in [long, below] {
            assert_eq!(host.len(), 253);
            sites.add(&host, "/", Match::Prefix, at(), &Owner::default());
        }
        let text = nginx_takes(&sites, dir.path(), &|_| None);
        let upstream = "upstream ns_a-b.c-db_80 { server 10.244.1.7:5432; server [fd00::7]:5432; }\n";
        assert_eq!(text.matches(upstream).count(), 1, "{text}");
    }

    #[test]
    fn what_fits_no_path_goes_where_its_own_host_says() {
        let listen = Listen { http: 80, https: 443, ipv6: false };
        let at = |address: &str| Some((Backend::At(address.parse().unwrap()), Owner::default()));
        let site = |default| server("h", "", &Site { default, ..Site::default() }, listen, None);
        let led = site(at("10.96.0.5:80"));
        assert!(led.contains("location / { proxy_pass http://10.96.0.5:80; }"), "{led}");
        let mut sites = Sites::default();
        sites.hosts.insert(String::new(), Site { default: at("10.96.0.5:80"), ..Site::default() });
        sites.hosts.insert("h".into(), Site::default());
        let text = render(&sites, Path::new("/x"), listen, &|_| None);
        assert!(text.contains(&site(None)), "a host takes nothing from the one without a name: {text}");
        assert_eq!(text.matches("location / { proxy_pass http://10.96.0.5:80; }").count(), 1, "{text}");
    }

    #[test]
    fn with_tls_nobody_is_taken_for_another_host() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| dir.path().join(name).display().to_string();
        let pair = pki::Authority::create("a", jiff::Timestamp::now()).unwrap();
        std::fs::write(file("crt"), pair.pem()).unwrap();
        std::fs::write(file("key"), pair.key_pem()).unwrap();
        let secured = |host: &str| {
            let mut sites = Sites::default();
            sites.hosts.insert("plain.example".into(), Site::default());
            let tls = Some(("ns".to_owned(), "secret".to_owned()));
            sites.hosts.insert(host.into(), Site { tls, ..Site::default() });
            nginx_takes(&sites, dir.path(), &|_| Some((file("crt"), file("key"))))
        };
        let named = secured("safe.example");
        assert!(named.contains("listen [::]:18443 ssl default_server;\nssl_reject_handshake on;"), "{named}");
        let nameless = secured("");
        assert!(nameless.contains("listen 18443 ssl default_server;\n"), "{nameless}");
        assert!(!nameless.contains("ssl_reject_handshake"), "{nameless}");
    }
}
