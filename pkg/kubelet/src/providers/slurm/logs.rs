//! What a container of a job wrote, as lines of a container's log with their times.
//!
//! ```text
//! logs/<name>.<restart>    as it was written ──┐
//! times/<name>.<restart>   "time size" …       ┴──> "time stdout F line"
//! ```
//!
//! A job writes plain files, which people read at the site too; when a line was written follows from how long the file was
//! at which time.

use jiff::Timestamp;

/// Says where the asked-for part of a log begins, how long the log was when, and then that part. Arguments: the job's
/// folder, the log, how many lines from the end on (or `all`), and `follow`.
pub const READ: &str = r#"
f=$1/logs/$2
[ -f "$f" ] || exit 44
start=0
if [ "$3" != all ]; then
  size=$(stat -c %s "$f")
  start=$((size - $(head -c "$size" "$f" | tail -n "$3" | wc -c)))
fi
echo "$start"
cat "$1/times/$2" 2>/dev/null
echo .
if [ "$4" = follow ]; then exec tail -s 0.2 -c "+$((start + 1))" -f "$f"; fi
exec tail -c "+$((start + 1))" "$f"
"#;
/// There is no such log (yet).
pub const NO_LOG: i32 = 44;

/// Turns what [`READ`] says into lines of a log.
#[derive(Debug, Default)]
pub struct Stamper {
    /// Not through with the head yet.
    in_body: bool,
    /// Where the next byte is in the file.
    at: u64,
    /// How long the file was, at which time.
    times: Vec<(u64, Timestamp)>,
    /// The beginning of a line.
    rest: Vec<u8>,
}

impl Stamper {
    /// Takes bytes, and adds the lines that they end to `out`.
    pub fn take(&mut self, bytes: &[u8], now: Timestamp, out: &mut Vec<u8>) {
        self.rest.extend_from_slice(bytes);
        let mut from = 0;
        while let Some(length) = self.rest[from..].iter().position(|byte| *byte == b'\n') {
            let line = self.rest[from..from + length].to_vec();
            if self.in_body {
                self.line(&line, 'F', now, out);
                self.at += length as u64 + 1;
            } else {
                self.head(&line);
            }
            from += length + 1;
        }
        self.rest.drain(..from);
    }

    /// What is left when nothing more comes: a line without an end.
    pub fn finish(&mut self, now: Timestamp, out: &mut Vec<u8>) {
        if self.in_body && !self.rest.is_empty() {
            let line = std::mem::take(&mut self.rest);
            self.line(&line, 'P', now, out);
            self.at += line.len() as u64;
        }
    }

    fn head(&mut self, line: &[u8]) {
        let text = String::from_utf8_lossy(line);
        let mut words = text.split_whitespace();
        match (words.next(), words.next()) {
            (Some("."), None) => self.in_body = true,
            (Some(start), None) => self.at = start.parse().unwrap_or(0),
            (Some(second), Some(size)) => {
                let at = second.parse().ok().and_then(|second| Timestamp::from_second(second).ok());
                self.times.extend(size.parse().ok().zip(at));
            }
            _ => {}
        }
    }

    fn line(&self, line: &[u8], tag: char, now: Timestamp, out: &mut Vec<u8>) {
        let later = self.times.partition_point(|(size, _)| *size <= self.at);
        let time = self.times.get(later).map_or(now, |(_, time)| *time);
        out.extend_from_slice(format!("{time:.9} stdout {tag} ").as_bytes());
        out.extend_from_slice(line);
        out.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_the_times_at_which_the_file_had_grown() {
        let now = Timestamp::from_second(900).expect("a time");
        let (mut stamper, mut out) = (Stamper::default(), Vec::new());
        for piece in ["4\n100 8\n2", "00 12\n.\nbb\ncc", "cc\ndd\ne"] {
            stamper.take(piece.as_bytes(), now, &mut out);
        }
        stamper.finish(now, &mut out);
        let text = String::from_utf8(out).expect("text");
        let said: Vec<(&str, &str)> =
            text.lines().map(|line| (&line[17..19], line.split_once("stdout ").expect("a line").1)).collect();
        // 4 to 7: written by 100 s; 7 to 12: by 100 s at its beginning; then later than anybody looked.
        assert_eq!(said, [("40", "F bb"), ("40", "F cccc"), ("00", "F dd"), ("00", "P e")]);
    }
}
