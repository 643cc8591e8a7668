//! An nginx configuration read back, by nginx's own grammar and nobody's code that wrote it.

use proxy::gateway::{Backend, Match, PathRule, Site, Sites};
use std::collections::{BTreeMap, BTreeSet};

/// Everything that a configuration of ours may say. Whatever else stood there would have come out of an object.
const KNOWN: [&str; 36] = [
    "user",
    "worker_processes",
    "pid",
    "error_log",
    "events",
    "worker_connections",
    "http",
    "access_log",
    "server_tokens",
    "server_names_hash_bucket_size",
    "server_names_hash_max_size",
    "client_max_body_size",
    "proxy_http_version",
    "proxy_request_buffering",
    "proxy_max_temp_file_size",
    "client_body_temp_path",
    "proxy_temp_path",
    "fastcgi_temp_path",
    "uwsgi_temp_path",
    "scgi_temp_path",
    "map",
    "proxy_set_header",
    "proxy_connect_timeout",
    "upstream",
    "server",
    "server_name",
    "listen",
    "error_page",
    "location",
    "default_type",
    "return",
    "ssl_certificate",
    "ssl_certificate_key",
    "ssl_reject_handshake",
    "proxy_pass",
    "default",
];

/// A directive: its words, as nginx takes them, and what stands in its braces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directive {
    pub words: Vec<String>,
    pub block: Option<Vec<Directive>>,
}

impl Directive {
    fn name(&self) -> &str {
        &self.words[0]
    }

    fn inner(&self) -> &[Directive] {
        self.block.as_deref().unwrap_or_default()
    }
}

/// Reads a configuration.
pub fn read(text: &str) -> Result<Vec<Directive>, String> {
    let mut tokens = tokens(text)?.into_iter();
    let all = block(&mut tokens, false)?;
    Ok(all)
}

#[derive(Debug, PartialEq)]
enum Token {
    Word(String),
    End,
    Open,
    Close,
}

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            ' ' | '\t' | '\r' | '\n' => {}
            ';' => tokens.push(Token::End),
            '{' => tokens.push(Token::Open),
            '}' => tokens.push(Token::Close),
            '#' => while rest.next_if(|c| *c != '\n').is_some() {},
            '"' | '\'' => {
                let mut word = String::new();
                loop {
                    match rest.next().ok_or("a quote does not end")? {
                        '\\' => unescape(rest.next().ok_or("a quote does not end")?, &mut word),
                        end if end == c => break,
                        inner => word.push(inner),
                    }
                }
                match rest.peek() {
                    None | Some(' ' | '\t' | '\r' | '\n' | ';' | '{' | ')') => {}
                    Some(odd) => return Err(format!("{odd:?} after a quote")),
                }
                tokens.push(Token::Word(word));
            }
            first => {
                let mut word = String::from(first);
                while let Some(inner) = rest.next_if(|c| !matches!(c, ' ' | '\t' | '\r' | '\n' | ';' | '{')) {
                    word.push(inner);
                }
                tokens.push(Token::Word(word));
            }
        }
    }
    Ok(tokens)
}

/// Of a backslash and what follows, nginx makes one character for few, and leaves both for others.
fn unescape(c: char, word: &mut String) {
    match c {
        '"' | '\'' | '\\' => word.push(c),
        't' => word.push('\t'),
        'r' => word.push('\r'),
        'n' => word.push('\n'),
        other => word.extend(['\\', other]),
    }
}

fn block(tokens: &mut impl Iterator<Item = Token>, is_inner: bool) -> Result<Vec<Directive>, String> {
    let mut found = Vec::new();
    let mut words: Vec<String> = Vec::new();
    loop {
        let Some(token) = tokens.next() else {
            return if is_inner || !words.is_empty() { Err("it ends too early".into()) } else { Ok(found) };
        };
        match token {
            Token::Word(word) => words.push(word),
            Token::End | Token::Open if words.is_empty() => return Err(format!("{token:?} after nothing")),
            Token::End => found.push(Directive { words: std::mem::take(&mut words), block: None }),
            Token::Open => {
                let words = std::mem::take(&mut words);
                found.push(Directive { words, block: Some(block(tokens, true)?) });
            }
            Token::Close if is_inner && words.is_empty() => return Ok(found),
            Token::Close => return Err("a brace closes nothing".into()),
        }
    }
}

/// Where requests of a path go.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// To these addresses; `strips`: without the path.
    To(BTreeSet<String>, bool),
    /// Nowhere: a page with this code.
    Page(u16),
}

type Locations = BTreeMap<(bool, String), Target>;

