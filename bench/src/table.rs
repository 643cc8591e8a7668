//! The table that is printed: figures side by side, and what one is to another.

/// One line: a figure of ours, of a floor, of a peer.
pub struct Row {
    /// What was measured.
    pub what: String,
    /// In which unit.
    pub unit: &'static str,
    /// What we take, or do.
    pub ours: Option<f64>,
    /// What nobody can be better than, and what that is.
    pub floor: Option<(f64, &'static str)>,
    /// What the peer takes, or does.
    pub peer: Option<f64>,
}

/// The rows as aligned text; without the peer's columns where there is none.
pub fn render(rows: &[Row]) -> String {
    let has_peer = rows.iter().any(|row| row.peer.is_some());
    let mut header = vec!["", "unit", "ours", "floor", "ours/floor"];
    if has_peer {
        header.extend(["peer", "ours/peer"]);
    }
    header.push("the floor is");
    let mut lines = vec![header.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    lines.extend(rows.iter().map(|row| {
        let floor = row.floor.map(|(value, _)| value);
        let mut cells = vec![row.what.clone(), row.unit.to_owned()];
        cells.extend([figure(row.ours), figure(floor), ratio(row.ours, floor)]);
        if has_peer {
            cells.extend([figure(row.peer), ratio(row.ours, row.peer)]);
        }
        cells.push(row.floor.map_or_else(String::new, |(_, what)| what.to_owned()));
        cells
    }));
    align(&lines)
}

fn figure(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value >= 100.0 => format!("{value:.0}"),
        Some(value) if value >= 10.0 => format!("{value:.1}"),
        Some(value) if value >= 1.0 => format!("{value:.2}"),
        Some(value) => format!("{value:.3}"),
    }
}

fn ratio(ours: Option<f64>, other: Option<f64>) -> String {
    match (ours, other) {
        (Some(ours), Some(other)) if other > 0.0 => format!("{:.2}", ours / other),
        _ => "-".to_owned(),
    }
}

/// Rows of a name and figures, as aligned text.
pub fn columns<const N: usize>(rows: &[[String; N]]) -> String {
    let lines: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let (name, figures) = row.split_first().expect("a name");
            let empty = [String::new()];
            [std::slice::from_ref(name), &empty, figures, &empty].concat()
        })
        .collect();
    align(&lines)
}

/// Figures to the right, words to the left.
fn align(lines: &[Vec<String>]) -> String {
    let columns = lines.first().map_or(0, Vec::len);
    let widths: Vec<usize> = (0..columns)
        .map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for line in lines {
        let cells = line.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
            let is_word = column < 2 || column == columns - 1;
            if is_word { format!("{cell:width$}") } else { format!("{cell:>width$}") }
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_has_columns_only_where_there_is_one() {
        let row = |peer| {
            let (what, unit) = ("GET".to_owned(), "/s");
            Row { what, unit, ours: Some(2000.0), floor: Some((4000.0, "HTTPS")), peer }
        };
        assert_eq!(
            render(&[row(None)]),
            "     unit  ours  floor  ours/floor  the floor is\nGET  /s    2000   4000        0.50  HTTPS\n"
        );
        assert_eq!(
            render(&[row(Some(10.0))]),
            "     unit  ours  floor  ours/floor  peer  ours/peer  the floor is\n\
             GET  /s    2000   4000        0.50  10.0     200.00  HTTPS\n"
        );
    }
}
