//! What Kubernetes adds to the language: functions of lists, sets, regular expressions, quantities, URLs and times.

use crate::crd::regexp;
use crate::kinds::batch::schedule::parse_go_duration;
use crate::quantity::Quantity;
use cel::common::traits::{Adder, Comparer, Subtractor};
use cel::common::types::{CelBool, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelString, Type};
use cel::common::types::{DYN_TYPE, INT_TYPE, LIST_TYPE, STRING_TYPE};
use cel::common::value::{CowVal, StaticVal, Val};
use cel::{DeclarationError, Env, ExecutionError};
use jiff::{SignedDuration, Timestamp, tz::Offset};
use regex::Regex;
use std::any::Any;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

/// The functions declared here.
pub(super) const NAMES: [&str; 39] = [
    "add",
    "asApproximateFloat",
    "asInteger",
    "compareTo",
    "duration",
    "equivalent",
    "find",
    "findAll",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getEscapedPath",
    "getFullYear",
    "getHost",
    "getHostname",
    "getHours",
    "getMilliseconds",
    "getMinutes",
    "getMonth",
    "getPort",
    "getQuery",
    "getScheme",
    "getSeconds",
    "intersects",
    "isGreaterThan",
    "isInteger",
    "isLessThan",
    "isQuantity",
    "isSorted",
    "isURL",
    "max",
    "min",
    "quantity",
    "sign",
    "sub",
    "sum",
    "timestamp",
    "url",
];
/// `matches`, with patterns as Go writes them and compiled once.
pub(super) const MATCHES: &str = "@matches";

/// A value of a type that the language itself does not have here.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Native {
    Quantity(Quantity),
    Duration(SignedDuration),
    Timestamp(Timestamp),
    Url(Url),
}

static QUANTITY: Type = Type::new_unspecified_type("kubernetes.Quantity");
static DURATION: Type = Type::new_unspecified_type("google.protobuf.Duration");
static TIMESTAMP: Type = Type::new_unspecified_type("google.protobuf.Timestamp");
static URL: Type = Type::new_unspecified_type("kubernetes.URL");

impl Native {
    /// A string of this format as the value that it stands for, if it is one.
    pub(crate) fn of_format(format: &str, text: &str) -> Option<Native> {
        match format {
            "duration" => parse_go_duration(text).ok().map(Native::Duration),
            "date" => format!("{text}T00:00:00Z").parse().ok().map(Native::Timestamp),
            "date-time" => text.parse().ok().map(Native::Timestamp),
            _ => None,
        }
    }

    fn order(&self, other: &dyn Val) -> Option<Ordering> {
        match (self, other.downcast_ref::<Native>()?) {
            (Native::Quantity(a), Native::Quantity(b)) => Some(a.cmp(b)),
            (Native::Duration(a), Native::Duration(b)) => Some(a.cmp(b)),
            (Native::Timestamp(a), Native::Timestamp(b)) => Some(a.cmp(b)),
            _ => None,
        }
    }
}

impl Val for Native {
    fn get_type(&self) -> &Type {
        match self {
            Native::Quantity(_) => &QUANTITY,
            Native::Duration(_) => &DURATION,
            Native::Timestamp(_) => &TIMESTAMP,
            Native::Url(_) => &URL,
        }
    }

