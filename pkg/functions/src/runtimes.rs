//! What runs sources: a table, not code. A runtime is an image whose program listens on `FUNCTION_PORT`, takes a source
//! by `POST /load` and calls it by `POST /call` (see `images/python/minik8s_runtime.py`).

/// A language.
#[derive(Debug, PartialEq, Eq)]
pub struct Runtime {
    /// What functions call it.
    pub name: &'static str,
    /// Its image.
    pub image: &'static str,
    /// Its program.
    pub command: &'static [&'static str],
    /// What a source of one file is called.
    pub file: &'static str,
}

/// The port that runtimes listen on.
pub const PORT: u16 = 8080;

/// All of them.
pub const RUNTIMES: &[Runtime] = &[
    Runtime {
        name: "python",
        image: "minik8s.io/python:3",
        command: &["/usr/bin/python3", "-I", "-S", "-u", "-c", "import minik8s_runtime"],
        file: "function.py",
    },
    Runtime {
        name: "nodejs",
        image: "minik8s.io/nodejs:debian",
        command: &["/usr/bin/node", "/usr/lib/minik8s/runtime.js"],
        file: "function.js",
    },
];

/// The one of this name.
pub fn find(name: &str) -> Option<&'static Runtime> {
    RUNTIMES.iter().find(|runtime| runtime.name == name)
}

/// Their names, for people.
pub fn names() -> String {
    RUNTIMES.iter().map(|runtime| runtime.name).collect::<Vec<_>>().join(", ")
}
