//! The members that a schema names.

use super::Schema;

/// Schemas of members, by name. There are thousands, most of them of objects with few members, and all stay for as long as
/// the program runs: they stand in one piece, sorted, and not in the half-empty nodes of a tree.
#[derive(Debug, Clone, Default)]
pub struct Properties(Vec<(Box<str>, Schema)>);

impl Properties {
    /// The member of that name.
    pub fn get(&self, name: &str) -> Option<&Schema> {
        self.place(name).ok().map(|place| &self.0[place].1)
    }

    /// Whether there is a member of that name.
    pub fn contains_key(&self, name: &str) -> bool {
        self.place(name).is_ok()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Names a member, or says anew what it is.
    pub fn insert(&mut self, name: &str, schema: Schema) {
        match self.place(name) {
            Ok(place) => self.0[place].1 = schema,
            Err(place) => self.0.insert(place, (name.into(), schema)),
        }
    }

    /// The members, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Schema)> {
        self.0.iter().map(|(name, schema)| (&**name, schema))
    }

    fn place(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(other, _)| (**other).cmp(name))
    }
}

impl FromIterator<(Box<str>, Schema)> for Properties {
    fn from_iter<Members: IntoIterator<Item = (Box<str>, Schema)>>(members: Members) -> Properties {
        let mut members: Vec<(Box<str>, Schema)> = members.into_iter().collect();
        members.sort_by(|(a, _), (b, _)| a.cmp(b));
        members.shrink_to_fit();
        Properties(members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_by_name_and_stay_in_order() {
        let mut properties: Properties =
            ["spec", "kind"].map(|name| (name.into(), Schema::default())).into_iter().collect();
        properties.insert("metadata", Schema::default());
        properties.insert("spec", Schema { required: true, ..Schema::default() });
        assert_eq!(properties.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["kind", "metadata", "spec"]);
        assert!(properties.get("spec").is_some_and(|schema| schema.required));
        assert!(properties.contains_key("metadata") && !properties.contains_key("status"));
    }
}
