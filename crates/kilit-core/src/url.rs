//! Engine URLs: `scheme://user:password@host1:port1,host2:port2/path?key=value`.

use std::{collections::BTreeMap, fmt, str::FromStr, time::Duration};

use percent_encoding::percent_decode_str;

use crate::{Error, Result};

/// A password: it is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes a password.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The password itself, for the engine alone.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// An engine URL, taken apart. Settings that the engine does not ask for are an error; see
/// [`finish`](Self::finish). Printing it never shows a password.
#[derive(Clone, Debug)]
pub struct EngineUrl {
    scheme: String,
    user: Option<String>,
    password: Option<Secret>,
    hosts: Vec<String>,
    path: String,
    settings: BTreeMap<String, String>,
    asked: Vec<&'static str>,
}

impl EngineUrl {
    /// The part before the first colon, in lower case.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// The user, decoded.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The password, decoded.
    pub fn password(&self) -> Option<&Secret> {
        self.password.as_ref()
    }

    /// `host:port` pairs as they were written; empty where the URL has no authority.
    pub fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// The path, decoded, with its leading slash.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Takes one setting out of the query.
    pub fn take(&mut self, key: &'static str) -> Option<String> {
        self.asked.push(key);
        self.settings.remove(key)
    }

    /// Takes a setting that is a duration with a unit (`500ms`, `30s`), within `range`.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid), naming the setting and the range.
    pub fn take_duration(
        &mut self,
        key: &'static str,
        default: Duration,
        range: std::ops::RangeInclusive<Duration>,
    ) -> Result<Duration> {
        let Some(text) = self.take(key) else { return Ok(default) };
        let value =
            crate::duration::parse(&text).map_err(|why| Error::invalid(format!("setting {key}: {why}")))?;
        if !range.contains(&value) {
            let (low, high) = (range.start(), range.end());
            return Err(Error::invalid(format!("setting {key}={text} is outside {low:?} to {high:?}")));
        }
        Ok(value)
    }

    /// Takes a setting that is `true` or `false`.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for any other text.
    pub fn take_bool(&mut self, key: &'static str, default: bool) -> Result<bool> {
        match self.take(key).as_deref() {
            None => Ok(default),
            Some("true") => Ok(true),
            Some("false") => Ok(false),
            Some(other) => Err(Error::invalid(format!("setting {key}={other} must be true or false"))),
        }
    }

    /// Checks that every setting was taken.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid), with the unknown key and all known ones.
    pub fn finish(self) -> Result<()> {
        let Some(unknown) = self.settings.keys().next() else { return Ok(()) };
        let known = if self.asked.is_empty() { "none".to_owned() } else { self.asked.join(", ") };
        Err(Error::invalid(format!(
            "`{}:` knows no setting `{}`; it knows: {known}",
            self.scheme,
            unknown.escape_debug()
        )))
    }
}

impl FromStr for EngineUrl {
    type Err = Error;

