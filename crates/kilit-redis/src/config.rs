//! What a Redis URL says.

use std::{path::PathBuf, sync::Arc};

use kilit_core::{EngineUrl, Error, Network, Result, TokenSource};

use crate::tls;

/// The settings of a Redis URL beside those of every network.
pub(crate) const SETTINGS: [(&str, &str); 6] = [
    ("prefix", "what stands before a lock's name in its key [default: lock:]"),
    ("db", "the database number, where the path does not say [default: 0]"),
    ("min_replicas", "how many replicas must confirm an acquisition, or it is undone [default: 0]"),
    ("accept", "clock: tokens that assume clocks are good enough for purpose correctness"),
    ("source", "the name of this deployment in token sources [default: clock]"),
    ("sentinel_password_file", "a file with the password of the sentinels, where they have one"),
];

/// An opened URL.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) servers: Servers,
    pub(crate) login: Login,
    pub(crate) tls: Option<tls::Tls>,
    pub(crate) network: Network,
    pub(crate) prefix: Vec<u8>,
    pub(crate) min_replicas: u32,
    pub(crate) clock_accepted: bool,
    pub(crate) source: TokenSource,
}

/// Which servers, and how the one that counts is found.
#[derive(Clone, Debug)]
pub(crate) enum Servers {
    /// One.
    Standalone(Address),
    /// Whichever the sentinels call the master of this name.
    Sentinel { sentinels: Vec<Address>, master: String, login: Login },
    /// Each lock has a server of its own; these know which.
    Cluster(Vec<Address>),
}

/// Where one server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Address {
    Tcp { host: Arc<str>, port: u16 },
    Unix(Arc<PathBuf>),
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Who asks, and for which database.
#[derive(Clone, Debug, Default)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<kilit_core::Secret>,
    pub(crate) db: i64,
}

impl Config {
    /// Reads a URL; nothing is sent.
    pub(crate) fn read(mut url: EngineUrl) -> Result<Self> {
        let scheme = url.scheme().to_owned();
        let secure = match scheme.as_str() {
            "rediss" => Some(true),
            "redis+unix" => Some(false),
            _ => None,
        };
        let network = Network::take(&mut url, secure)?;
        let tls = network.tls.as_ref().map(tls::Tls::read).transpose()?;
        let setting_db = url.take("db");
        let sentinel_login = sentinel_login(&mut url)?;
        let path = url.path().trim_start_matches('/').to_owned();
        let (servers, path_db) = match scheme.as_str() {
            "redis+unix" => {
                if url.path().len() < 2 || !url.hosts().is_empty() {
                    return Err(Error::invalid(
                        "a redis+unix URL has the socket's path, as in `redis+unix:///run/redis.sock`",
                    ));
                }
                (Servers::Standalone(Address::Unix(Arc::new(url.path().into()))), None)
            }
            "redis+sentinel" => {
                if path.is_empty() || path.contains('/') {
                    return Err(Error::invalid(
                        "a redis+sentinel URL ends with the master's name, as in `redis+sentinel://h1:26379,h2:26379/mymaster`",
                    ));
                }
                let sentinels = addresses(&url, 26_379)?;
                (Servers::Sentinel { sentinels, master: path, login: sentinel_login.clone() }, None)
            }
            "redis+cluster" => {
                if !path.is_empty() || setting_db.as_deref().is_some_and(|db| db != "0") {
                    return Err(Error::invalid("a Redis cluster has database 0 alone; leave the number out"));
                }
                (Servers::Cluster(addresses(&url, 6379)?), None)
            }
            _ => {
                let [server] = addresses(&url, 6379)?.try_into().map_err(|_| {
                    Error::invalid(
                        "a redis URL names one server, as in `redis://localhost:6379`; several are \
                         `redis+sentinel:`, `redis+cluster:` or `redlock:`",
                    )
                })?;
                (Servers::Standalone(server), Some(path).filter(|path| !path.is_empty()))
            }
        };
        if sentinel_login.password.is_some() && !matches!(servers, Servers::Sentinel { .. }) {
            return Err(Error::invalid("setting sentinel_password_file is for redis+sentinel URLs"));
        }
        let db = match (path_db, setting_db) {
            (Some(_), Some(_)) => {
                return Err(Error::invalid("the database is named twice: in the path, and by db="));
            }
            (db, setting) => {
                db.or(setting).map_or(Ok(0), |text| number("the database", &text, 0..=65_535))?
            }
        };
        let min_replicas = url.take("min_replicas");
        let min_replicas =
            min_replicas.map_or(Ok(0), |text| number("setting min_replicas", &text, 0..=64))? as u32;
        let clock_accepted = match url.take("accept").as_deref() {
            None => false,
            Some("clock") => true,
            Some(_) => return Err(Error::invalid("setting accept knows one word: clock")),
        };
        let source = url.take("source").unwrap_or_else(|| "clock".to_owned());
        let source = TokenSource::new(format!("redis:{source}"))
            .map_err(|_| Error::invalid("setting source must be 1 to 122 visible ASCII characters"))?;
        let prefix = url.take("prefix").unwrap_or_else(|| "lock:".to_owned()).into_bytes();
        if prefix.len() > 512 {
            return Err(Error::invalid(format!(
                "setting prefix has {} bytes; it may have 512",
                prefix.len()
            )));
        }
        let login = Login { user: network.user.clone(), password: network.password.clone(), db };
        if login.user.is_some() && login.password.is_none() {
            return Err(Error::invalid(
                "a user needs a password: in the URL, by password_file= or KILIT_PASSWORD",
            ));
        }
        url.finish()?;
        Ok(Self { servers, login, tls, network, prefix, min_replicas, clock_accepted, source })
    }
}

