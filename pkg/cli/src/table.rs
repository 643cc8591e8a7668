//! Tables for people: columns as wide as their widest cell, three spaces between them, as upstream's.

use crate::plain;
use std::borrow::Cow;

/// No column is narrower than this, its spaces included.
const NARROWEST: usize = 6;
const SPACES: usize = 3;

/// Rows of cells, aligned, and nothing in them that a terminal obeys. The last cell of a row is followed by nothing.
pub fn table(rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<Cow<'_, str>>> =
        rows.iter().map(|row| row.iter().map(|cell| plain(cell)).collect()).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> =
        (0..columns).map(|column| (width(column).unwrap_or_default() + SPACES).max(NARROWEST)).collect();
    let mut text = String::new();
    for row in &rows {
        let last = row.len().saturating_sub(1);
        for (index, (cell, width)) in row.iter().zip(&widths).enumerate() {
            text.push_str(cell);
            if index < last {
                text.push_str(&" ".repeat(width - cell.chars().count()));
            }
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let rows = [row(["NAME", "READY", "AGE"]), row(["a", "1/1", "3d"]), row(["longer", "", "1s"])];
        assert_eq!(table(&rows), "NAME     READY   AGE\na        1/1     3d\nlonger           1s\n");
        let rows = [["N", "X"].map(str::to_owned).to_vec(), ["p1", "y"].map(str::to_owned).to_vec()];
        assert_eq!(table(&rows), "N     X\np1    y\n");
        assert_eq!(table(&[]), "");
        let rows =
            [["\u{1b}[2J", "x"].map(str::to_owned).to_vec(), ["abcdefgh", "y"].map(str::to_owned).to_vec()];
        assert_eq!(table(&rows), "^[[2J      x\nabcdefgh   y\n");
    }
}
