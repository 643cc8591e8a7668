//! Filters of system calls: from a specification's words to the kernel's small programs.
//!
//! ```text
//! arch? ──> number in a range? ──> (arguments?) ──> action … ──> newer than all that are known? ENOSYS ──> default
//! ```
//!
//! What libseccomp would do otherwise than this is not done here but handed to runc: lists of what is forbidden
//! (32-bit programs have more than one way to make a call), different actions for one call, tracing and notifying.

use crate::oci::{Seccomp, Syscall, SyscallArg};
use std::collections::BTreeMap;
use std::str::FromStr;

const KILL_PROCESS: u32 = 0x8000_0000;
const KILL_THREAD: u32 = 0;
const TRAP: u32 = 0x0003_0000;
const ERRNO: u32 = 0x0005_0000;
const LOG: u32 = 0x7ffc_0000;
const ALLOW: u32 = 0x7fff_0000;
const EPERM: u32 = 1;
const ENOSYS: u32 = 38;
/// The bit that calls of x32 have; none of them is let through.
const X32: u32 = 0x4000_0000;

const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const RETURN: u16 = 0x06;
const JUMP: u16 = 0x05;
const IF_EQUAL: u16 = 0x15;
const IF_ABOVE: u16 = 0x25;
const IF_AT_LEAST: u16 = 0x35;
/// Where the kernel says what is called.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;
/// No program is longer.
const LONGEST: usize = 4096;
/// A jump by a condition reaches no further.
const FARTHEST: usize = 250;

/// One instruction: code, jump if true, jump if false, value; eight bytes.
fn instruction(code: u16, yes: u8, no: u8, value: u32) -> u64 {
    u64::from(code) | u64::from(yes) << 16 | u64::from(no) << 24 | u64::from(value) << 32
}

/// A machine language: the kernel's name of it, and the numbers of its calls.
struct Language {
    audit: u32,
    number: fn(&str) -> Option<u32>,
}

fn languages(names: &[String]) -> Result<Vec<Language>, String> {
    let mut languages: Vec<Language> = Vec::new();
    for name in names {
        let language = match name.as_str() {
            "SCMP_ARCH_X86_64" => Language {
                audit: 0xc000_003e,
                number: |name| syscalls::x86_64::Sysno::from_str(name).ok().map(|call| call.id() as u32),
            },
            "SCMP_ARCH_X86" => Language {
                audit: 0x4000_0003,
                number: |name| syscalls::x86::Sysno::from_str(name).ok().map(|call| call.id() as u32),
            },
            "SCMP_ARCH_AARCH64" => Language {
                audit: 0xc000_00b7,
                number: |name| syscalls::aarch64::Sysno::from_str(name).ok().map(|call| call.id() as u32),
            },
            "SCMP_ARCH_ARM" => Language {
                audit: 0x4000_0028,
                number: |name| syscalls::arm::Sysno::from_str(name).ok().map(|call| call.id() as u32),
            },
            "SCMP_ARCH_X32" => continue,
            other => return Err(format!("seccomp for {other}")),
        };
        if !languages.iter().any(|known| known.audit == language.audit) {
            languages.push(language);
        }
    }
    // libseccomp means the node's own, whatever else is named.
    let own = if cfg!(target_arch = "aarch64") { 0xc000_00b7 } else { 0xc000_003e };
    if !languages.iter().any(|language| language.audit == own) {
        return Err("seccomp without this machine's own architecture".to_owned());
    }
    Ok(languages)
}

fn action(name: &str, errno: Option<u32>) -> Result<u32, String> {
    Ok(match name {
        "SCMP_ACT_KILL" | "SCMP_ACT_KILL_THREAD" => KILL_THREAD,
        "SCMP_ACT_KILL_PROCESS" => KILL_PROCESS,
        "SCMP_ACT_TRAP" => TRAP,
        "SCMP_ACT_ERRNO" => ERRNO | (errno.unwrap_or(EPERM) & 0xffff),
        "SCMP_ACT_ALLOW" => ALLOW,
        "SCMP_ACT_LOG" => LOG,
        other => return Err(format!("seccomp action {other}")),
    })
}

/// What befalls one call.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Rule {
    Always(u32),
    /// If all of one of these lists is true of the arguments.
    If(u32, Vec<Vec<Condition>>),
}