fn sentinel_login(url: &mut EngineUrl) -> Result<Login> {
    let password = url.take("sentinel_password_file").map(|file| -> Result<_> {
        let text = std::fs::read_to_string(&file)
            .map_err(|error| Error::invalid("cannot read sentinel_password_file").with_source(error))?;
        Ok(kilit_core::Secret::new(text.trim_end_matches(['\r', '\n'])))
    });
    Ok(Login { password: password.transpose()?, ..Login::default() })
}

fn addresses(url: &EngineUrl, default_port: u16) -> Result<Vec<Address>> {
    if url.hosts().is_empty() {
        return Err(Error::invalid(format!("the URL names no host, as in `{}://localhost`", url.scheme())));
    }
    url.hosts().iter().map(|host| address(host, default_port)).collect()
}

fn address(text: &str, default_port: u16) -> Result<Address> {
    let bad = || Error::invalid("a host is `name`, `name:port` or `[v6-address]:port`");
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']').ok_or_else(bad)?;
            (host, if after.is_empty() { None } else { Some(after.strip_prefix(':').ok_or_else(bad)?) })
        }
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let port = port.map_or(Ok(default_port), |port| port.parse().map_err(|_| bad()))?;
    if host.is_empty() || port == 0 || (host.contains(':') && !text.starts_with('[')) {
        return Err(bad());
    }
    Ok(Address::Tcp { host: host.into(), port })
}

fn number(what: &str, text: &str, range: std::ops::RangeInclusive<i64>) -> Result<i64> {
    text.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| {
        Error::invalid(format!("{what} must be a number from {} to {}", range.start(), range.end()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Config> {
        Config::read(text.parse().unwrap())
    }

    fn tcp(host: &str, port: u16) -> Address {
        Address::Tcp { host: host.into(), port }
    }

    #[test]
    fn every_form_of_the_url() {
        let config =
            read("redis://kilit:s3cret@h:7000/3?prefix=l/&min_replicas=2&accept=clock&source=eu").unwrap();
        assert!(matches!(&config.servers, Servers::Standalone(server) if *server == tcp("h", 7000)));
        assert_eq!((config.login.db, config.min_replicas, config.clock_accepted), (3, 2, true));
        assert_eq!((&config.prefix[..], config.source.as_str()), (&b"l/"[..], "redis:eu"));
        assert!(!format!("{config:?}").contains("s3cret"));
        let config = read("redis://[::1]").unwrap();
        assert!(matches!(&config.servers, Servers::Standalone(server) if server.to_string() == "[::1]:6379"));
        assert_eq!(config.prefix, b"lock:");
        assert!(read("rediss://h").unwrap().tls.is_some());
        assert!(read("redis://h?tls=true").unwrap().tls.is_some());
        assert_eq!(read("redis+unix:///run/redis.sock?db=2").unwrap().login.db, 2);
        let config = read("redis+sentinel://a,b:1/mymaster?db=1").unwrap();
        assert!(matches!(&config.servers, Servers::Sentinel { sentinels, master, .. }
            if sentinels[..] == [tcp("a", 26_379), tcp("b", 1)] && master == "mymaster"));
        assert!(
            matches!(read("redis+cluster://a,b").unwrap().servers, Servers::Cluster(seeds) if seeds.len() == 2)
        );
    }

    #[test]
    fn what_is_wrong_is_refused_before_anything_is_sent() {
        for bad in [
            "redis:",
            "redis://a,b",
            "redis://h/x",
            "redis://h/1?db=1",
            "redis://h:0",
            "redis://h:99999",
            "redis://[::1",
            "redis://h?min_replicas=-1",
            "redis://h?accept=all",
            "redis://h?source=%20",
            "redis://h?no=1",
            "redis://u@h",
            "redis+unix:",
            "redis+unix://h/p",
            "redis+sentinel://h",
            "redis+sentinel://h/a/b",
            "redis+cluster://h/1",
            "redis+cluster://h?db=1",
            "redis://h?sentinel_password_file=/dev/null",
            "rediss://h?tls=false",
        ] {
            assert_eq!(read(bad).unwrap_err().kind(), kilit_core::ErrorKind::Invalid, "{bad}");
        }
    }
}
