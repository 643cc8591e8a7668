//! Who holds connections, and whose end when there are too many.
//!
//! Nobody who comes is turned away: only by the handshake, or by the first request, is it known who that is. Of those who
//! are there, whoever holds the most loses the oldest. So silent connections, however many, make room for one that says
//! who it is.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// Connections by who holds them, oldest first.
#[derive(Debug)]
pub struct Crowd<Holder, Connection> {
    /// What all may hold together.
    most: usize,
    /// What one may hold.
    most_of_one: usize,
    held: usize,
    by_holder: HashMap<Holder, BTreeMap<u64, Connection>>,
}

impl<Holder: Hash + Eq + Clone, Connection> Crowd<Holder, Connection> {
    /// Nobody yet.
    pub fn new((most, most_of_one): (usize, usize)) -> Crowd<Holder, Connection> {
        Crowd { most, most_of_one, held: 0, by_holder: HashMap::new() }
    }

    /// Adds a connection, whose number is higher than those of older ones. Returns the one that must end for it.
    pub fn enter(&mut self, holder: Holder, id: u64, connection: Connection) -> Option<Connection> {
        let of_one = self.by_holder.entry(holder.clone()).or_default();
        of_one.insert(id, connection);
        self.held += 1;
        let loser = if of_one.len() > self.most_of_one {
            holder
        } else if self.held > self.most {
            self.by_holder.iter().max_by_key(|(_, connections)| connections.len())?.0.clone()
        } else {
            return None;
        };
        let oldest = *self.by_holder.get(&loser)?.first_key_value()?.0;
        self.leave(&loser, oldest)
    }

    /// Forgets a connection, if it is there.
    pub fn leave(&mut self, holder: &Holder, id: u64) -> Option<Connection> {
        let of_one = self.by_holder.get_mut(holder)?;
        let connection = of_one.remove(&id)?;
        if of_one.is_empty() {
            self.by_holder.remove(holder);
        }
        self.held -= 1;
        Some(connection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_holds_the_most_loses_the_oldest() {
        let mut crowd = Crowd::new((5, 3));
        let mut ids = 0..;
        let mut enter = |crowd: &mut Crowd<_, _>, holder: &'static str| {
            let id = ids.next().unwrap();
            crowd.enter(holder, id, id)
        };
        for holder in ["silent", "silent", "silent"] {
            assert_eq!(enter(&mut crowd, holder), None);
        }
        assert_eq!(enter(&mut crowd, "silent"), Some(0), "one holder has a limit of its own");
        assert_eq!((enter(&mut crowd, "a"), enter(&mut crowd, "b")), (None, None));
        assert_eq!(enter(&mut crowd, "c"), Some(1), "and all together");
        assert_eq!(crowd.leave(&"silent", 1), None, "it has gone");
        assert_eq!(crowd.leave(&"silent", 2), Some(2));
        assert_eq!(enter(&mut crowd, "d"), None);
        assert_eq!((crowd.held, crowd.by_holder.len()), (5, 5));
    }
}