/// A condition, with nothing unknown in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Condition {
    index: u32,
    op: Comparison,
    value: u64,
    mask: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    Unequal,
    Above,
    AtLeast,
    Below,
    AtMost,
}

/// The kernel's program for a filter; why it is not done here.
pub fn compile(filter: &Seccomp) -> Result<Vec<u64>, String> {
    let default = action(&filter.default_action, filter.default_errno_ret)?;
    if matches!(default, ALLOW | LOG) && !filter.syscalls.is_empty() {
        return Err("seccomp that lists what is forbidden".to_owned());
    }
    let languages = languages(&filter.architectures)?;
    let mut program = Vec::new();
    for language in &languages {
        let body = of_language(language, filter, default)?;
        let length = u32::try_from(body.len()).map_err(|error| error.to_string())?;
        program.push(instruction(LOAD, 0, 0, ARCHITECTURE));
        program.push(instruction(IF_EQUAL, 1, 0, language.audit));
        program.push(instruction(JUMP, 0, 0, length));
        program.extend(body);
    }
    program.push(instruction(RETURN, 0, 0, KILL_PROCESS));
    if program.len() > LONGEST {
        return Err("a very long seccomp filter".to_owned());
    }
    Ok(program)
}

fn of_language(language: &Language, filter: &Seccomp, default: u32) -> Result<Vec<u64>, String> {
    let mut rules: BTreeMap<u32, Rule> = BTreeMap::new();
    for syscall in &filter.syscalls {
        let rule = rule(syscall)?;
        for name in &syscall.names {
            let Some(number) = (language.number)(name) else { continue };
            let joined = match (rules.remove(&number), rule.clone()) {
                (None, new) => new,
                (Some(Rule::Always(a)), Rule::Always(b) | Rule::If(b, _)) if a == b => Rule::Always(a),
                (Some(Rule::If(a, _)), Rule::Always(b)) if a == b => Rule::Always(a),
                (Some(Rule::If(a, mut one)), Rule::If(b, other)) if a == b => {
                    one.extend(other);
                    Rule::If(a, one)
                }
                _ => return Err(format!("seccomp with several actions for {name}")),
            };
            rules.insert(number, joined);
        }
    }
    let newest = rules.keys().next_back().copied().unwrap_or(0);
    let mut body = vec![instruction(LOAD, 0, 0, NUMBER)];
    // Programs of x32 call by the same door with a bit set: never more than that they do not exist.
    body.push(instruction(IF_AT_LEAST, 0, 1, X32));
    body.push(instruction(RETURN, 0, 0, ERRNO | ENOSYS));
    for (first, last, rule) in ranges(rules) {
        let then = match rule {
            Rule::Always(action) => vec![instruction(RETURN, 0, 0, action)],
            Rule::If(action, conditions) => if_any(action, &conditions, default)?,
        };
        // The numbers rise: what is below this range was in none before it.
        let length = then.len() + 2;
        if length > FARTHEST {
            return Err("a very long rule of seccomp".to_owned());
        }
        body.push(instruction(IF_ABOVE, length as u8, 0, last));
        body.push(instruction(IF_AT_LEAST, 1, 0, first));
        body.push(instruction(RETURN, 0, 0, default));
        body.extend(then);
    }
    // A program asks for what is newer than the filter, and must hear that it is not there, to do without.
    let unknown = if matches!(default, ALLOW | LOG) { default } else { ERRNO | ENOSYS };
    body.push(instruction(IF_ABOVE, 0, 1, newest));
    body.push(instruction(RETURN, 0, 0, unknown));
    body.push(instruction(RETURN, 0, 0, default));
    Ok(body)
}

/// Numbers that follow each other and have the same rule.
fn ranges(rules: BTreeMap<u32, Rule>) -> Vec<(u32, u32, Rule)> {
    let mut ranges: Vec<(u32, u32, Rule)> = Vec::new();
    for (number, rule) in rules {
        match ranges.last_mut() {
            Some((_, last, same)) if *last + 1 == number && *same == rule => *last = number,
            _ => ranges.push((number, number, rule)),
        }
    }
    ranges
}