    /// Bad URLs are named without their text, which may hold a password.
    fn from_str(text: &str) -> Result<Self> {
        let bad = |why: &str| Error::invalid(format!("the engine URL {why}"));
        if text.contains('#') {
            return Err(bad("has a `#`, which would cut it off elsewhere; write %23"));
        }
        let (scheme, rest) = text.split_once(':').ok_or_else(|| bad("has no scheme, as in `file:///dir`"))?;
        if scheme.is_empty()
            || !scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
        {
            return Err(bad("has no scheme, as in `file:///dir`"));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = match rest.strip_prefix("//") {
            Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
            None => ("", rest),
        };
        let (userinfo, hosts) = match authority.rsplit_once('@') {
            Some((userinfo, hosts)) => (Some(userinfo), hosts),
            None => (None, authority),
        };
        let decode = |text: &str, what: &str| {
            let escapes = text
                .split('%')
                .skip(1)
                .all(|rest| rest.len() >= 2 && rest.bytes().take(2).all(|digit| digit.is_ascii_hexdigit()));
            if !escapes {
                return Err(bad(&format!("has a `%` in its {what} that begins no escape; write %25")));
            }
            let decoded = percent_decode_str(text).decode_utf8();
            decoded.map(|text| text.into_owned()).map_err(|_| bad(&format!("has a {what} that is not UTF-8")))
        };
        let (user, password) = match userinfo.map(|info| info.split_once(':').unwrap_or((info, ""))) {
            None => (None, None),
            Some((user, password)) => {
                let some = |text: String| (!text.is_empty()).then_some(text);
                (some(decode(user, "user")?), some(decode(password, "password")?).map(Secret))
            }
        };
        let hosts: Vec<_> = hosts.split(',').map(str::to_owned).collect();
        let hosts = if hosts == [""] { vec![] } else { hosts };
        if hosts.iter().any(String::is_empty) {
            return Err(bad("has an empty host"));
        }
        let mut settings = BTreeMap::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').ok_or_else(|| bad("has a setting without `=`"))?;
            let (key, value) = (decode(key, "setting")?, decode(value, "setting")?);
            if settings.insert(key.clone(), value).is_some() {
                return Err(bad(&format!("has the setting `{}` twice", key.escape_debug())));
            }
        }
        Ok(Self {
            scheme: scheme.to_ascii_lowercase(),
            user,
            password,
            hosts,
            path: decode(path, "path")?,
            settings,
            asked: Vec::new(),
        })
    }
}

impl fmt::Display for EngineUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.scheme)?;
        if !self.hosts.is_empty() {
            write!(f, "//{}", self.hosts.join(","))?;
        }
        f.write_str(&self.path.escape_debug().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_parts() {
        let mut url: EngineUrl = "etcd://root:s3%3Acret@h1:1,h2:2/p%20q?timeout=5s&tls=true".parse().unwrap();
        assert_eq!((url.scheme(), url.user(), url.path()), ("etcd", Some("root"), "/p q"));
        assert_eq!(url.password().unwrap().expose(), "s3:cret");
        assert_eq!(url.hosts(), ["h1:1", "h2:2"]);
        let second = Duration::from_secs(1);
        assert_eq!(url.take_duration("timeout", second, second..=second * 9).unwrap(), second * 5);
        assert!(url.take_bool("tls", false).unwrap());
        assert!(!format!("{url} {url:?}").contains("s3:cret"));
        url.finish().unwrap();
    }

    #[test]
    fn short_forms() {
        for (text, path) in [("file:", ""), ("file:///var/lib", "/var/lib"), ("memory:", "")] {
            let url: EngineUrl = text.parse().unwrap();
            assert_eq!((url.path(), url.hosts().len(), url.user()), (path, 0, None));
        }
    }

    #[test]
    fn a_slip_of_the_pen_is_no_other_directory() {
        for bad in ["file:///d#x", "file:///tmp/%zz", "file:///tmp/%", "file:///d?check=1s#"] {
            bad.parse::<EngineUrl>().unwrap_err();
        }
        assert_eq!("file:///d%23x%25".parse::<EngineUrl>().unwrap().path(), "/d#x%");
    }

    #[test]
    fn unknown_settings_list_the_known_ones() {
        let mut url: EngineUrl = "file:///d?chek=1s".parse().unwrap();
        url.take("check");
        url.take("force");
        let text = url.finish().unwrap_err().to_string();
        assert!(text.contains("`chek`") && text.contains("check, force"), "{text}");
    }

    #[test]
    fn bad_urls_do_not_print_their_text() {
        for bad in [
            "",
            "nothing",
            "://x",
            "e://u:s3cret@",
            "e://a,,b",
            "e://u:s3cret@h?x",
            "e://h?a=1&a=2",
            "e://h/%ff",
            "e://u:s3cret@h/#x",
            "e://u:s3cret@h/%zz",
            "e://u:s3%cret@h",
        ] {
            match bad.parse::<EngineUrl>() {
                Ok(url) => assert!(!url.to_string().contains("s3cret")),
                Err(error) => assert!(!error.to_string().contains("s3cret"), "{error}"),
            }
        }
    }
}
