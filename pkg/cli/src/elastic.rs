//! Text whose tabs become columns: a column is as wide as its widest cell among the lines next to each other that have
//! it, and no wider. This is how Go's tabwriter sets upstream's `describe`.

use crate::plain;

/// Spaces behind the widest cell.
const PADDING: usize = 2;

/// The text with spaces for tabs, and nothing in it that a terminal obeys.
pub fn elastic(text: &str) -> String {
    let text = &*plain(text);
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split('\t').collect()).collect();
    let mut out = String::new();
    set(&lines, &mut Vec::new(), &mut out);
    out
}

fn set(lines: &[Vec<&str>], widths: &mut Vec<usize>, out: &mut String) {
    let column = widths.len();
    // The last cell of a line is in no column: nothing stands behind it.
    let has_column = |line: &Vec<&str>| line.len() > column + 1;
    let mut at = 0;
    while at < lines.len() {
        if !has_column(&lines[at]) {
            write(&lines[at], widths, out);
            at += 1;
            continue;
        }
        let end =
            lines[at..].iter().position(|line| !has_column(line)).map_or(lines.len(), |count| at + count);
        let width = lines[at..end].iter().map(|line| line[column].chars().count()).max().unwrap_or_default();
        widths.push(width + PADDING);
        set(&lines[at..end], widths, out);
        widths.pop();
        at = end;
    }
}

fn write(line: &[&str], widths: &[usize], out: &mut String) {
    let last = line.len().saturating_sub(1);
    for (index, cell) in line.iter().enumerate() {
        out.push_str(cell);
        if index < last {
            let width = widths.get(index).copied().unwrap_or_default();
            out.push_str(&" ".repeat(width.saturating_sub(cell.chars().count())));
        }
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_end_where_lines_without_them_stand() {
        let text = "Name:\tweb\nService Account:\tdefault\nIPs:\n  IP:\t10.0.0.1\nControlled By:\tx\n";
        let expected = "Name:             web\nService Account:  default\nIPs:\n  IP:           10.0.0.1\nControlled By:  x\n";
        assert_eq!(elastic(text), expected);
        assert_eq!(elastic("a\tb\tc\nlonger\tbb\tc\n"), "a       b   c\nlonger  bb  c\n");
    }
}