fn rule(syscall: &Syscall) -> Result<Rule, String> {
    let action = action(&syscall.action, syscall.errno_ret)?;
    if syscall.args.is_empty() {
        return Ok(Rule::Always(action));
    }
    for (index, argument) in syscall.args.iter().enumerate() {
        if argument.index > 5 || syscall.args[..index].iter().any(|earlier| earlier.index == argument.index) {
            return Err("seccomp with several conditions for one argument".to_owned());
        }
    }
    let conditions: Vec<Condition> = syscall.args.iter().map(condition).collect::<Result<_, _>>()?;
    Ok(Rule::If(action, vec![conditions]))
}

fn condition(argument: &SyscallArg) -> Result<Condition, String> {
    let (op, value, mask) = match argument.op.as_str() {
        "SCMP_CMP_EQ" => (Comparison::Equal, argument.value, u64::MAX),
        "SCMP_CMP_NE" => (Comparison::Unequal, argument.value, u64::MAX),
        "SCMP_CMP_GT" => (Comparison::Above, argument.value, u64::MAX),
        "SCMP_CMP_GE" => (Comparison::AtLeast, argument.value, u64::MAX),
        "SCMP_CMP_LT" => (Comparison::Below, argument.value, u64::MAX),
        "SCMP_CMP_LE" => (Comparison::AtMost, argument.value, u64::MAX),
        "SCMP_CMP_MASKED_EQ" => (Comparison::Equal, argument.value_two & argument.value, argument.value),
        other => return Err(format!("seccomp comparison {other}")),
    };
    Ok(Condition { index: argument.index, op, value, mask })
}

/// The action if one of these lists is true, else the default.
fn if_any(action: u32, lists: &[Vec<Condition>], default: u32) -> Result<Vec<u64>, String> {
    let mut body = Vec::new();
    for list in lists {
        // Written from its end: each condition that fails jumps to what follows the list.
        let mut rest = vec![instruction(RETURN, 0, 0, action)];
        for condition in list.iter().rev() {
            if rest.len() > FARTHEST - 8 {
                return Err("a very long rule of seccomp".to_owned());
            }
            let mut this = compare(condition, rest.len() as u8);
            this.extend(rest);
            rest = this;
        }
        body.extend(rest);
    }
    body.push(instruction(RETURN, 0, 0, default));
    Ok(body)
}

/// Falls through if it is true, and jumps over so many instructions that follow if it is not.
fn compare(condition: &Condition, over: u8) -> Vec<u64> {
    let low_at = ARGUMENTS + 8 * condition.index;
    let (low, high) = (condition.value as u32, (condition.value >> 32) as u32);
    let (low_mask, high_mask) = (condition.mask as u32, (condition.mask >> 32) as u32);
    let load_low = [instruction(LOAD, 0, 0, low_at), instruction(AND, 0, 0, low_mask)];
    let load_high = [instruction(LOAD, 0, 0, low_at + 4), instruction(AND, 0, 0, high_mask)];
    // After the high half: `low half` is three instructions, and then comes what follows.
    let [load_high, mask_high] = load_high;
    let [load_low, mask_low] = load_low;
    let halves = |high_part: Vec<u64>, low_part: u64| {
        [vec![load_high, mask_high], high_part, vec![load_low, mask_low, low_part]].concat()
    };
    match condition.op {
        Comparison::Equal => {
            halves(vec![instruction(IF_EQUAL, 0, 3 + over, high)], instruction(IF_EQUAL, 0, over, low))
        }
        Comparison::Unequal => {
            halves(vec![instruction(IF_EQUAL, 0, 3, high)], instruction(IF_EQUAL, over, 0, low))
        }
        Comparison::Above => halves(
            vec![instruction(IF_ABOVE, 4, 0, high), instruction(IF_EQUAL, 0, 3 + over, high)],
            instruction(IF_ABOVE, 0, over, low),
        ),
        Comparison::AtLeast => halves(
            vec![instruction(IF_ABOVE, 4, 0, high), instruction(IF_EQUAL, 0, 3 + over, high)],
            instruction(IF_AT_LEAST, 0, over, low),
        ),
        Comparison::Below => halves(
            vec![instruction(IF_ABOVE, 4 + over, 0, high), instruction(IF_EQUAL, 0, 3, high)],
            instruction(IF_AT_LEAST, over, 0, low),
        ),
        Comparison::AtMost => halves(
            vec![instruction(IF_ABOVE, 4 + over, 0, high), instruction(IF_EQUAL, 0, 3, high)],
            instruction(IF_ABOVE, over, 0, low),
        ),
    }
}

#[cfg(test)]
mod tests;
