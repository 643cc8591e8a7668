//! Text → parts.

use super::functions::NAMES;
use super::{Command, Operand, Part, Pipeline, Root};
use anyhow::{Context, Result, bail};
use serde_json::Value;

pub fn parse(text: &str) -> Result<Vec<Part>> {
    let mut pieces = pieces(text)?;
    pieces.reverse();
    let (parts, end) = block(&mut pieces)?;
    match end {
        None => Ok(parts),
        Some(end) => bail!("unexpected {{{{{end}}}}}"),
    }
}

enum Piece {
    Text(String),
    Action(Vec<Token>),
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    /// A word: a keyword or a function.
    Word(String),
    /// `.a.b`, `.` or `$x.a`.
    Field(Option<String>, Vec<String>),
    Literal(Value),
    Sign(&'static str),
}

/// Text and actions, with the spaces taken away that `{{-` and `-}}` ask for.
fn pieces(text: &str) -> Result<Vec<Piece>> {
    let mut pieces = Vec::new();
    let mut rest = text;
    let mut trims = false;
    loop {
        let open = rest.find("{{");
        let mut before = &rest[..open.unwrap_or(rest.len())];
        if trims {
            before = before.trim_start();
        }
        let Some(open) = open else {
            pieces.push(Piece::Text(before.to_owned()));
            return Ok(pieces);
        };
        let mut action = &rest[open + 2..];
        if let Some(trimmed) = action.strip_prefix("- ") {
            before = before.trim_end();
            action = trimmed;
        }
        pieces.push(Piece::Text(before.to_owned()));
        let close = closing(action).context("unclosed action")?;
        rest = &action[close + 2..];
        let mut inside = &action[..close];
        trims = inside.ends_with(" -");
        if trims {
            inside = &inside[..inside.len() - 2];
        }
        let is_comment = inside.trim_start().starts_with("/*") && inside.trim_end().ends_with("*/");
        if !is_comment {
            pieces.push(Piece::Action(tokens(inside)?));
        }
    }
}

/// Where an action ends, past quoted text.
fn closing(text: &str) -> Option<usize> {
    let mut quote = None;
    let mut escaped = false;
    for (at, letter) in text.char_indices() {
        match quote {
            None if text[at..].starts_with("}}") => return Some(at),
            None if matches!(letter, '"' | '`') => quote = Some(letter),
            Some('"') if escaped => escaped = false,
            Some('"') if letter == '\\' => escaped = true,
            Some(open) if open == letter => quote = None,
            _ => {}
        }
    }
    None
}

fn tokens(text: &str) -> Result<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
        let length = match first {
            '"' => {
                let end = quoted_end(rest).context("unterminated quoted string")?;
                tokens.push(Token::Literal(unquoted(&rest[..end])?));
                end
            }
            '`' => {
                let end = rest[1..].find('`').context("unterminated raw quoted string")? + 2;
                tokens.push(Token::Literal(rest[1..end - 1].into()));
                end
            }
            '.' | '$' => {
                let end = rest[1..]
                    .find(|letter: char| !is_name(letter) && letter != '.')
                    .map_or(rest.len(), |at| at + 1);
                let mut names = rest[..end].split('.');
                let root = names.next().unwrap_or_default();
                let root = (first == '$').then(|| root.to_owned());
                tokens.push(Token::Field(
                    root,
                    names.filter(|name| !name.is_empty()).map(str::to_owned).collect(),
                ));
                end
            }
            '0'..='9' | '-' | '+' => {
                let end = rest[1..]
                    .find(|letter: char| !letter.is_alphanumeric() && letter != '.')
                    .map_or(rest.len(), |at| at + 1);
                let number: Value = serde_json::from_str(rest[..end].trim_start_matches('+'))
                    .with_context(|| format!("bad number {:?}", &rest[..end]))?;
                tokens.push(Token::Literal(number));
                end
            }
            letter if is_name(letter) => {
                let end = rest.find(|letter: char| !is_name(letter)).unwrap_or(rest.len());
                tokens.push(match &rest[..end] {
                    "true" => Token::Literal(true.into()),
                    "false" => Token::Literal(false.into()),
                    "nil" => Token::Literal(Value::Null),
                    word => Token::Word(word.to_owned()),
                });
                end
            }
            _ => {
                let signs = [":=", "=", "|", "(", ")", ","];
                let sign = signs.into_iter().find(|sign| rest.starts_with(sign));
                let sign = sign.with_context(|| format!("unexpected {first:?} in an action"))?;
                tokens.push(Token::Sign(sign));
                sign.len()
            }
        };
        // A field of what is in parentheses stands right behind them.
        let is_field_of = rest[length..].starts_with('.') && tokens.last() == Some(&Token::Sign(")"));
        rest = &rest[length..];
        if is_field_of {
            let end = rest[1..]
                .find(|letter: char| !is_name(letter) && letter != '.')
                .map_or(rest.len(), |at| at + 1);
            let names = rest[1..end].split('.').map(str::to_owned).collect();
            tokens.push(Token::Field(Some(")".into()), names));
            rest = &rest[end..];
        }
        rest = rest.trim_start();
    }
    Ok(tokens)
}

