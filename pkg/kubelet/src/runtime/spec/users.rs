//! Who a container runs as: from its security context, its image, and the image's `/etc/passwd` and `/etc/group`.

use super::super::{Error, PodRef, Security};
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use std::io::Read;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Nobody's list of users is longer.
const LONGEST_FILE_BYTES: u64 = 8 << 20;

/// Numbers, as the kernel wants them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) additional_gids: Vec<u32>,
    /// Where the user is at home, by `/etc/passwd`.
    pub(crate) home: Option<String>,
}

/// The two files.
#[derive(Debug, Clone, Default)]
pub(crate) struct Accounts {
    pub(crate) passwd: String,
    pub(crate) group: String,
}

struct Account<'a> {
    name: &'a str,
    uid: u32,
    gid: u32,
    home: &'a str,
}

impl Accounts {
    /// Reads them from the layers of a file system that is not mounted yet, topmost first.
    pub(crate) fn read(layers: &[PathBuf]) -> Self {
        Accounts {
            passwd: read_in_layers(layers, "etc/passwd").unwrap_or_default(),
            group: read_in_layers(layers, "etc/group").unwrap_or_default(),
        }
    }

    fn users(&self) -> impl Iterator<Item = Account<'_>> {
        self.passwd.lines().filter_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            let [name, _, uid, gid, _, home, ..] = fields.as_slice() else { return None };
            Some(Account { name, uid: uid.parse().ok()?, gid: gid.parse().ok()?, home })
        })
    }

    fn groups(&self) -> impl Iterator<Item = (&str, u32, &str)> {
        self.group.lines().filter_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            let [name, _, gid, members, ..] = fields.as_slice() else { return None };
            Some((*name, gid.parse().ok()?, *members))
        })
    }
}

/// Who it runs as. `image_user` is what the image says: empty, `user`, `user:group`, by names or numbers.
pub(crate) fn resolve(security: &Security, image_user: &str, accounts: &Accounts) -> Result<User, Error> {
    let (image_name, image_group) = image_user.split_once(':').unwrap_or((image_user, ""));
    let asked = match security.user {
        Some(uid) => uid.to_string(),
        None => image_name.to_owned(),
    };
    let number = asked.parse::<u32>().ok();
    let account = accounts.users().find(|account| match number {
        Some(uid) => account.uid == uid,
        None => account.name == asked,
    });
    let uid = match (&account, number) {
        (_, Some(uid)) => uid,
        (Some(account), None) => account.uid,
        (None, None) if asked.is_empty() => 0,
        (None, None) => {
            return Err(Error::Container(format!(
                "unable to find user {asked}: no matching entries in passwd file"
            )));
        }
    };
    let gid = match security.group {
        Some(gid) => u32::try_from(gid).unwrap_or_default(),
        None if security.user.is_none() && !image_group.is_empty() => group_number(image_group, accounts)?,
        None => account.as_ref().map_or(0, |account| account.gid),
    };
    // Whoever has no name of their own is root by default, and root's groups are looked up, too.
    let name = account.as_ref().map(|account| account.name);
    let mut gids = vec![gid];
    gids.extend(security.supplemental_groups.iter().filter_map(|gid| u32::try_from(*gid).ok()));
    if let Some(name) = name.filter(|_| !security.only_these_groups) {
        let is_member = |members: &str| members.split(',').any(|member| member == name);
        gids.extend(accounts.groups().filter(|(_, _, members)| is_member(members)).map(|(_, gid, _)| gid));
    }
    gids.sort_unstable();
    gids.dedup();
    let home = account.map(|account| account.home.to_owned()).filter(|home| !home.is_empty());
    Ok(User { uid, gid, additional_gids: gids, home })
}

fn group_number(group: &str, accounts: &Accounts) -> Result<u32, Error> {
    if let Ok(gid) = group.parse() {
        return Ok(gid);
    }
    let found = accounts.groups().find(|(name, _, _)| *name == group).map(|(_, gid, _)| gid);
    found.ok_or_else(|| {
        Error::Container(format!("unable to find group {group}: no matching entries in group file"))
    })
}

/// Whether a container that must not run as root would. Said as the kubelet says it.
pub(crate) fn verify_non_root(
    pod: &PodRef,
    container: &str,
    security: &Security,
    image_user: &str,
) -> Result<(), Error> {
    if !security.must_be_non_root {
        return Ok(());
    }
    let whose = format!("(pod: \"{}_{}({})\", container: {container})", pod.name, pod.namespace, pod.uid);
    let user = image_user.split(':').next().unwrap_or_default();
    let problem = match (security.user, user.parse::<i64>()) {
        (Some(0), _) => "container's runAsUser breaks non-root policy".to_owned(),
        (Some(_), _) => return Ok(()),
        (None, _) if user.is_empty() => "container has runAsNonRoot and image will run as root".to_owned(),
        (None, Ok(0)) => "container has runAsNonRoot and image will run as root".to_owned(),
        (None, Ok(_)) => return Ok(()),
        (None, Err(_)) => format!(
            "container has runAsNonRoot and image has non-numeric user ({user}), cannot verify user is non-root"
        ),
    };
    Err(Error::Container(format!("{problem} {whose}")))
}