    fn cel_type() -> &'static Type {
        &DYN_TYPE
    }

    fn as_comparer(&self) -> Option<&dyn Comparer> {
        Some(self)
    }

    fn as_adder<'b, 'v>(&'b self) -> Option<&'b (dyn Adder + 'v)>
    where
        Self: 'v,
    {
        Some(self)
    }

    fn as_subtractor<'b, 'v>(&'b self) -> Option<&'b (dyn Subtractor + 'v)>
    where
        Self: 'v,
    {
        Some(self)
    }

    fn equals(&self, other: &dyn Val) -> bool {
        other.downcast_ref::<Native>() == Some(self)
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
        Box::new(self.clone())
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl StaticVal for Native {}

impl Comparer for Native {
    fn compare(&self, other: &dyn Val) -> Result<Ordering, ExecutionError> {
        self.order(other).ok_or_else(|| no_overload("_<_", &[self, other]))
    }
}

impl Adder for Native {
    fn add<'b, 'v>(&'b self, other: &(dyn Val + 'v)) -> Result<CowVal<'b, 'v>, ExecutionError>
    where
        Self: 'v,
    {
        let sum = match (self, other.downcast_ref::<Native>()) {
            (Native::Duration(a), Some(Native::Duration(b))) => a.checked_add(*b).map(Native::Duration),
            (Native::Timestamp(at), Some(Native::Duration(by)))
            | (Native::Duration(by), Some(Native::Timestamp(at))) => {
                at.checked_add(*by).ok().map(Native::Timestamp)
            }
            _ => None,
        };
        sum.map(CowVal::owned).ok_or_else(|| no_overload("_+_", &[self, other]))
    }
}

impl Subtractor for Native {
    fn sub<'b, 'v>(&'b self, other: &(dyn Val + 'v)) -> Result<CowVal<'b, 'v>, ExecutionError>
    where
        Self: 'v,
    {
        let difference = match (self, other.downcast_ref::<Native>()) {
            (Native::Duration(a), Some(Native::Duration(b))) => a.checked_sub(*b).map(Native::Duration),
            (Native::Timestamp(at), Some(Native::Duration(by))) => {
                at.checked_sub(*by).ok().map(Native::Timestamp)
            }
            (Native::Timestamp(a), Some(Native::Timestamp(b))) => {
                Some(Native::Duration(a.duration_since(*b)))
            }
            _ => None,
        };
        difference.map(CowVal::owned).ok_or_else(|| no_overload("_-_", &[self, other]))
    }
}

type Function = cel::common::functions::Function;
type Answer<'b, 'v> = Result<CowVal<'b, 'v>, ExecutionError>;

/// Declares the functions.
pub(super) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    let mut declared = 0;
    let mut function = |name: &str, target: Option<&Type>, arguments: &[&Type], op: Function| {
        declared += 1;
        let id = format!("{name}_{declared}");
        let arguments = arguments.iter().map(|ty| (*ty).to_owned()).collect();
        match target {
            Some(target) => env.add_member_overload(name, &id, target.to_owned(), arguments, op),
            None => env.add_overload(name, &id, arguments, op),
        }
    };
    let (list, string) = (Some(&LIST_TYPE), Some(&STRING_TYPE));
    function("isSorted", list, &[], |args| {
        let list = elements(&args[0]);
        let mut pairs = list.iter().zip(list.iter().skip(1));
        let sorted = pairs.try_fold(true, |sorted, (a, b)| Ok(sorted && compare(*a, *b)?.is_le()));
        sorted.map(boolean)
    })?;
    function("sum", list, &[], |args| {
        let mut sum: Option<Box<dyn Val + '_>> = None;
        for element in elements(&args[0]) {
            sum = Some(match &sum {
                None => element.clone_as_boxed(),
                Some(sum) => {
                    let adder = sum.as_adder().ok_or_else(|| no_overload("sum", &[element]))?;
                    adder.add(element)?.into_owned()
                }
            });
        }
        Ok(CowVal::Owned(sum.unwrap_or_else(|| Box::new(CelInt::from(0)))))
    })?;
    function("min", list, &[], |args| extreme("min", &args[0], Ordering::Less))?;
    function("max", list, &[], |args| extreme("max", &args[0], Ordering::Greater))?;
    function("indexOf", list, &[&DYN_TYPE], |args| {
        Ok(index(elements(&args[0]).iter().position(|element| element.equals(&*args[1]))))
    })?;
    function("lastIndexOf", list, &[&DYN_TYPE], |args| {
        Ok(index(elements(&args[0]).iter().rposition(|element| element.equals(&*args[1]))))
    })?;
    function("sets.contains", None, &[&LIST_TYPE, &LIST_TYPE], |args| {
        Ok(boolean(contains_all(&args[0], &args[1])))
    })?;
    function("sets.equivalent", None, &[&LIST_TYPE, &LIST_TYPE], |args| {
        Ok(boolean(contains_all(&args[0], &args[1]) && contains_all(&args[1], &args[0])))
    })?;
    function("sets.intersects", None, &[&LIST_TYPE, &LIST_TYPE], |args| {
        let other = elements(&args[1]);
        Ok(boolean(elements(&args[0]).iter().any(|a| other.iter().any(|b| a.equals(*b)))))
    })?;
    for target in [string, None] {
        let arguments: &[&Type] =
            if target.is_some() { &[&STRING_TYPE] } else { &[&STRING_TYPE, &STRING_TYPE] };
        function(MATCHES, target, arguments, |args| {
            Ok(boolean(pattern(text(&args[1]))?.is_match(text(&args[0]))))
        })?;
    }
    function("find", string, &[&STRING_TYPE], |args| {
        let regex = pattern(text(&args[1]))?;
        Ok(string_of(regex.find(text(&args[0])).map_or("", |found| found.as_str())))
    })?;
    function("findAll", string, &[&STRING_TYPE], |args| find_all(&args[0], &args[1], usize::MAX))?;
    function("findAll", string, &[&STRING_TYPE, &INT_TYPE], |args| {
        let most = usize::try_from(integer(&args[2])).unwrap_or(usize::MAX);
        find_all(&args[0], &args[1], most)
    })?;
    declare_quantities(&mut function)?;
    declare_times(&mut function)?;
    declare_urls(&mut function)
}

/// Declares one function: its name, what it is called on, its other arguments.
type Declare<'a> = dyn FnMut(&str, Option<&Type>, &[&Type], Function) -> Result<(), DeclarationError> + 'a;

fn declare_quantities(function: &mut Declare<'_>) -> Result<(), DeclarationError> {
    let quantity = Some(&QUANTITY);
    function("quantity", None, &[&STRING_TYPE], |args| {
        let parsed =
            text(&args[0]).parse().map_err(|error| ExecutionError::function_error("quantity", error))?;
        Ok(CowVal::owned(Native::Quantity(parsed)))
    })?;
    function("isQuantity", None, &[&STRING_TYPE], |args| {
        Ok(boolean(text(&args[0]).parse::<Quantity>().is_ok()))
    })?;
    for target in [quantity, None] {
        let arguments: &[&Type] = if target.is_some() { &[] } else { &[&QUANTITY] };
        function("sign", target, arguments, |args| Ok(order(amount(&args[0]).cmp(&Quantity::default()))))?;
    }
    function("isGreaterThan", quantity, &[&QUANTITY], |args| {
        Ok(boolean(amount(&args[0]) > amount(&args[1])))
    })?;
    function("isLessThan", quantity, &[&QUANTITY], |args| Ok(boolean(amount(&args[0]) < amount(&args[1]))))?;
    function("compareTo", quantity, &[&QUANTITY], |args| Ok(order(amount(&args[0]).cmp(&amount(&args[1])))))?;
    function("isInteger", quantity, &[], |args| Ok(boolean(amount(&args[0]).is_whole())))?;
    function("asInteger", quantity, &[], |args| match amount(&args[0]) {
        amount if amount.is_whole() => Ok(CowVal::owned(CelInt::from(amount.value()))),
        _ => Err(ExecutionError::function_error("asInteger", "cannot convert value to integer")),
    })?;
    function("asApproximateFloat", quantity, &[], |args| {
        Ok(CowVal::owned(CelDouble::from(amount(&args[0]).milli_value() as f64 / 1000.0)))
    })?;
    for other in [&QUANTITY, &INT_TYPE] {
        function("add", quantity, &[other], |args| {
            Ok(CowVal::owned(Native::Quantity(amount(&args[0]) + amount(&args[1]))))
        })?;
        function("sub", quantity, &[other], |args| {
            Ok(CowVal::owned(Native::Quantity(amount(&args[0]) - amount(&args[1]))))
        })?;
    }
    Ok(())
}

fn declare_times(function: &mut Declare<'_>) -> Result<(), DeclarationError> {
    function("duration", None, &[&STRING_TYPE], |args| native("duration", "duration", &args[0]))?;
    function("duration", None, &[&DURATION], |mut args| Ok(args.remove(0)))?;
    function("timestamp", None, &[&STRING_TYPE], |args| native("timestamp", "date-time", &args[0]))?;
    function("timestamp", None, &[&TIMESTAMP], |mut args| Ok(args.remove(0)))?;
    for ty in [&DURATION, &TIMESTAMP] {
        function("string", None, &[ty], |args| Ok(string_of(&written(&args[0]))))?;
    }
    function("int", None, &[&TIMESTAMP], |args| Ok(CowVal::owned(CelInt::from(unix_seconds(&args[0])))))?;
    let of_durations: [(&str, Function); 4] = [
        ("getHours", |args| Ok(length(&args[0], 3_600_000))),
        ("getMinutes", |args| Ok(length(&args[0], 60_000))),
        ("getSeconds", |args| Ok(length(&args[0], 1000))),
        ("getMilliseconds", |args| Ok(length(&args[0], 1))),
    ];
    for (name, getter) in of_durations {
        function(name, Some(&DURATION), &[], getter)?;
    }
    let of_timestamps: [(&str, Function); 10] = [
        ("getFullYear", |args| Ok(part(&args[0], |at| at.year().into()))),
        ("getMonth", |args| Ok(part(&args[0], |at| i64::from(at.month()) - 1))),
        ("getDate", |args| Ok(part(&args[0], |at| at.day().into()))),
        ("getDayOfMonth", |args| Ok(part(&args[0], |at| i64::from(at.day()) - 1))),
        ("getDayOfWeek", |args| Ok(part(&args[0], |at| at.weekday().to_sunday_zero_offset().into()))),
        ("getDayOfYear", |args| Ok(part(&args[0], |at| i64::from(at.day_of_year()) - 1))),
        ("getHours", |args| Ok(part(&args[0], |at| at.hour().into()))),
        ("getMinutes", |args| Ok(part(&args[0], |at| at.minute().into()))),
        ("getSeconds", |args| Ok(part(&args[0], |at| at.second().into()))),
        ("getMilliseconds", |args| Ok(part(&args[0], |at| at.millisecond().into()))),
    ];
    for (name, getter) in of_timestamps {
        function(name, Some(&TIMESTAMP), &[], getter)?;
    }
    Ok(())
}

fn declare_urls(function: &mut Declare<'_>) -> Result<(), DeclarationError> {
    function("isURL", None, &[&STRING_TYPE], |args| Ok(boolean(Url::parse(text(&args[0])).is_some())))?;
    function("url", None, &[&STRING_TYPE], |args| {
        let text = text(&args[0]);
        let why = || {
            format!("URL parse error during conversion from string: parse {text:?}: invalid URI for request")
        };
        let url = Url::parse(text).ok_or_else(|| ExecutionError::function_error("url", why()))?;
        Ok(CowVal::owned(Native::Url(url)))
    })?;
    let getters: [(&str, Function); 6] = [
        ("getScheme", |args| Ok(string_of(&url(&args[0]).scheme))),
        ("getHost", |args| Ok(string_of(&url(&args[0]).host))),
        ("getHostname", |args| Ok(string_of(url(&args[0]).split_host().0))),
        ("getPort", |args| Ok(string_of(url(&args[0]).split_host().1))),
        ("getEscapedPath", |args| Ok(string_of(&url(&args[0]).path))),
        ("getQuery", |args| Ok(CowVal::owned(url(&args[0]).query()))),
    ];
    for (name, getter) in getters {
        function(name, Some(&URL), &[], getter)?;
    }
    Ok(())
}

fn no_overload(function: &str, arguments: &[&dyn Val]) -> ExecutionError {
    let types = arguments.iter().map(|argument| argument.get_type().name().to_owned()).collect();
    ExecutionError::no_such_overload(function, types)
}

fn boolean<'b, 'v>(answer: bool) -> CowVal<'b, 'v> {
    CowVal::owned(CelBool::from(answer))
}

fn string_of<'b, 'v>(text: &str) -> CowVal<'b, 'v> {
    CowVal::owned(CelString::from(text.to_owned()))
}

fn order<'b, 'v>(order: Ordering) -> CowVal<'b, 'v> {
    CowVal::owned(CelInt::from(order as i64))
}

fn index<'b, 'v>(position: Option<usize>) -> CowVal<'b, 'v> {
    CowVal::owned(CelInt::from(position.map_or(-1, |position| position as i64)))
}

fn text<'a>(value: &'a CowVal<'_, '_>) -> &'a str {
    value.downcast_ref::<CelString<'_>>().map(CelString::inner).unwrap_or_default()
}