/// Complains if the text says anything else than the sites do.
pub fn says_the_same(sites: &Sites, text: &str) -> Result<(), String> {
    let all = read(text)?;
    each(&all, &mut |directive| match KNOWN.contains(&directive.name()) || directive.name().is_empty() {
        true => Ok(()),
        false => Err(format!("nobody should say {:?}", directive.words)),
    })?;
    let http = all.iter().find(|directive| directive.name() == "http").ok_or("no http")?;
    let mut upstreams: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for upstream in http.inner().iter().filter(|directive| directive.name() == "upstream") {
        let servers = upstream.inner().iter().map(|server| server.words[1].clone()).collect();
        if upstreams.insert(&upstream.words[1], servers).is_some() {
            return Err(format!("{:?} is there twice", upstream.words));
        }
    }
    let mut said: BTreeMap<String, Locations> = BTreeMap::new();
    for server in http.inner().iter().filter(|directive| directive.name() == "server") {
        // Whoever comes with TLS for nobody.
        if server.inner().iter().any(|directive| directive.name() == "ssl_reject_handshake") {
            continue;
        }
        let name =
            server.inner().iter().find(|directive| directive.name() == "server_name").ok_or("no name")?;
        if said.insert(name.words[1].clone(), locations(server, &upstreams)?).is_some() {
            return Err(format!("{:?} is there twice", name.words));
        }
    }
    let meant: BTreeMap<String, Locations> =
        sites.hosts.iter().map(|(host, site)| (server_name(host), meant(site))).collect();
    let nameless = |sites: &BTreeMap<String, Locations>| sites.get("_").cloned();
    let default = nameless(&meant).unwrap_or_else(meant_of_nobody);
    let meant: BTreeMap<String, Locations> =
        meant.into_iter().filter(|(name, _)| name != "_").chain([("_".to_owned(), default)]).collect();
    if said != meant {
        return Err(format!("said: {said:#?}\nmeant: {meant:#?}"));
    }
    Ok(())
}

fn each(all: &[Directive], check: &mut dyn FnMut(&Directive) -> Result<(), String>) -> Result<(), String> {
    for directive in all {
        check(directive)?;
        each(directive.inner(), check)?;
    }
    Ok(())
}

/// How nginx is told a host; hosts are names, so that nothing else in them means anything.
fn server_name(host: &str) -> String {
    match (host, host.strip_prefix("*.")) {
        ("", _) => "_".to_owned(),
        (_, Some(domain)) => format!(r"~^[^.]+\.{}$", domain.replace('.', r"\.")),
        (host, None) => host.to_owned(),
    }
}

fn locations(server: &Directive, upstreams: &BTreeMap<&str, BTreeSet<String>>) -> Result<Locations, String> {
    let mut found = Locations::new();
    for location in server.inner().iter().filter(|directive| directive.name() == "location") {
        let (exact, path) = match &location.words[1..] {
            [path] if path == "@nobody" => continue,
            [path] => (false, path),
            [how, path] if how == "=" => (true, path),
            odd => return Err(format!("location {odd:?}")),
        };
        if found.insert((exact, path.clone()), target(location, upstreams)?).is_some() {
            return Err(format!("{:?} is there twice", location.words));
        }
    }
    Ok(found)
}

fn target(location: &Directive, upstreams: &BTreeMap<&str, BTreeSet<String>>) -> Result<Target, String> {
    let passes: Vec<&Directive> = location.inner().iter().filter(|it| it.name() == "proxy_pass").collect();
    let pages: Vec<&Directive> = location.inner().iter().filter(|it| it.name() == "return").collect();
    match (passes.as_slice(), pages.as_slice()) {
        ([pass], []) => {
            let to = pass.words[1].strip_prefix("http://").ok_or("not http")?;
            let (place, strips) = to.strip_suffix('/').map_or((to, false), |place| (place, true));
            let places = upstreams.get(place).cloned().unwrap_or_else(|| [place.to_owned()].into());
            Ok(Target::To(places, strips))
        }
        ([], [page]) => Ok(Target::Page(page.words[1].parse().map_err(|_| "no code")?)),
        odd => Err(format!("{odd:?}")),
    }
}

fn meant_of_nobody() -> Locations {
    [((false, "/".to_owned()), Target::Page(404))].into()
}

/// What a host's paths mean: the path itself, and what is below it, unless it is meant exactly.
fn meant(site: &Site) -> Locations {
    let mut found = Locations::new();
    let is_taken =
        |path: &str| site.paths.iter().any(|rule| rule.matching == Match::Exact && rule.path == path);
    for rule in &site.paths {
        let to = target_of(&rule.backend, rule);
        let below = format!("{}/", rule.path.trim_end_matches('/'));
        if rule.matching == Match::Exact {
            found.insert((true, rule.path.clone()), to);
            continue;
        }
        if below != rule.path && !is_taken(&rule.path) {
            found.insert((true, rule.path.clone()), to.clone());
        }
        found.insert((false, below), to);
    }
    let rest = match &site.default {
        Some((Backend::At(address), _)) => Target::To([address.to_string()].into(), false),
        Some((Backend::Among(_, places), _)) if !places.is_empty() => {
            Target::To(places.iter().map(ToString::to_string).collect(), false)
        }
        Some(_) => Target::Page(503),
        None => Target::Page(404),
    };
    found.entry((false, "/".to_owned())).or_insert(rest);
    found
}

fn target_of(backend: &Backend, rule: &PathRule) -> Target {
    let strips = rule.matching == Match::Stripped && rule.path != "/";
    match backend {
        Backend::At(address) => Target::To([address.to_string()].into(), strips),
        Backend::Among(_, places) if !places.is_empty() => {
            Target::To(places.iter().map(ToString::to_string).collect(), strips)
        }
        _ => Target::Page(503),
    }
}
