//! What the URL says.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use kilit_core::{Assurance, Bound, EngineUrl, Error, Exclusion, Modes, Order, Result, TokenStrength};

/// The settings of the query, for help.
pub(crate) static SETTINGS: &[(&str, &str)] = &[
    (
        "check",
        "how often a holder looks whether its lock file is still in place: 100ms to 60s, 1s unless set",
    ),
    ("force", "true: lock on a network or FUSE file system too, where exclusion is not promised"),
];

/// How soon a waiter looks by itself, whatever it is told.
pub(crate) const LOOK: Duration = Duration::from_secs(1);

const CHECK: Duration = Duration::from_secs(1);
const CHECK_RANGE: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(60);

/// A `file:` URL, checked.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// The directory, absolute.
    pub(crate) dir: PathBuf,
    /// How often a holder looks at its file.
    pub(crate) check: Duration,
    /// Whether file systems without trustworthy locks are accepted.
    pub(crate) force: bool,
}

impl Config {
    pub(crate) fn new(mut url: EngineUrl) -> Result<Self> {
        if url.user().is_some() || url.password().is_some() || !url.hosts().is_empty() {
            return Err(Error::invalid(
                "a file engine has no host and no user: write `file:///dir`, with three slashes, or `file:`",
            ));
        }
        let check = url.take_duration("check", CHECK, CHECK_RANGE)?;
        let force = url.take_bool("force", false)?;
        let dir = match url.path() {
            "" => default_dir(
                std::env::var_os("XDG_STATE_HOME").map(PathBuf::from),
                crate::sys::host::is_root(),
                std::env::home_dir(),
            )?,
            path if !path.starts_with('/') => {
                return Err(Error::invalid(
                    "the directory of a file engine must be absolute: write `file:///dir`, or `file:` for the default",
                ));
            }
            path if path.contains('\0') => {
                return Err(Error::invalid("the directory of a file engine holds a NUL byte"));
            }
            path => PathBuf::from(path),
        };
        url.finish()?;
        Ok(Self { dir, check, force })
    }

    /// What this directory promises. A forced file system is taken at no word but its own.
    pub(crate) fn assurance(&self, trusted: bool) -> Assurance {
        let mut assurance = promise();
        assurance.loss_notice = Bound::fixed(self.check);
        if !trusted {
            assurance.exclusion = Exclusion::TimingAssumptions;
            assurance.token = TokenStrength::LostOnRestart;
            assurance.notes.push("forced onto a file system whose locks may not exclude other hosts".into());
        }
        assurance
    }
}

/// What the engine promises on a local file system.
pub(crate) fn promise() -> Assurance {
    Assurance {
        engine: "file",
        exclusion: Exclusion::HostKernel,
        token: TokenStrength::Durable,
        clock_accepted: false,
        order: Order::Any,
        modes: Modes { exclusive: true, shared: true, permits: false },
        leases: false,
        loss_notice: Bound::fixed(CHECK),
        crash_release: Bound::AT_ONCE,
        wait_look: Bound::fixed(LOOK),
        notes: vec![
            "one host only: every process must see the same directory on a local file system".into(),
            "waiters are served in the order they came, but for one that is stopped and for other programs, \
             which do not stand in line"
                .into(),
            "a lock-delay is honoured by kilit only, not by flock(1)".into(),
        ],
    }
}

/// `$XDG_STATE_HOME/kilit` when that is set, else `/var/lib/kilit` for root and `~/.local/state/kilit` for others.
fn default_dir(state: Option<PathBuf>, root: bool, home: Option<PathBuf>) -> Result<PathBuf> {
    let absolute = |path: &PathBuf| path.is_absolute();
    if let Some(state) = state.filter(absolute) {
        return Ok(state.join("kilit"));
    }
    if root {
        return Ok(Path::new("/var/lib/kilit").to_owned());
    }
    let home = home.filter(absolute).ok_or_else(|| {
        Error::invalid(
            "there is no home directory for `file:`; set XDG_STATE_HOME, or name one: `file:///dir`",
        )
    })?;
    Ok(home.join(".local/state/kilit"))
}

#[cfg(test)]
mod tests {
    use kilit_core::ErrorKind;

    use super::*;

    fn config(url: &str) -> Result<Config> {
        Config::new(url.parse().unwrap())
    }

    #[test]
    fn urls() {
        let config = config("file:///a%20b/c?check=100ms&force=true").unwrap();
        assert_eq!((config.dir.to_str(), config.force), (Some("/a b/c"), true));
        assert_eq!(config.check, Duration::from_millis(100));
    }

    #[test]
    fn what_is_no_absolute_directory_is_refused() {
        for bad in ["file:a", "file:./a", "file://host/a", "file://me@/a", "file://a", "file:///a%00b"] {
            let error = config(bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{bad}");
        }
    }

    #[test]
    fn settings_are_checked() {
        for bad in ["check=99ms", "check=61s", "check=1", "force=1", "chek=1s"] {
            let error = config(&format!("file:///d?{bad}")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{bad}");
        }
        assert!(config("file:///d?chek=1s").unwrap_err().to_string().contains("check, force"));
    }

    #[test]
    fn the_default_is_a_directory_of_the_user() {
        let path = |text: &str| Some(PathBuf::from(text));
        let dir = |state, root, home| default_dir(state, root, home).map(|dir| dir.display().to_string());
        assert_eq!(dir(path("/x"), true, path("/h")).unwrap(), "/x/kilit");
        assert_eq!(dir(path("x"), true, path("/h")).unwrap(), "/var/lib/kilit");
        assert_eq!(dir(None, false, path("/h")).unwrap(), "/h/.local/state/kilit");
        assert!(dir(None, false, None).is_err());
    }
}