fn integer(value: &CowVal<'_, '_>) -> i64 {
    value.downcast_ref::<CelInt>().map_or(0, |int| *int.inner())
}

/// The quantity here; a whole number is one too.
fn amount(value: &CowVal<'_, '_>) -> Quantity {
    match value.downcast_ref::<Native>() {
        Some(Native::Quantity(quantity)) => *quantity,
        _ => Quantity::from_value(integer(value)),
    }
}

fn native<'b, 'v>(function: &str, format: &str, value: &CowVal<'_, '_>) -> Answer<'b, 'v> {
    let parsed = Native::of_format(format, text(value));
    let why = || format!("invalid {function} {:?}", text(value));
    parsed.map(CowVal::owned).ok_or_else(|| ExecutionError::function_error(function, why()))
}

fn written(value: &CowVal<'_, '_>) -> String {
    match value.downcast_ref::<Native>() {
        Some(Native::Duration(duration)) => format!("{}s", duration.as_secs_f64()),
        Some(Native::Timestamp(at)) => at.to_string(),
        _ => String::new(),
    }
}

fn unix_seconds(value: &CowVal<'_, '_>) -> i64 {
    match value.downcast_ref::<Native>() {
        Some(Native::Timestamp(at)) => at.as_second(),
        _ => 0,
    }
}

