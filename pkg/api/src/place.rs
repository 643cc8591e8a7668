//! Where a value stands in an object: a link to its parent and a step, which become text only when somebody complains.

/// A place in an object.
///
/// ```
/// use api::place::Place;
/// let root = Place::root();
/// let containers = root.name("containers");
/// assert_eq!(containers.index(0).name("image").path(), "containers[0].image");
/// ```
#[derive(Clone, Copy)]
pub struct Place<'a> {
    parent: Option<&'a Place<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Root,
    Name(&'a str),
    Key(&'a str),
    Index(usize),
}

impl<'a> Place<'a> {
    /// The whole object.
    pub fn root() -> Place<'static> {
        Place { parent: None, step: Step::Root }
    }

    /// A member: `.name`.
    pub fn name(&'a self, name: &'a str) -> Place<'a> {
        Place { parent: Some(self), step: Step::Name(name) }
    }

    /// An entry of a map: `[key]`.
    pub fn key(&'a self, key: &'a str) -> Place<'a> {
        Place { parent: Some(self), step: Step::Key(key) }
    }

    /// An element of a list: `[0]`.
    pub fn index(&'a self, index: usize) -> Place<'a> {
        Place { parent: Some(self), step: Step::Index(index) }
    }

    /// The way here from the root: `spec.containers[0].image`, `metadata.labels[app]`; empty for the root.
    pub fn path(&self) -> String {
        let mut path = String::new();
        self.write(&mut path, true);
        path
    }

    /// The way here as Go's decoder tells it, which does not count elements: `spec.containers.image`.
    pub fn path_of_members(&self) -> String {
        let mut path = String::new();
        self.write(&mut path, false);
        path
    }

    fn write(&self, path: &mut String, with_indexes: bool) {
        if let Some(parent) = self.parent {
            parent.write(path, with_indexes);
        }
        match self.step {
            Step::Root => {}
            Step::Name(name) => {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(name);
            }
            Step::Key(key) => path.push_str(&format!("[{key}]")),
            Step::Index(index) if with_indexes => path.push_str(&format!("[{index}]")),
            Step::Index(_) => {}
        }
    }
}
