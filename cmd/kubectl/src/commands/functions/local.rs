//! Calls of a source on this machine, by the language that is installed there, without a cluster.

use super::{folder, runtime};
use anyhow::{Context, Result, bail};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Imports `main` of a file, calls it with what standard input says, and prints what it returns as JSON.
const PYTHON: &str = "import importlib.util, json, os, sys
path = sys.argv[1]
sys.path.insert(0, os.path.dirname(path))
sys.dont_write_bytecode = True
spec = importlib.util.spec_from_file_location('function', path)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
text = sys.stdin.read()
params = json.loads(text) if text.strip() else {}
code = getattr(module.main, '__code__', None)
more = [{'requestId': 'local', 'attempt': 1, 'event': {}}] if code and code.co_argcount > 1 and code.co_varnames[1] == 'context' else []
out = os.fdopen(os.dup(1), 'w')
os.dup2(2, 1)
result = module.main(params, *more)
for piece in result if hasattr(result, '__next__') else [json.dumps(result, allow_nan=False) + '\\n']:
    out.write(piece if isinstance(piece, str) else json.dumps(piece) + '\\n')
    out.flush()
";

/// The same of a module.
const NODE: &str = "const found = require(process.argv[1]);
const main = typeof found === 'function' ? found : found.main;
if (typeof main !== 'function') throw new Error('the source exports no function main');
const text = require('fs').readFileSync(0, 'utf8');
console.log = console.error;
Promise.resolve(main(text.trim() ? JSON.parse(text) : {}, { requestId: 'local', attempt: 1, event: {} }))
  .then((result) => process.stdout.write(JSON.stringify(result === undefined ? null : result) + '\\n'));
";

/// Calls the `main` of a source.
pub fn call(source: &Path, data: &str) -> Result<()> {
    if !source.exists() {
        bail!("{}: with --local the function is a file or a folder, such as ./add.py", source.display());
    }
    let (file, runtime) = if source.is_dir() {
        let (runtime, _) = folder(source)?;
        (source.join(if runtime == "python" { "main.py" } else { "main.js" }), runtime)
    } else {
        let runtime = runtime(source).with_context(|| {
            format!("{}: functions are Python or JavaScript files, or folders", source.display())
        })?;
        (source.to_owned(), runtime)
    };
    let file = std::path::absolute(&file).with_context(|| file.display().to_string())?;
    let (program, flag, text) = match runtime {
        "python" => ("python3", "-c", PYTHON),
        _ => ("node", "-e", NODE),
    };
    let mut child = Command::new(program)
        .args([flag, text])
        .arg(&file)
        .stdin(Stdio::piped())
        .spawn()
        .with_context(|| format!("run {program}: --local needs it on this machine"))?;
    let mut input = child.stdin.take().context("its input")?;
    // Who does not read them has ended, and says why.
    let _ = input.write_all(data.as_bytes());
    drop(input);
    let status = child.wait().with_context(|| format!("wait for {program}"))?;
    if !status.success() {
        bail!("{} failed ({status})", source.display());
    }
    Ok(())
}
