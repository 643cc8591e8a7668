//! Reading part of the keyspace, in as many requests as it takes, at one revision.

use super::{COMPACTED, FUTURE, Link, says};
use crate::{Error, KEYSPACES, Page, Range, Revision};
use etcd_client::{GetOptions, KvClient};

/// How many entries one request asks for: some megabytes of usual objects.
const REQUEST_ENTRIES: usize = 500;

/// Reads a page.
pub async fn read(link: &Link, range: Range) -> Result<Page, Error> {
    let limit = if range.limit == 0 { usize::MAX } else { range.limit };
    let mut page = Page { entries: Vec::new(), revision: 0, remaining: 0 };
    let mut revision = range.revision;
    for (mut from, to) in intervals(&range.prefix, range.after.as_deref()) {
        loop {
            let room = (limit - page.entries.len()).min(REQUEST_ENTRIES);
            let (some, count, at) = request(link, &from, &to, room, revision).await?;
            page.revision = at;
            // What follows is read as of the same revision.
            revision = Some(at);
            let more = count.saturating_sub(some.len() as u64);
            if let Some(last) = some.last() {
                from = successor(&last.key);
            }
            page.entries.extend(some);
            if more == 0 || page.entries.len() >= limit {
                page.remaining += more;
                break;
            }
        }
    }
    Ok(page)
}

/// Up to `limit` entries of an interval (0: none, only count), how many there are, and as of when.
async fn request(
    link: &Link,
    from: &str,
    to: &str,
    limit: usize,
    revision: Option<Revision>,
) -> Result<(Vec<crate::Entry>, u64, Revision), Error> {
    let mut options = GetOptions::new().with_range(to);
    options = if limit == 0 { options.with_count_only() } else { options.with_limit(limit as i64) };
    if let Some(asked) = revision {
        let Some(physical) = link.physical(asked) else {
            return Err(Error::Compacted { asked, oldest: link.oldest() });
        };
        options = options.with_revision(physical);
    }
    let get = |mut kv: KvClient| {
        let options = options.clone();
        async move { kv.get(from, Some(options)).await }
    };
    match link.members.read("read from etcd", get).await {
        Ok(mut response) => {
            let entries = link.entries(&mut response)?;
            let current = link.header(response.header())?;
            Ok((entries, response.count().max(0) as u64, revision.unwrap_or(current)))
        }
        Err(error) => Err(match revision {
            Some(asked) if says(&error, COMPACTED) => Error::Compacted { asked, oldest: link.oldest() },
            Some(asked) if says(&error, FUTURE) => Error::Future { asked, current: link.revision().await? },
            _ => error,
        }),
    }
}

/// The parts of the callers' keyspaces that begin with a prefix, as half-open intervals in order.
fn intervals(prefix: &str, after: Option<&str>) -> Vec<(String, String)> {
    let whole = KEYSPACES.iter().filter_map(|keyspace| match () {
        () if prefix.starts_with(keyspace) => Some(prefix),
        () if keyspace.starts_with(prefix) => Some(*keyspace),
        () => None,
    });
    let from_after = |start: &str| match after {
        Some(after) if after >= start => successor(after),
        _ => start.to_owned(),
    };
    let intervals = whole.map(|start| (from_after(start), end(start)));
    intervals.filter(|(from, to)| from < to).collect()
}

/// The first key after one.
fn successor(key: &str) -> String {
    format!("{key}\0")
}

/// The first key after all that begin with a prefix, which is not empty.
fn end(prefix: &str) -> String {
    let mut end = prefix.to_owned();
    while let Some(last) = end.pop() {
        // Surrogates are no characters: what follows is the first one behind them.
        let next = (u32::from(last) + 1..).take(0x801).find_map(char::from_u32);
        if let Some(next) = next {
            end.push(next);
            return end;
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_cover_what_the_prefix_asks_for() {
        let check = |prefix: &str, after: Option<&str>, expect: &[(&str, &str)]| {
            let expect: Vec<_> = expect.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect();
            assert_eq!(intervals(prefix, after), expect, "{prefix} after {after:?}");
        };
        check("/registry/pods/", None, &[("/registry/pods/", "/registry/pods0")]);
        check("/registry/pods/", Some("/registry/pods/a"), &[("/registry/pods/a\0", "/registry/pods0")]);
        check("/registry/pods/", Some("/a"), &[("/registry/pods/", "/registry/pods0")]);
        check("/registry/pods/", Some("/registry/z"), &[]);
        check("", None, &[("/minik8s/", "/minik8s0"), ("/registry/", "/registry0")]);
        check("/", Some("/minik8s/z"), &[("/minik8s/z\0", "/minik8s0"), ("/registry/", "/registry0")]);
        check("/else/", None, &[]);
        check("/registry/\u{d7ff}", None, &[("/registry/\u{d7ff}", "/registry/\u{e000}")]);
    }
}
