//! What the runtimes behind the handlers can do, by asking them.

use super::super::{HandlerFeatures, Handlers};
use super::Config;
use super::sandbox::RUNC;
use serde_json::Value;

/// Since then the kernel makes whole trees of mounts read-only.
const RECURSIVE_READ_ONLY: (u32, u32) = (5, 12);

/// Of all handlers, and of pods that name none.
pub(super) async fn of(config: &Config) -> Handlers {
    let of_runc = HandlerFeatures {
        recursive_read_only_mounts: kernel_is_since(RECURSIVE_READ_ONLY) && runc_knows("rro").await,
        user_namespaces: false,
    };
    let of_shim = HandlerFeatures {
        recursive_read_only_mounts: kernel_is_since(RECURSIVE_READ_ONLY),
        user_namespaces: false,
    };
    let of = |name: &str, runtime: &str| match (name, runtime) {
        (_, RUNC) => of_runc,
        (super::SHIM, _) => of_shim,
        _ => HandlerFeatures::default(),
    };
    let mut handlers: Handlers =
        config.handlers.iter().map(|(name, runtime)| (name.clone(), of(name, runtime))).collect();
    let usual = handlers.get(&config.usual_handler).copied().unwrap_or(of_runc);
    handlers.insert(String::new(), usual);
    handlers
}

/// Whether runc knows an option of mounts. One that cannot be asked is too old for it.
async fn runc_knows(option: &str) -> bool {
    let told = tokio::process::Command::new("runc").arg("features").output().await;
    let features = told.ok().and_then(|told| serde_json::from_slice::<Value>(&told.stdout).ok());
    features.is_some_and(|features| {
        features["mountOptions"].as_array().is_some_and(|known| known.iter().any(|known| known == option))
    })
}

fn kernel_is_since(version: (u32, u32)) -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    parsed(&release).is_some_and(|own| own >= version)
}

fn parsed(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::parsed;

    #[test]
    fn releases_of_kernels() {
        for (release, expected) in
            [("6.18.44-x\n", Some((6, 18))), ("5.4", Some((5, 4))), ("5.12-rc1", Some((5, 12))), ("", None)]
        {
            assert_eq!(parsed(release), expected, "{release}");
        }
    }
}