fn length<'b, 'v>(value: &CowVal<'_, '_>, unit_ms: i128) -> CowVal<'b, 'v> {
    let millis = match value.downcast_ref::<Native>() {
        Some(Native::Duration(duration)) => duration.as_millis(),
        _ => 0,
    };
    CowVal::owned(CelInt::from((millis / unit_ms) as i64))
}

fn part<'b, 'v>(value: &CowVal<'_, '_>, of: fn(jiff::civil::DateTime) -> i64) -> CowVal<'b, 'v> {
    let part = match value.downcast_ref::<Native>() {
        Some(Native::Timestamp(at)) => of(Offset::UTC.to_datetime(*at)),
        _ => 0,
    };
    CowVal::owned(CelInt::from(part))
}

fn elements<'a, 'v>(list: &'a CowVal<'_, 'v>) -> Vec<&'a (dyn Val + 'v)> {
    let mut elements = Vec::new();
    if let Some(iterable) = list.as_iterable() {
        let mut items = iterable.iter();
        while let Some(item) = items.next() {
            elements.push(item);
        }
    }
    elements
}

fn compare(a: &dyn Val, b: &dyn Val) -> Result<Ordering, ExecutionError> {
    a.as_comparer().ok_or_else(|| no_overload("_<_", &[a, b]))?.compare(b)
}

fn extreme<'b, 'v>(name: &str, list: &CowVal<'b, 'v>, wanted: Ordering) -> Answer<'b, 'v> {
    let mut best: Option<&(dyn Val + 'v)> = None;
    for element in elements(list) {
        if best.map_or(Ok(true), |best| compare(element, best).map(|order| order == wanted))? {
            best = Some(element);
        }
    }
    let empty = || ExecutionError::function_error(name, format!("{name} called on empty list"));
    best.map(|best| CowVal::Owned(best.clone_as_boxed())).ok_or_else(empty)
}

fn contains_all(list: &CowVal<'_, '_>, wanted: &CowVal<'_, '_>) -> bool {
    let list = elements(list);
    elements(wanted).iter().all(|wanted| list.iter().any(|element| element.equals(*wanted)))
}

fn find_all<'b, 'v>(target: &CowVal<'_, '_>, regex: &CowVal<'_, '_>, most: usize) -> Answer<'b, 'v> {
    let regex = pattern(text(regex))?;
    let found = regex.find_iter(text(target)).take(most);
    let boxed =
        |found: regex::Match<'_>| Box::new(CelString::from(found.as_str().to_owned())) as Box<dyn Val + 'v>;
    Ok(CowVal::owned(CelList::from(found.map(boxed).collect::<Vec<_>>())))
}

/// Compiled patterns that are kept: rules name the same few again and again.
const MOST_PATTERNS: usize = 128;

fn pattern(text: &str) -> Result<Regex, ExecutionError> {
    static PATTERNS: LazyLock<Mutex<HashMap<String, Regex>>> = LazyLock::new(Mutex::default);
    let mut patterns = PATTERNS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(regex) = patterns.get(text) {
        return Ok(regex.clone());
    }
    let illegal = |why: String| ExecutionError::function_error("matches", format!("Illegal regex: {why}"));
    let regex = regexp::compile(text).map_err(illegal)?;
    if patterns.len() >= MOST_PATTERNS {
        patterns.clear();
    }
    patterns.insert(text.to_owned(), regex.clone());
    Ok(regex)
}

/// A URL as a request names it: absolute, or an absolute path.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Url {
    scheme: String,
    /// With the port.
    host: String,
    path: String,
    query: String,
}

fn url<'a>(value: &'a CowVal<'_, '_>) -> &'a Url {
    static NOWHERE: LazyLock<Url> = LazyLock::new(Url::default);
    match value.downcast_ref::<Native>() {
        Some(Native::Url(url)) => url,
        _ => &NOWHERE,
    }
}

