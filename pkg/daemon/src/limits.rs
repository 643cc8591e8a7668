//! How many connections a server takes, and how long it waits for whoever is at their other end.

use std::time::Duration;

/// Open files that this program asks for at its start, where it may have them.
const WANTED_FILES: u64 = 65_536;

/// How many connections a server takes, and how long it waits for whoever is at their other end.
#[derive(Debug, Clone)]
pub struct ConnectionLimits {
    /// From a connection's first byte until it is secured.
    pub handshake: Duration,
    /// Until a request's headers are there, the first one's included.
    pub headers: Duration,
    /// Without a request.
    pub idle: Duration,
    /// Until some of an answer is taken. Of an answer whose length is known, 16 KB a second are to be taken as well.
    pub unread: Duration,
    /// The same, of an answer that people look at as it comes: logs, say.
    pub unread_by_people: Duration,
    /// Connections of all together that are not of the cluster's own programs. Those who have not said who they are get
    /// an eighth of it, one address of them a quarter of that; one user a quarter of it. Whoever comes then takes the
    /// place of the oldest of those who hold the most.
    pub most: usize,
    /// Requests at once on one HTTP/2 connection of a known client. Others get a quarter.
    pub streams: u32,
}

impl Default for ConnectionLimits {
    /// Upstream's times, where it has them.
    fn default() -> ConnectionLimits {
        ConnectionLimits {
            handshake: Duration::from_secs(10),
            headers: Duration::from_secs(32),
            idle: Duration::from_secs(90),
            unread: Duration::from_secs(60),
            unread_by_people: Duration::from_secs(4 * 60 * 60),
            most: 8192,
            streams: 1000,
        }
    }
}

impl ConnectionLimits {
    /// For a server that few ask, and little.
    pub fn small() -> ConnectionLimits {
        ConnectionLimits { most: 512, streams: 100, ..ConnectionLimits::default() }
    }

    /// What those who have not said who they are may hold together, and from one address.
    pub(crate) fn of_strangers(&self) -> (usize, usize) {
        let all = (self.most / 8).max(8);
        (all, (all / 4).max(4))
    }

    /// What known users may hold together, and one of them.
    pub(crate) fn of_users(&self) -> (usize, usize) {
        (self.most - self.most / 8, (self.most / 4).max(1))
    }

    /// As much of it as the program may open files for: half of them are for everything else.
    pub(crate) fn within(mut self, files: usize) -> ConnectionLimits {
        self.most = self.most.min(files / 2);
        self
    }
}

/// Raises the number of files that this program may open to what it wants, or as far as it may.
pub(crate) fn raise_files() {
    let Some(mut limit) = files() else { return };
    let wanted = WANTED_FILES.min(limit.rlim_max);
    if limit.rlim_cur >= wanted {
        return;
    }
    limit.rlim_cur = wanted;
    // SAFETY: it reads the structure that it is given.
    #[expect(unsafe_code, reason = "there is no safe door to it")]
    let code = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
    if code != 0 {
        tracing::warn!(error = %std::io::Error::last_os_error(), "the number of open files stays as it is");
    }
}

/// How many files this program may open.
pub(crate) fn most_files() -> usize {
    files().and_then(|limit| usize::try_from(limit.rlim_cur).ok()).unwrap_or(1024)
}

fn files() -> Option<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: it writes to the structure that it is given.
    #[expect(unsafe_code, reason = "there is no safe door to it")]
    let code = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    (code == 0).then_some(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_raised_and_bound_connections() {
        raise_files();
        let limit = files().unwrap();
        assert!(limit.rlim_cur >= WANTED_FILES.min(limit.rlim_max));
        assert_eq!(ConnectionLimits::default().within(1024).most, 512);
        assert_eq!(ConnectionLimits::default().within(1_000_000).most, 8192);
        let of = |limits: ConnectionLimits| (limits.of_strangers(), limits.of_users());
        assert_eq!(of(ConnectionLimits::default()), ((1024, 256), (7168, 2048)));
        assert_eq!(of(ConnectionLimits::default().within(20)), ((8, 4), (9, 2)));
    }
}
