//! Sets of completion indexes as jobs write them: `0,2-5,9`.

use std::collections::BTreeSet;

/// Indexes below the number of completions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Indexes(pub BTreeSet<i32>);

impl Indexes {
    /// Reads them; what is no index, or beyond the completions, is left out.
    pub fn parse(text: &str, completions: i32) -> Indexes {
        let mut indexes = BTreeSet::new();
        for range in text.split(',').filter(|range| !range.is_empty()) {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            if let (Ok(first), Ok(last)) = (first.parse::<i32>(), last.parse::<i32>()) {
                indexes.extend(first..=last.min(completions - 1));
            }
        }
        Indexes(indexes)
    }

    /// How many there are.
    pub fn count(&self) -> i32 {
        i32::try_from(self.0.len()).unwrap_or(i32::MAX)
    }
}

impl std::fmt::Display for Indexes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut indexes = self.0.iter().copied().peekable();
        let mut separator = "";
        while let Some(first) = indexes.next() {
            let mut last = first;
            while let Some(next) = indexes.next_if(|next| *next == last + 1) {
                last = next;
            }
            match last - first {
                0 => write!(f, "{separator}{first}")?,
                1 => write!(f, "{separator}{first},{last}")?,
                _ => write!(f, "{separator}{first}-{last}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_written_as_ranges() {
        for text in ["", "0", "0,1", "0-2", "1,3-5,7,8,10-12"] {
            assert_eq!(Indexes::parse(text, 20).to_string(), text);
        }
        assert_eq!(Indexes::parse("3-9", 5).to_string(), "3,4");
    }
}