fn quoted_end(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, letter) in text.char_indices().skip(1) {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Some(at + 1),
            _ => {}
        }
    }
    None
}

/// Go's escapes are nearly JSON's.
fn unquoted(text: &str) -> Result<Value> {
    let text =
        text.replace("\\'", "'").replace("\\a", "\\u0007").replace("\\v", "\\u000b").replace("\\x", "\\u00");
    serde_json::from_str(&text).with_context(|| format!("bad string {text}"))
}

/// Parts up to `end`, `else` or the end of the text, and which of these it was (with what stands behind `else`).
fn block(pieces: &mut Vec<Piece>) -> Result<(Vec<Part>, Option<String>)> {
    let mut parts = Vec::new();
    while let Some(piece) = pieces.pop() {
        let tokens = match piece {
            Piece::Text(text) => {
                if !text.is_empty() {
                    parts.push(Part::Text(text));
                }
                continue;
            }
            Piece::Action(tokens) => tokens,
        };
        match tokens.split_first() {
            None => bail!("missing value for command"),
            Some((Token::Word(word), rest)) => match word.as_str() {
                "end" if rest.is_empty() => return Ok((parts, Some("end".into()))),
                "else" => {
                    // `{{else if …}}` is an `if` inside of the `else`, which ends with it.
                    if !rest.is_empty() {
                        pieces.push(Piece::Action(rest.to_vec()));
                        return Ok((parts, Some("else if".into())));
                    }
                    return Ok((parts, Some("else".into())));
                }
                "if" | "with" => parts.push(condition(pieces, rest, word == "with")?),
                "range" => parts.push(range(pieces, rest)?),
                "template" | "block" | "define" | "break" | "continue" => {
                    bail!("{word} is not supported in templates")
                }
                _ => parts.push(Part::Print(pipeline(&tokens)?)),
            },
            Some((Token::Field(Some(name), fields), [Token::Sign(sign @ (":=" | "=")), value @ ..]))
                if fields.is_empty() =>
            {
                parts.push(Part::Set {
                    name: name.clone(),
                    value: pipeline(value)?,
                    declares: *sign == ":=",
                });
            }
            _ => parts.push(Part::Print(pipeline(&tokens)?)),
        }
    }
    Ok((parts, None))
}