/// A file of an image's root, out of which no link leads: the first layer that has it decides.
fn read_in_layers(layers: &[PathBuf], file: &str) -> Option<String> {
    layers.iter().find_map(|layer| match read_in_root(layer, file) {
        Ok(text) => Some(Some(text)),
        Err(nix::errno::Errno::ENOENT) => None,
        // Removed in this layer (a whiteout is a device), or not a file at all.
        Err(_) => Some(None),
    })?
}

fn read_in_root(root: &Path, file: &str) -> nix::Result<String> {
    let errno =
        |error: std::io::Error| nix::errno::Errno::from_raw(error.raw_os_error().unwrap_or(nix::libc::EIO));
    let root = std::fs::File::open(root).map_err(errno)?;
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    // Not opened for reading before it is known to be a file: images have devices and pipes, too.
    let found = openat2(root.as_fd(), file, how)?;
    if nix::sys::stat::fstat(&found)?.st_mode & nix::libc::S_IFMT != nix::libc::S_IFREG {
        return Err(nix::errno::Errno::EISDIR);
    }
    let opened = std::fs::File::open(crate::beneath::path_of(&found)).map_err(errno)?;
    let mut text = String::new();
    opened.take(LONGEST_FILE_BYTES).read_to_string(&mut text).map_err(errno)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accounts() -> Accounts {
        Accounts {
            passwd: "root:x:0:0:root:/root:/bin/sh\nweb:x:33:34:Web:/var/www:/bin/sh\nbroken\n".into(),
            group: "root:x:0:\nwww:x:34:\nlogs:x:50:web,other\nwheel:x:10:root\n".into(),
        }
    }

    fn user(security: Security, image: &str) -> String {
        match resolve(&security, image, &accounts()) {
            Ok(user) => format!("{}:{} {:?}", user.uid, user.gid, user.additional_gids),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn names_and_numbers_of_the_image() {
        let image = |image: &str| user(Security::default(), image);
        assert_eq!(image(""), "0:0 [0]");
        assert_eq!(image("root"), "0:0 [0, 10]");
        assert_eq!(image("web"), "33:34 [34, 50]");
        assert_eq!(image("33"), "33:34 [34, 50]");
        assert_eq!(image("web:logs"), "33:50 [50]");
        assert_eq!(image("1000:1000"), "1000:1000 [1000]");
        assert_eq!(image("1000"), "1000:0 [0]");
        assert_eq!(image("ghost"), "unable to find user ghost: no matching entries in passwd file");
        assert_eq!(image("web:ghosts"), "unable to find group ghosts: no matching entries in group file");
    }

    #[test]
    fn the_pod_has_the_last_word() {
        let security = Security {
            user: Some(1000),
            group: Some(2000),
            supplemental_groups: vec![3000, 2000],
            ..Security::default()
        };
        assert_eq!(user(security, "web:logs"), "1000:2000 [2000, 3000]");
        assert_eq!(user(Security { user: Some(33), ..Security::default() }, "root:wheel"), "33:34 [34, 50]");
    }

    #[test]
    fn groups_of_the_image_are_merged_or_not() {
        let asks = |only_these_groups| Security {
            supplemental_groups: vec![3000],
            only_these_groups,
            ..Security::default()
        };
        assert_eq!(user(asks(false), "web"), "33:34 [34, 50, 3000]");
        assert_eq!(user(asks(true), "web"), "33:34 [34, 3000]");
        assert_eq!(user(asks(true), "root"), "0:0 [0, 3000]");
    }

    #[test]
    fn root_is_refused_where_it_must_not_be() {
        let pod = PodRef { namespace: "ns".into(), name: "web".into(), uid: "1".into() };
        let check = |user: Option<i64>, image: &str| {
            let security = Security { must_be_non_root: true, user, ..Security::default() };
            verify_non_root(&pod, "main", &security, image).map_err(|error| error.to_string())
        };
        let whose = "(pod: \"web_ns(1)\", container: main)";
        assert_eq!(check(Some(1), ""), Ok(()));
        assert_eq!(check(None, "1000"), Ok(()));
        assert_eq!(
            check(Some(0), "1000"),
            Err(format!("container's runAsUser breaks non-root policy {whose}"))
        );
        assert_eq!(
            check(None, ""),
            Err(format!("container has runAsNonRoot and image will run as root {whose}"))
        );
        assert_eq!(
            check(None, "0:0"),
            Err(format!("container has runAsNonRoot and image will run as root {whose}"))
        );
        let text =
            "container has runAsNonRoot and image has non-numeric user (web), cannot verify user is non-root";
        assert_eq!(check(None, "web"), Err(format!("{text} {whose}")));
    }

    #[test]
    fn files_are_found_in_the_topmost_layer_and_links_stay_inside() {
        let dir = tempfile::tempdir().expect("a folder");
        let layer = |name: &str| dir.path().join(name);
        for (layer, text) in [("upper", None), ("top", Some("top")), ("base", Some("base"))] {
            std::fs::create_dir_all(dir.path().join(layer).join("etc")).expect("made");
            if let Some(text) = text {
                std::fs::write(dir.path().join(layer).join("etc/passwd"), text).expect("written");
            }
        }
        std::os::unix::fs::symlink("/etc/real", layer("top").join("etc/group")).expect("linked");
        std::fs::write(layer("top").join("etc/real"), "inside").expect("written");
        let accounts = Accounts::read(&[layer("upper"), layer("top"), layer("base")]);
        assert_eq!((accounts.passwd.as_str(), accounts.group.as_str()), ("top", "inside"));
    }
}
