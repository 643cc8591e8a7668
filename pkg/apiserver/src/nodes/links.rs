//! Pages that are reached through us: their links lead through us as well.

use std::ops::Range;

/// Attributes that hold an address, by tag.
const ADDRESSES: &[(&str, &[&str])] = &[
    ("a", &["href"]),
    ("applet", &["codebase"]),
    ("area", &["href"]),
    ("audio", &["src"]),
    ("base", &["href"]),
    ("blockquote", &["cite"]),
    ("body", &["background"]),
    ("button", &["formaction"]),
    ("command", &["icon"]),
    ("del", &["cite"]),
    ("embed", &["src"]),
    ("form", &["action"]),
    ("frame", &["longdesc", "src"]),
    ("head", &["profile"]),
    ("html", &["manifest"]),
    ("iframe", &["longdesc", "src"]),
    ("img", &["longdesc", "src", "usemap"]),
    ("input", &["src", "usemap", "formaction"]),
    ("ins", &["cite"]),
    ("link", &["href"]),
    ("object", &["classid", "codebase", "data", "usemap"]),
    ("q", &["cite"]),
    ("script", &["src"]),
    ("source", &["src"]),
    ("video", &["poster", "src"]),
];
/// What stands in these is not markup.
const RAW: [&str; 4] = ["script", "style", "textarea", "title"];

/// Where a page comes from, and how it is reached.
pub struct Links<'a> {
    /// The path before the page's own, such as `/api/v1/namespaces/a/pods/p/proxy`.
    pub prefix: &'a str,
    /// The hosts that mean the page's own: the one that was asked, and the one that answered.
    pub hosts: [&'a str; 2],
}

impl Links<'_> {
    /// An address as it is reached through us; `None` if it leads elsewhere, or through us already.
    pub fn lead(&self, address: &str) -> Option<String> {
        let after_scheme =
            address.strip_prefix("http:").or(address.strip_prefix("https:")).unwrap_or(address);
        let path = match after_scheme.strip_prefix("//") {
            Some(rest) => {
                let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
                let (host, path) = rest.split_at(end);
                self.hosts.contains(&host).then_some(path)?
            }
            None => address,
        };
        (path.starts_with('/') && !path.starts_with(self.prefix)).then(|| format!("{}{path}", self.prefix))
    }

    /// The page with links that lead through us.
    pub fn rewrite(&self, page: &str) -> String {
        let mut written = String::with_capacity(page.len());
        let mut copied = 0;
        for place in addresses(page) {
            if let Some(led) = self.lead(&page[place.clone()]) {
                written.push_str(&page[copied..place.start]);
                written.push_str(&led);
                copied = place.end;
            }
        }
        written.push_str(&page[copied..]);
        written
    }
}

/// Where addresses stand in a page.
fn addresses(page: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(open) = page[at..].find('<').map(|next| at + next) {
        let rest = &page[open + 1..];
        at = if rest.starts_with("!--") {
            page[open..].find("-->").map_or(page.len(), |end| open + end + 3)
        } else if rest.starts_with(|first: char| first.is_ascii_alphabetic()) {
            start_tag(page, open + 1, &mut found)
        } else {
            open + 1
        };
    }
    found
}

/// Reads a tag from its name on; where its content begins, or ends if that is no markup.
fn start_tag(page: &str, start: usize, found: &mut Vec<Range<usize>>) -> usize {
    let is_end = |c: char| c.is_whitespace() || c == '>' || c == '/';
    let name_end = page[start..].find(is_end).map_or(page.len(), |end| start + end);
    let name = page[start..name_end].to_ascii_lowercase();
    let wanted = ADDRESSES.iter().find(|(tag, _)| *tag == name).map_or(&[][..], |(_, attributes)| attributes);
    let mut at = name_end;
    loop {
        at += page[at..].len() - page[at..].trim_start_matches(|c: char| c.is_whitespace() || c == '/').len();
        if at >= page.len() || page[at..].starts_with('>') {
            break;
        }
        let key_end = page[at..].find(|c: char| is_end(c) || c == '=').map_or(page.len(), |end| at + end);
        let key = page[at..key_end].to_ascii_lowercase();
        // A name that begins with its own end, as `=` does, is one letter long.
        at = key_end.max(at + 1);
        let after = page[at.min(page.len())..].trim_start();
        let Some(value) = after.strip_prefix('=').filter(|_| !key.is_empty()).map(str::trim_start) else {
            continue;
        };
        let begins = page.len() - value.len();
        let (begins, ends, next) = match value.chars().next() {
            Some(quote @ ('"' | '\'')) => {
                let ends = page[begins + 1..].find(quote).map_or(page.len(), |end| begins + 1 + end);
                (begins + 1, ends, (ends + 1).min(page.len()))
            }
            _ => {
                let ends = value
                    .find(|c: char| c.is_whitespace() || c == '>')
                    .map_or(page.len(), |end| begins + end);
                (begins, ends, ends)
            }
        };
        if wanted.contains(&key.as_str()) {
            found.push(begins..ends);
        }
        at = next;
    }
    let content = (at + 1).min(page.len());
    if !RAW.contains(&name.as_str()) {
        return content;
    }
    let close = format!("</{name}");
    let is_close = |(at, _): &(usize, char)| {
        page[content + at..].get(..close.len()).is_some_and(|text| text.eq_ignore_ascii_case(&close))
    };
    page[content..].char_indices().find(is_close).map_or(page.len(), |(end, _)| content + end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINKS: Links<'_> = Links { prefix: "/api/proxy", hosts: ["localhost:8001", "10.0.0.1:80"] };

    #[test]
    fn links_to_the_page_itself_lead_through_us() {
        for (page, expected) in [
            (r#"<a href="/rewriteme">test</a>"#, r#"<a href="/api/proxy/rewriteme">test</a>"#),
            ("<A class=x HREF=/y>", "<A class=x HREF=/api/proxy/y>"),
            ("<img src='/i.png' usemap='#m'/>", "<img src='/api/proxy/i.png' usemap='#m'/>"),
            (r#"<a href="http://10.0.0.1:80/z?q=1">"#, r#"<a href="/api/proxy/z?q=1">"#),
            (r#"<a href="//localhost:8001/z">"#, r#"<a href="/api/proxy/z">"#),
            (
                r#"<link href = "/s.css" rel=x><form action="/f">"#,
                r#"<link href = "/api/proxy/s.css" rel=x><form action="/api/proxy/f">"#,
            ),
        ] {
            assert_eq!(LINKS.rewrite(page), expected);
        }
    }

    #[test]
    fn everything_else_stays_as_it_is() {
        for page in [
            r#"<a href="relative">"#,
            r#"<a href="https://elsewhere.example/x">"#,
            r#"<a href="/api/proxy/there">"#,
            r#"<a title="/x" data-href="/x">"#,
            r#"<!-- <a href="/x"> -->"#,
            r#"<script>let page = '<a href="/x">';</script>"#,
            "text < 5 and /x > 3",
            "<a href=",
            r#"<a href="/unfinished"#.trim_end_matches("/unfinished"),
            "<a =/x href>",
        ] {
            assert_eq!(LINKS.rewrite(page), page);
        }
    }

    proptest! {
        #[test]
        fn no_page_breaks_it(page in "[<>a-z/='\" !\\-é]{0,60}") {
            LINKS.rewrite(&page);
        }
    }
}