fn branches(pieces: &mut Vec<Piece>) -> Result<(Vec<Part>, Vec<Part>)> {
    let (then, end) = block(pieces)?;
    match end.as_deref() {
        Some("end") => Ok((then, Vec::new())),
        Some("else") => match block(pieces)? {
            (otherwise, Some(end)) if end == "end" => Ok((then, otherwise)),
            _ => bail!("expected {{{{end}}}}"),
        },
        Some("else if") => {
            let Some(Piece::Action(tokens)) = pieces.pop() else { bail!("expected an action") };
            let inner = match tokens.split_first() {
                Some((Token::Word(word), rest)) if word == "if" || word == "with" => {
                    condition(pieces, rest, word == "with")?
                }
                _ => bail!("expected if or with behind else"),
            };
            Ok((then, vec![inner]))
        }
        _ => bail!("unexpected EOF: {{{{end}}}} is missing"),
    }
}

fn condition(pieces: &mut Vec<Piece>, tokens: &[Token], rebinds: bool) -> Result<Part> {
    let condition = pipeline(tokens)?;
    let (then, otherwise) = branches(pieces)?;
    Ok(Part::If { condition, then, otherwise, rebinds })
}

fn range(pieces: &mut Vec<Piece>, tokens: &[Token]) -> Result<Part> {
    let (key, item, over) = match tokens {
        [
            Token::Field(Some(key), _),
            Token::Sign(","),
            Token::Field(Some(item), _),
            Token::Sign(":="),
            over @ ..,
        ] => (Some(key.clone()), Some(item.clone()), over),
        [Token::Field(Some(item), _), Token::Sign(":="), over @ ..] => (None, Some(item.clone()), over),
        over => (None, None, over),
    };
    let over = pipeline(over)?;
    let (body, otherwise) = branches(pieces)?;
    Ok(Part::Range { key, item, over, body, otherwise })
}

fn pipeline(tokens: &[Token]) -> Result<Pipeline> {
    let mut commands = Vec::new();
    let (mut depth, mut from) = (0, 0);
    for at in 0..=tokens.len() {
        match tokens.get(at) {
            Some(Token::Sign("(")) => depth += 1,
            Some(Token::Sign(")")) => depth -= 1,
            None | Some(Token::Sign("|")) if depth == 0 => {
                commands.push(command(&tokens[from..at])?);
                from = at + 1;
            }
            None => bail!("unclosed left paren"),
            _ => {}
        }
    }
    Ok(commands)
}

fn command(tokens: &[Token]) -> Result<Command> {
    if let Some((Token::Word(name), rest)) = tokens.split_first() {
        if !NAMES.contains(&name.as_str()) {
            bail!("function \"{name}\" not defined");
        }
        return Ok(Command::Call(name.clone(), operands(rest)?));
    }
    match operands(tokens)?.as_slice() {
        [] => bail!("missing value for command"),
        [operand] => Ok(Command::Operand(operand.clone())),
        _ => bail!("can't give argument to non-function"),
    }
}

fn operands(tokens: &[Token]) -> Result<Vec<Operand>> {
    let mut operands: Vec<Operand> = Vec::new();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        at += 1;
        let (root, fields) = match token {
            Token::Literal(value) => (Root::Literal(value.clone()), Vec::new()),
            Token::Field(None, fields) => (Root::Dot, fields.clone()),
            Token::Field(Some(name), fields) => (Root::Variable(name.clone()), fields.clone()),
            Token::Word(name) => (Root::Nested(vec![Command::Call(name.clone(), Vec::new())]), Vec::new()),
            Token::Sign("(") => {
                let mut depth = 1;
                let from = at;
                while depth > 0 {
                    match tokens.get(at) {
                        Some(Token::Sign("(")) => depth += 1,
                        Some(Token::Sign(")")) => depth -= 1,
                        None => bail!("unclosed left paren"),
                        _ => {}
                    }
                    at += 1;
                }
                let nested = pipeline(&tokens[from..at - 1])?;
                let fields = match tokens.get(at) {
                    Some(Token::Field(Some(name), fields)) if name == ")" => {
                        at += 1;
                        fields.clone()
                    }
                    _ => Vec::new(),
                };
                (Root::Nested(nested), fields)
            }
            Token::Sign(sign) => bail!("unexpected {sign:?} in an action"),
        };
        operands.push(Operand { root, fields });
    }
    Ok(operands)
}
