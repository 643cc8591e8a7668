//! What is wrong with a text that is not JSON, in the words of Go's scanner. Only errors come here.

/// Says where `bytes` stop being JSON; `error` is what the fast decoder said, for texts this scanner has nothing
/// against.
pub(super) fn explain(bytes: &[u8], error: &serde_json::Error) -> String {
    let mut scanner = Scanner { bytes, at: 0 };
    if let Err(complaint) = scanner.document() {
        return complaint;
    }
    let text = error.to_string();
    if text.starts_with("number out of range") {
        let number = number_before(bytes, offset(bytes, error));
        return format!("json: cannot unmarshal number {number} into Go value of type float64");
    }
    text
}

/// As deep as serde_json goes, so that both stop at the same place.
const MOST_DEPTH: usize = 127;

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
}

type Scan = Result<(), String>;

impl Scanner<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn wrong(&self, context: &str) -> String {
        match self.peek() {
            None => "unexpected end of JSON input".into(),
            Some(byte) => format!("invalid character {} {context}", quote(byte)),
        }
    }

    fn document(&mut self) -> Scan {
        let mut open: Vec<u8> = Vec::new();
        loop {
            self.skip_space();
            match self.peek() {
                Some(bracket @ (b'{' | b'[')) => {
                    if open.len() >= MOST_DEPTH {
                        return Err(self.wrong("exceeded max depth"));
                    }
                    open.push(bracket);
                    self.at += 1;
                    self.skip_space();
                    match (bracket, self.peek()) {
                        (b'{', Some(b'}')) | (b'[', Some(b']')) => {}
                        (b'{', _) => {
                            self.key()?;
                            continue;
                        }
                        _ => continue,
                    }
                }
                _ => self.scalar()?,
            }
            if self.close(&mut open)? {
                return Ok(());
            }
        }
    }

    /// After a value: closes what ends here and stops before the next value. True at the end of the text.
    fn close(&mut self, open: &mut Vec<u8>) -> Result<bool, String> {
        loop {
            self.skip_space();
            match (open.last(), self.peek()) {
                (None, None) => return Ok(true),
                (None, Some(_)) => return Err(self.wrong("after top-level value")),
                (Some(b'{'), Some(b'}')) | (Some(b'['), Some(b']')) => {
                    open.pop();
                    self.at += 1;
                }
                (Some(b'{'), Some(b',')) => {
                    self.at += 1;
                    self.key()?;
                    return Ok(false);
                }
                (Some(_), Some(b',')) => {
                    self.at += 1;
                    return Ok(false);
                }
                (Some(b'{'), _) => return Err(self.wrong("after object key:value pair")),
                (Some(_), _) => return Err(self.wrong("after array element")),
            }
        }
    }

    fn key(&mut self) -> Scan {
        self.skip_space();
        if self.peek() != Some(b'"') {
            return Err(self.wrong("looking for beginning of object key string"));
        }
        self.string()?;
        self.skip_space();
        if self.peek() != Some(b':') {
            return Err(self.wrong("after object key"));
        }
        self.at += 1;
        Ok(())
    }

    fn scalar(&mut self) -> Scan {
        match self.peek() {
            Some(b'"') => self.string(),
            Some(b't') => self.literal("true"),
            Some(b'f') => self.literal("false"),
            Some(b'n') => self.literal("null"),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => Err(self.wrong("looking for beginning of value")),
        }
    }

    fn literal(&mut self, word: &str) -> Scan {
        for expected in word.bytes() {
            if self.peek() != Some(expected) {
                return Err(self.wrong(&format!("in literal {word} (expecting {})", quote(expected))));
            }
            self.at += 1;
        }
        Ok(())
    }

    fn string(&mut self) -> Scan {
        self.at += 1;
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => {
                    self.at += 1;
                    self.escape()?;
                }
                None | Some(0..0x20) => return Err(self.wrong("in string literal")),
                Some(_) => self.at += 1,
            }
        }
    }

    fn escape(&mut self) -> Scan {
        match self.peek() {
            Some(b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"') => self.at += 1,
            Some(b'u') => {
                self.at += 1;
                for _ in 0..4 {
                    if !self.peek().is_some_and(|byte| byte.is_ascii_hexdigit()) {
                        return Err(self.wrong("in \\u hexadecimal character escape"));
                    }
                    self.at += 1;
                }
            }
            _ => return Err(self.wrong("in string escape code")),
        }
        Ok(())
    }

    fn digits(&mut self, context: &str) -> Scan {
        if !self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            return Err(self.wrong(context));
        }
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        Ok(())
    }

    fn number(&mut self) -> Scan {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits("in numeric literal")?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits("after decimal point in numeric literal")?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits("in exponent of numeric literal")?;
        }
        Ok(())
    }
}

/// A byte as Go quotes it.
fn quote(byte: u8) -> String {
    match byte {
        b'"' => "'\"'".into(),
        0x07 => r"'\a'".into(),
        0x08 => r"'\b'".into(),
        0x0b => r"'\v'".into(),
        0x0c => r"'\f'".into(),
        b'\n' | b'\r' | b'\t' | b'\\' | b'\'' => format!("'{}'", char::from(byte).escape_default()),
        0x00..0x20 | 0x7f => format!("'\\x{byte:02x}'"),
        0x80..=0xa0 | 0xad => format!("'\\u{byte:04x}'"),
        _ => format!("'{}'", char::from(byte)),
    }
}

/// The byte offset that the fast decoder's line and column mean.
fn offset(bytes: &[u8], error: &serde_json::Error) -> usize {
    let line_start: usize = bytes
        .split_inclusive(|&byte| byte == b'\n')
        .take(error.line().saturating_sub(1))
        .map(<[u8]>::len)
        .sum();
    (line_start + error.column()).min(bytes.len())
}

/// The number that `end` lies in or just behind.
fn number_before(bytes: &[u8], end: usize) -> String {
    let numeric = |byte: &&u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
    let before = bytes[..end].iter().rev().take_while(numeric).count();
    let after = bytes[end..].iter().take_while(numeric).count();
    String::from_utf8_lossy(&bytes[end - before..end + after]).into_owned()
}