impl Url {
    fn parse(text: &str) -> Option<Url> {
        let (text, query) = text.split_once('?').unwrap_or((text, ""));
        if text.chars().any(char::is_control) || !escapes_are_whole(text) {
            return None;
        }
        if text.starts_with('/') {
            return Some(Url { path: escaped(text), query: query.to_owned(), ..Url::default() });
        }
        let (scheme, rest) = text.split_once(':')?;
        let is_scheme = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
        if !scheme.starts_with(|c: char| c.is_ascii_alphabetic()) || !scheme.chars().all(is_scheme) {
            return None;
        }
        let (host, path) = match rest.strip_prefix("//") {
            Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
            None => ("", if rest.starts_with('/') { rest } else { "" }),
        };
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        let url = Url {
            scheme: scheme.to_ascii_lowercase(),
            host: host.to_owned(),
            path: escaped(path),
            query: query.to_owned(),
        };
        let (name, port) = url.split_host();
        let is_host = |c: char| !c.is_whitespace() && !"<>\"\\^`{|}".contains(c);
        (name.chars().all(is_host) && port.chars().all(|c| c.is_ascii_digit())).then_some(url)
    }

    fn split_host(&self) -> (&str, &str) {
        match self.host.strip_prefix('[').and_then(|host| host.split_once(']')) {
            Some((name, port)) => (name, port.trim_start_matches(':')),
            None => self.host.rsplit_once(':').unwrap_or((&self.host, "")),
        }
    }

    fn query(&self) -> CelMap<'static> {
        let mut values: HashMap<CelMapKey<'static>, Vec<Box<dyn Val>>> = HashMap::new();
        for pair in self.query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value: Box<dyn Val> = Box::new(CelString::from(unescaped(value)));
            values.entry(CelMapKey::from(unescaped(name))).or_default().push(value);
        }
        let boxed = |(name, values)| (name, Box::new(CelList::from(values)) as Box<dyn Val>);
        CelMap::from(values.into_iter().map(boxed).collect::<HashMap<_, _>>())
    }
}

fn escapes_are_whole(text: &str) -> bool {
    text.split('%')
        .skip(1)
        .all(|after| after.len() >= 2 && after.bytes().take(2).all(|byte| byte.is_ascii_hexdigit()))
}

fn escaped(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => out.push(byte.into()),
            _ if b"-._~!$&'()*+,;=:@/%[]".contains(&byte) => out.push(byte.into()),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

fn unescaped(text: &str) -> String {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().replace('+', " ").into_bytes();
    for part in parts {
        match part.get(..2).and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                bytes.extend(part[2..].replace('+', " ").bytes());
            }
            None => bytes.extend(format!("%{part}").bytes()),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
