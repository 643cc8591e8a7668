//! Log lines as the container runtime interface has them: `2026-01-02T03:04:05.000000006Z stdout F text`.
//!
//! Used by the program that writes the logs (`programs/logger.rs`), so it needs nothing but the standard library.

/// A line longer than this is cut, as containerd does; all parts but the last are marked `P`.
pub const LONGEST_LINE: usize = 16 * 1024;

/// One stream of one container: what came after its last newline.
#[derive(Debug, Default)]
pub struct Lines {
    rest: Vec<u8>,
}

impl Lines {
    /// Takes what was read, and writes the lines that it ends to `out`.
    pub fn push(&mut self, bytes: &[u8], stream: &str, at: &str, out: &mut Vec<u8>) {
        let mut bytes = bytes;
        loop {
            let room = LONGEST_LINE - self.rest.len();
            match bytes.iter().take(room + 1).position(|byte| *byte == b'\n') {
                Some(end) => {
                    self.rest.extend_from_slice(&bytes[..end]);
                    bytes = &bytes[end + 1..];
                    self.write(stream, at, 'F', out);
                }
                None if bytes.len() > room => {
                    self.rest.extend_from_slice(&bytes[..room]);
                    bytes = &bytes[room..];
                    self.write(stream, at, 'P', out);
                }
                None => break,
            }
        }
        self.rest.extend_from_slice(bytes);
    }

    /// The stream has ended: what comes after its last newline is no whole line, and whoever reads it adds none.
    pub fn end(&mut self, stream: &str, at: &str, out: &mut Vec<u8>) {
        if !self.rest.is_empty() {
            self.write(stream, at, 'P', out);
        }
    }

    fn write(&mut self, stream: &str, at: &str, tag: char, out: &mut Vec<u8>) {
        out.extend_from_slice(format!("{at} {stream} {tag} ").as_bytes());
        out.append(&mut self.rest);
        out.push(b'\n');
    }
}

/// A moment since 1970 in RFC 3339, with nanoseconds.
pub fn timestamp(since_1970: std::time::Duration) -> String {
    let seconds = since_1970.as_secs();
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    // Years that begin in March have their leap day last; 146,097 days are 400 of them. 719,468 days are from the first
    // of March of year 0 to 1970.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!(
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:09}Z",
        since_1970.subsec_nanos()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn check(chunks: &[&[u8]], expected: &str) {
        let (mut lines, mut out) = (Lines::default(), Vec::new());
        for chunk in chunks {
            lines.push(chunk, "stdout", "T", &mut out);
        }
        lines.end("stdout", "T", &mut out);
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }

    #[test]
    fn lines_are_whole_wherever_reads_cut_them() {
        check(&[], "");
        check(&[b"a\nb\n"], "T stdout F a\nT stdout F b\n");
        check(&[b"a", b"b", b"\n\nc"], "T stdout F ab\nT stdout F \nT stdout P c\n");
    }

    #[test]
    fn a_line_too_long_is_cut_and_its_parts_marked() {
        let long = vec![b'x'; LONGEST_LINE];
        let x = "x".repeat(LONGEST_LINE);
        check(&[&long, b"\n"], &format!("T stdout F {x}\n"));
        check(&[&long, b"y\n"], &format!("T stdout P {x}\nT stdout F y\n"));
        check(&[&long, &long, b"\n"], &format!("T stdout P {x}\nT stdout F {x}\n"));
    }

    #[test]
    fn timestamps_are_those_of_the_calendar() {
        let cases = [0, 951_782_399, 951_782_400, 1_709_208_000, 1_735_689_599, 4_102_444_800];
        for seconds in cases {
            let ours = timestamp(Duration::new(seconds, 120));
            let theirs = jiff::Timestamp::new(seconds as i64, 120).expect("in range");
            assert_eq!(ours, format!("{theirs:.9}"));
        }
    }
}
