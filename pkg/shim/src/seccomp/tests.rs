use super::*;
use serde_json::json;

const NATIVE: u32 = if cfg!(target_arch = "aarch64") { 0xc000_00b7 } else { 0xc000_003e };

fn filter(default: &str, syscalls: serde_json::Value) -> Seccomp {
    let text = json!({"defaultAction": default, "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86",
        "SCMP_ARCH_AARCH64"], "syscalls": syscalls});
    serde_json::from_value(text).expect("a filter")
}

/// The kernel's machine, for what is used here.
fn run(program: &[u64], audit: u32, number: u32, arguments: [u64; 6]) -> u32 {
    let mut data = vec![number, audit, 0, 0];
    data.extend(arguments.iter().flat_map(|argument| [*argument as u32, (*argument >> 32) as u32]));
    let (mut at, mut held) = (0, 0u32);
    loop {
        let instruction = program[at];
        let (yes, no) = ((instruction >> 16 & 0xff) as usize, (instruction >> 24 & 0xff) as usize);
        let value = (instruction >> 32) as u32;
        at += 1;
        match (instruction & 0xffff) as u16 {
            LOAD => held = data[value as usize / 4],
            AND => held &= value,
            RETURN => return value,
            JUMP => at += value as usize,
            IF_EQUAL => at += if held == value { yes } else { no },
            IF_ABOVE => at += if held > value { yes } else { no },
            IF_AT_LEAST => at += if held >= value { yes } else { no },
            other => panic!("{other}"),
        }
    }
}

fn number(name: &str) -> u32 {
    syscalls::Sysno::from_str(name).expect("known").id() as u32
}

#[test]
fn calls_get_what_is_said_of_them_and_others_the_default() {
    let rules = json!([
        {"names": ["read", "write", "no_such_call"], "action": "SCMP_ACT_ALLOW"},
        {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38},
    ]);
    let program = compile(&filter("SCMP_ACT_ERRNO", rules)).expect("ours");
    let check =
        |name: &str, expected| assert_eq!(run(&program, NATIVE, number(name), [0; 6]), expected, "{name}");
    check("read", ALLOW);
    check("write", ALLOW);
    check("clone3", ERRNO | ENOSYS);
    check("mount", ERRNO | EPERM);
    // Newer than all that the filter knows: not there, rather than forbidden.
    check("futex_waitv", ERRNO | ENOSYS);
    assert_eq!(run(&program, NATIVE, 0x4000_0000, [0; 6]), ERRNO | ENOSYS, "x32");
    assert_eq!(run(&program, 0xdead, number("read"), [0; 6]), KILL_PROCESS, "another machine's");
    assert_eq!(run(&program, 0x4000_0003, 3, [0; 6]), ALLOW, "read, of 32 bits");
}

#[test]
fn arguments_are_compared_with_all_their_bits() {
    let big = 1u64 << 40;
    for (op, value, two, yes, no) in [
        ("SCMP_CMP_EQ", big, 0, vec![big], vec![0, big + 1, 1]),
        ("SCMP_CMP_NE", 40, 0, vec![41, big + 40], vec![40]),
        ("SCMP_CMP_GT", big, 0, vec![big + 1, big << 1], vec![big, 1, u64::from(u32::MAX)]),
        ("SCMP_CMP_GE", big, 0, vec![big, big + 1], vec![big - 1]),
        ("SCMP_CMP_LT", big, 0, vec![big - 1, 0], vec![big, big + 1]),
        ("SCMP_CMP_LE", big, 0, vec![big, 7], vec![big + 1, big << 1]),
        ("SCMP_CMP_MASKED_EQ", 0x7e02_0000, 0, vec![0x11, big], vec![0x2_0000, 0x7e02_0000]),
    ] {
        let argument = json!([{"index": 1, "value": value, "valueTwo": two, "op": op}]);
        let rules = json!([{"names": ["personality"], "action": "SCMP_ACT_ALLOW", "args": argument}]);
        let program = compile(&filter("SCMP_ACT_ERRNO", rules)).expect("ours");
        let result = |value| run(&program, NATIVE, number("personality"), [0, value, 0, 0, 0, 0]);
        yes.into_iter().for_each(|value| assert_eq!(result(value), ALLOW, "{op} {value}"));
        no.into_iter().for_each(|value| assert_eq!(result(value), ERRNO | EPERM, "{op} {value}"));
    }
}

#[test]
fn one_of_several_rules_is_enough_and_all_of_its_conditions_are_needed() {
    let rules = json!([
        {"names": ["personality"], "action": "SCMP_ACT_ALLOW",
         "args": [{"index": 0, "value": 0, "op": "SCMP_CMP_EQ"}, {"index": 1, "value": 5, "op": "SCMP_CMP_EQ"}]},
        {"names": ["personality"], "action": "SCMP_ACT_ALLOW", "args": [{"index": 0, "value": 8, "op": "SCMP_CMP_EQ"}]},
    ]);
    let program = compile(&filter("SCMP_ACT_ERRNO", rules)).expect("ours");
    for (first, second, expected) in
        [(0, 5, ALLOW), (0, 6, ERRNO | EPERM), (8, 9, ALLOW), (7, 5, ERRNO | EPERM)]
    {
        let result = run(&program, NATIVE, number("personality"), [first, second, 0, 0, 0, 0]);
        assert_eq!(result, expected, "{first} {second}");
    }
}

#[test]
fn what_libseccomp_does_otherwise_is_runcs() {
    let one = |action: &str| json!([{"names": ["read"], "action": action}]);
    let two = json!([{"names": ["read"], "action": "SCMP_ACT_ALLOW"}, {"names": ["read"], "action": "SCMP_ACT_LOG"}]);
    let twice = json!([{"names": ["read"], "action": "SCMP_ACT_ALLOW", "args":
        [{"index": 0, "value": 1, "op": "SCMP_CMP_EQ"}, {"index": 0, "value": 2, "op": "SCMP_CMP_EQ"}]}]);
    for refused in [
        filter("SCMP_ACT_ALLOW", one("SCMP_ACT_ERRNO")),
        filter("SCMP_ACT_ERRNO", one("SCMP_ACT_NOTIFY")),
        filter("SCMP_ACT_TRACE", one("SCMP_ACT_ALLOW")),
        filter("SCMP_ACT_ERRNO", two),
        filter("SCMP_ACT_ERRNO", twice),
        Seccomp {
            architectures: vec!["SCMP_ARCH_MIPS".to_owned()],
            ..filter("SCMP_ACT_ERRNO", one("SCMP_ACT_ALLOW"))
        },
    ] {
        assert!(compile(&refused).is_err(), "{refused:?}");
    }
}
