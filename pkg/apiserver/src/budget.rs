//! Memory that requests in flight may take: bodies on their way in, and what is made of them or for them.
//!
//! ```text
//! Budget ── user ──> Share ──grows──> bytes of that user, of ordinary users, of all
//! ```
//!
//! One user gets at most half of what ordinary users get together, and what keeps the cluster alive (nodes, the control
//! plane's own programs, administrators) finds a part of its own: so nobody can take the memory of all. The service
//! accounts of a namespace are one user here, since whoever owns the namespace makes as many as it likes.

use crate::auth::User;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::Notify;

/// Bytes that may be taken, and who took them.
#[derive(Debug)]
pub struct Budget {
    /// What all may take together. A quarter of it only the cluster's own programs may.
    most: usize,
    taken: Mutex<Taken>,
    given_back: Notify,
}

#[derive(Debug, Default)]
struct Taken {
    total: usize,
    by_holder: HashMap<String, usize>,
}

/// What one request took; given back when it is dropped.
#[derive(Debug)]
pub struct Share {
    budget: Arc<Budget>,
    user: Arc<User>,
    bytes: usize,
}

impl Budget {
    /// So many bytes for all.
    pub fn new(most: usize) -> Arc<Budget> {
        Arc::new(Budget { most, taken: Mutex::default(), given_back: Notify::new() })
    }

    /// The share of a request of this user: nothing yet.
    pub fn share(self: &Arc<Budget>, user: &Arc<User>) -> Share {
        Share { budget: self.clone(), user: user.clone(), bytes: 0 }
    }

    /// What ordinary users may take together.
    fn most_of_ordinary(&self) -> usize {
        self.most - self.most / 4
    }

    /// What one user may take.
    pub fn most_of_one(&self) -> usize {
        self.most_of_ordinary() / 2
    }
}

impl Share {
    /// Takes more, if it is there to be taken.
    pub fn try_grow(&mut self, bytes: usize) -> bool {
        let budget = &*self.budget;
        let mut taken = budget.taken.lock();
        let most = if is_of_the_cluster(&self.user) { budget.most } else { budget.most_of_ordinary() };
        let of_user = taken.by_holder.get(holder(&self.user)).copied().unwrap_or_default();
        if taken.total + bytes > most || of_user + bytes > budget.most_of_one() {
            return false;
        }
        taken.total += bytes;
        match taken.by_holder.get_mut(holder(&self.user)) {
            Some(of_user) => *of_user += bytes,
            None => drop(taken.by_holder.insert(holder(&self.user).to_owned(), bytes)),
        }
        self.bytes += bytes;
        true
    }

    /// Takes more, as soon as it is there. What is more than one user may ever have counts as all of that.
    pub async fn grow(&mut self, bytes: usize) {
        let bytes = bytes.min(self.budget.most_of_one());
        let budget = self.budget.clone();
        loop {
            let given_back = budget.given_back.notified();
            tokio::pin!(given_back);
            given_back.as_mut().enable();
            if self.try_grow(bytes) {
                return;
            }
            given_back.await;
        }
    }
}

impl Share {
    /// Takes what is there already and turned out larger, whether there is room or not.
    pub fn must_grow(&mut self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let mut taken = self.budget.taken.lock();
        taken.total += bytes;
        *taken.by_holder.entry(holder(&self.user).to_owned()).or_default() += bytes;
        self.bytes += bytes;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let mut taken = self.budget.taken.lock();
        taken.total -= self.bytes;
        if let Some(of_user) = taken.by_holder.get_mut(holder(&self.user)) {
            *of_user -= self.bytes;
            if *of_user == 0 {
                taken.by_holder.remove(holder(&self.user));
            }
        }
        drop(taken);
        self.budget.given_back.notify_waiters();
    }
}

/// Whose share a request takes: the user's, or that of all service accounts of its namespace.
pub fn holder(user: &User) -> &str {
    let account = user.name.strip_prefix(ACCOUNT).and_then(|account| account.split_once(':'));
    account.map_or(&user.name, |(namespace, _)| &user.name[..ACCOUNT.len() + namespace.len()])
}

/// How the names of service accounts begin.
const ACCOUNT: &str = "system:serviceaccount:";

/// Whether somebody keeps the cluster alive: nodes, the control plane's programs, administrators.
pub fn is_of_the_cluster(user: &User) -> bool {
    let is_one = |group: &String| {
        group == User::MASTERS || group == User::NODES || group == "system:serviceaccounts:kube-system"
    };
    user.groups.iter().any(is_one) || user.name.starts_with("system:kube-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str, group: &str) -> Arc<User> {
        Arc::new(User { name: name.into(), groups: vec![group.into()], ..User::default() })
    }

    #[test]
    fn nobody_can_take_the_memory_of_all() {
        let budget = Budget::new(800);
        let [mallory, trent, eve] = ["mallory", "trent", "eve"].map(|name| budget.share(&user(name, "")));
        let [mut mallory, mut trent, mut eve] = [mallory, trent, eve];
        assert!(mallory.try_grow(200) && mallory.try_grow(100));
        assert!(!mallory.try_grow(1), "one user gets half of what ordinary users get");
        assert!(!budget.share(&user("mallory", "")).try_grow(1), "over all requests of that user");
        assert!(trent.try_grow(300));
        assert!(!eve.try_grow(1), "ordinary users leave a quarter");
        let mut node = budget.share(&user("system:node:n1", User::NODES));
        assert!(node.try_grow(200));
        drop(mallory);
        assert!(eve.try_grow(1));
        drop((trent, eve, node));
        let taken = budget.taken.lock();
        assert_eq!((taken.total, taken.by_holder.len()), (0, 0));
    }

    #[test]
    fn the_accounts_of_a_namespace_are_one() {
        let check = |name: &str, expected: &str| assert_eq!(holder(&user(name, "")), expected);
        check("mallory", "mallory");
        check("system:serviceaccount:tenant:a", "system:serviceaccount:tenant");
        check("system:serviceaccount:tenant:b", "system:serviceaccount:tenant");
        check("system:serviceaccount:odd", "system:serviceaccount:odd");
    }

    #[tokio::test]
    async fn who_must_wait_is_woken() {
        let budget = Budget::new(800);
        let mut first = budget.share(&user("a", ""));
        first.grow(1_000_000).await;
        assert_eq!(first.bytes, 300, "more than there ever is counts as all");
        let mut second = budget.share(&user("a", ""));
        let waiting = tokio::spawn(async move {
            second.grow(10).await;
            second.bytes
        });
        tokio::task::yield_now().await;
        drop(first);
        assert_eq!(waiting.await.unwrap(), 10);
    }
}
