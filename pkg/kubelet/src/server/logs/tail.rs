//! Where the last lines of a file begin.

use std::io::{Read, Result, Seek, SeekFrom};

const BLOCK: u64 = 16 * 1024;

/// The position after which the file has that many lines, and how many it has too few. Reads from the end, no more than
/// it must.
pub fn start(file: &mut (impl Read + Seek), lines: u64) -> Result<(u64, u64)> {
    let end = file.seek(SeekFrom::End(0))?;
    if lines == 0 {
        return Ok((end, 0));
    }
    let mut seen = 0;
    let mut upper = end;
    let mut block = Vec::new();
    while upper > 0 {
        let lower = upper.saturating_sub(BLOCK);
        block.resize(usize::try_from(upper - lower).unwrap_or_default(), 0);
        file.seek(SeekFrom::Start(lower))?;
        file.read_exact(&mut block)?;
        for (index, byte) in block.iter().enumerate().rev() {
            // The line end at the very end closes the last line and begins none.
            if *byte == b'\n' && lower + index as u64 + 1 != end {
                seen += 1;
                if seen == lines {
                    return Ok((lower + index as u64 + 1, 0));
                }
            }
        }
        upper = lower;
    }
    Ok((0, lines - seen - u64::from(end > 0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    #[test]
    fn the_last_lines_are_found_from_the_end() {
        let check = |text: &str, lines: u64, expected: &str| {
            let (at, missing) = start(&mut Cursor::new(text), lines).unwrap();
            assert_eq!(&text[usize::try_from(at).unwrap()..], expected, "{lines}");
            assert_eq!(missing, lines - expected.lines().count() as u64, "{lines}");
        };
        check("", 3, "");
        check("a\nb\nc\n", 0, "");
        check("a\nb\nc\n", 1, "c\n");
        check("a\nb\nc\n", 2, "b\nc\n");
        check("a\nb\nc\n", 3, "a\nb\nc\n");
        check("a\nb\nc\n", 9, "a\nb\nc\n");
        check("a\nb\nc", 1, "c");
        check("\n\n\n", 2, "\n\n");
        let long = format!("{}\n{}\n", "x".repeat(100_000), "y".repeat(50_000));
        check(&long, 1, &format!("{}\n", "y".repeat(50_000)));
        check(&long, 2, &long);
    }
}
