//! The settings that every engine over a network has, under the same names.

use std::{fs, path::PathBuf, time::Duration};

use crate::{EngineUrl, Error, Result, Secret};

/// The password, where the URL has none and no file is named.
pub const PASSWORD_VARIABLE: &str = "KILIT_PASSWORD";

/// How a server is reached: who asks, how it is encrypted, and how long it may take.
#[derive(Clone, Debug)]
pub struct Network {
    /// From the URL, or `user=`.
    pub user: Option<String>,
    /// From the URL, `password_file=` or the environment.
    pub password: Option<Secret>,
    /// Where the connection is encrypted.
    pub tls: Option<TlsFiles>,
    /// How long a connection may take until it can be used.
    pub connect_timeout: Duration,
    /// How long an answer may take before the connection counts as broken.
    pub timeout: Duration,
}

/// What TLS reads. Servers are verified, host name included, unless `verify` is off.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The authority that signs servers, in PEM; the system's own without it.
    pub ca: Option<PathBuf>,
    /// A certificate to show, and its key, both in PEM.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Whether the server is verified.
    pub verify: bool,
}

impl Network {
    /// What [`take`](Self::take) reads, for a [`Descriptor`](crate::Descriptor).
    pub const SETTINGS: [(&str, &str); 9] = [
        ("tls", "whether the connection is encrypted [default: false]"),
        ("ca", "the authority that signs the server's certificate, in PEM [default: the system's]"),
        ("cert", "a certificate to show to the server, in PEM"),
        ("key", "the key of that certificate, in PEM"),
        ("tls_verify", "false: any server is believed, so that anyone in between can be it [default: true]"),
        ("user", "who asks, where the URL does not say"),
        ("password_file", "a file with the password alone [default: the variable KILIT_PASSWORD]"),
        ("connect_timeout", "how long connecting may take, 1ms to 60s [default: 5s]"),
        ("timeout", "how long an answer may take, 10ms to 60s [default: 2s]"),
    ];

    /// Takes them out of the URL. `tls` is what the scheme says, such as `rediss:`.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid), naming the setting: nothing was sent.
    pub fn take(url: &mut EngineUrl, tls: Option<bool>) -> Result<Self> {
        let (second, most) = (Duration::from_secs(1), Duration::from_secs(60));
        Ok(Self {
            tls: take_tls(url, tls)?,
            user: take_user(url)?,
            password: take_password(url)?,
            connect_timeout: url.take_duration(
                "connect_timeout",
                second * 5,
                Duration::from_millis(1)..=most,
            )?,
            timeout: url.take_duration("timeout", second * 2, Duration::from_millis(10)..=most)?,
        })
    }
}

fn take_tls(url: &mut EngineUrl, by_scheme: Option<bool>) -> Result<Option<TlsFiles>> {
    let wanted = url.take_bool("tls", by_scheme.unwrap_or(false))?;
    let path = |text: Option<String>| text.map(PathBuf::from);
    let (ca, cert, key) = (path(url.take("ca")), path(url.take("cert")), path(url.take("key")));
    let verify = url.take_bool("tls_verify", true)?;
    if by_scheme.is_some_and(|scheme| scheme != wanted) {
        return Err(Error::invalid(format!(
            "setting tls={wanted} contradicts the scheme `{}:`",
            url.scheme()
        )));
    }
    if !wanted {
        return match ca.is_some() || cert.is_some() || key.is_some() || !verify {
            true => Err(Error::invalid("settings ca, cert, key and tls_verify need tls=true")),
            false => Ok(None),
        };
    }
    let identity = match (cert, key) {
        (Some(cert), Some(key)) => Some((cert, key)),
        (None, None) => None,
        _ => return Err(Error::invalid("settings cert and key belong together")),
    };
    for file in ca.iter().chain(identity.iter().flat_map(|(cert, key)| [cert, key])) {
        fs::metadata(file)
            .map_err(|error| Error::invalid(format!("cannot read {}", file.display())).with_source(error))?;
    }
    Ok(Some(TlsFiles { ca, identity, verify }))
}

fn take_user(url: &mut EngineUrl) -> Result<Option<String>> {
    match (url.take("user"), url.user()) {
        (Some(_), Some(_)) => {
            Err(Error::invalid("the user is named twice: in front of the host, and by user="))
        }
        (setting, written) => Ok(setting.or_else(|| written.map(str::to_owned))),
    }
}

fn take_password(url: &mut EngineUrl) -> Result<Option<Secret>> {
    let written = url.password().cloned();
    match url.take("password_file") {
        Some(_) if written.is_some() => {
            Err(Error::invalid("the password is given twice: in the URL, and by password_file="))
        }
        Some(file) => {
            let text = fs::read_to_string(&file).map_err(|error| {
                Error::invalid(format!("cannot read password_file={}", file.escape_debug()))
                    .with_source(error)
            })?;
            Ok(Some(Secret::new(text.trim_end_matches(['\r', '\n']))))
        }
        None => Ok(written.or_else(|| std::env::var(PASSWORD_VARIABLE).ok().map(Secret::new))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(text: &str, tls: Option<bool>) -> Result<Network> {
        Network::take(&mut text.parse().unwrap(), tls)
    }

    #[test]
    fn what_is_not_said_has_a_default() {
        let network = take("redis://h", None).unwrap();
        assert!(network.tls.is_none() && network.user.is_none());
        assert_eq!((network.connect_timeout.as_secs(), network.timeout.as_secs()), (5, 2));
        assert!(take("rediss://h", Some(true)).unwrap().tls.unwrap().verify);
    }

    #[test]
    fn contradictions_are_refused() {
        for (text, tls) in [
            ("redis://h?tls=true", Some(false)),
            ("rediss://h?tls=false", Some(true)),
            ("redis://h?ca=/etc/passwd", None),
            ("redis://h?tls=true&cert=/etc/passwd", None),
            ("redis://h?tls=true&ca=/no/such/file", None),
            ("redis://a@h?user=b", None),
            ("redis://:p@h?password_file=/etc/passwd", None),
            ("redis://h?password_file=/no/such/file", None),
            ("redis://h?timeout=0", None),
        ] {
            assert_eq!(take(text, tls).unwrap_err().kind(), crate::ErrorKind::Invalid, "{text}");
        }
    }

    #[test]
    fn a_password_comes_from_a_file_and_is_not_printed() {
        let file = std::env::temp_dir().join(format!("kilit-password-{}", std::process::id()));
        fs::write(&file, "s3cret\n").unwrap();
        let network = take(&format!("redis://h?password_file={}", file.display()), None).unwrap();
        fs::remove_file(file).unwrap();
        assert_eq!(network.password.as_ref().unwrap().expose(), "s3cret");
        assert!(!format!("{network:?}").contains("s3cret"));
    }
}
