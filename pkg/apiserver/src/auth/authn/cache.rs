//! A bounded memory of tokens whose signature has been verified.

use ring::digest::{SHA256, digest};
use std::collections::HashMap;

/// A map that forgets: two halves, of which the older is dropped when the younger is full. What is used stays.
#[derive(Debug)]
pub(super) struct Cache<V> {
    young: HashMap<[u8; 32], V>,
    old: HashMap<[u8; 32], V>,
    half: usize,
}

impl<V: Clone> Cache<V> {
    pub(super) fn new(most: usize) -> Self {
        Cache { young: HashMap::new(), old: HashMap::new(), half: most.div_ceil(2).max(1) }
    }

    /// The key of a token: tokens themselves are not kept, and a guess tells nothing by the time it takes.
    pub(super) fn key(token: &str) -> [u8; 32] {
        let mut key = [0; 32];
        key.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
        key
    }

    pub(super) fn get(&mut self, key: &[u8; 32]) -> Option<V> {
        if let Some(value) = self.young.get(key) {
            return Some(value.clone());
        }
        let value = self.old.remove(key)?;
        self.insert(*key, value.clone());
        Some(value)
    }

    pub(super) fn insert(&mut self, key: [u8; 32], value: V) {
        if self.young.len() >= self.half && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_bounded_and_keeps_what_is_used() {
        let mut cache = Cache::new(4);
        let key = |n: u32| Cache::<u32>::key(&n.to_string());
        for n in 0..1000 {
            cache.insert(key(n), n);
            assert_eq!(cache.get(&key(0)), Some(0), "used all the time");
            assert!(cache.young.len() + cache.old.len() <= 4);
        }
        assert_eq!(cache.get(&key(999)), Some(999));
        assert_eq!(cache.get(&key(500)), None);
    }
}
