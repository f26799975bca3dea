//! Which engine, and whether it is fit for a command.

use std::{env, time::Duration};

use kilit::{Client, Descriptor, EngineUrl, Error, ErrorKind, Exclusion, Retry};
use tokio::time::{Instant, sleep, timeout_at};

use crate::{
    args,
    failure::{Failure, Result},
    output::json::escape,
};

/// Where the locks are unless something else is said.
const DEFAULT: &str = "file:";

/// What an engine that is there may take to answer, however short the wait: a wait bounds how long a lock is waited for.
const ROUND_TRIP: Duration = Duration::from_millis(250);

/// Between two tries to reach an engine.
const PAUSE: Duration = Duration::from_millis(100);

/// An engine that was named, and is not opened yet.
#[derive(Debug)]
pub(crate) struct Choice {
    pub(crate) descriptor: &'static Descriptor,
    pub(crate) url: EngineUrl,
    /// Whether `KILIT_ENGINE` named it: a mistake there is not on the command line.
    by_environment: bool,
}

impl Choice {
    /// What was typed, or the default.
    pub(crate) fn new(engine: &args::Engine) -> Result<Self> {
        let text = engine.url.as_deref().filter(|text| !text.is_empty()).unwrap_or(DEFAULT);
        let by_environment = env::var_os("KILIT_ENGINE").is_some_and(|set| set == text);
        let named = text.parse().and_then(|url| Ok((kilit::descriptor(&url)?, url)));
        let (descriptor, url) = named.map_err(|error| blame(error, by_environment))?;
        Ok(Self { descriptor, url, by_environment })
    }

    /// Where its locks are, for people.
    pub(crate) fn place(&self) -> String {
        match (self.url.scheme(), self.url.path()) {
            ("file", "") => {
                "in `file:`, which is a directory of this user alone; other users have their own, \
                             and `--engine file:///dir` names one for all"
                    .to_owned()
            }
            ("file", dir) => format!("in {}", escape(dir)),
            _ => format!("at {}", self.url),
        }
    }

    /// Refuses an engine that excludes nobody outside of this process.
    pub(crate) fn must_exclude_processes(&self) -> Result<()> {
        if (self.descriptor.assurance)().exclusion == Exclusion::Process {
            let scheme = self.descriptor.scheme;
            return Err(Failure::usage(format!(
                "`{scheme}:` excludes within one process only, so a command under it excludes nobody; \
                 choose another engine (`kilit engines` lists them)"
            )));
        }
        Ok(())
    }

    /// Opens it, in one try.
    pub(crate) async fn open(&self) -> Result<Client> {
        self.open_within(Duration::ZERO).await
    }

    /// Opens it, and tries until `patience` has passed where trying again can help; zero is one try.
    pub(crate) async fn open_within(&self, patience: Duration) -> Result<Client> {
        self.try_until(patience).await.map_err(|error| blame(error, self.by_environment))
    }

    async fn try_until(&self, patience: Duration) -> kilit::Result<Client> {
        let until = Instant::now() + patience.max(ROUND_TRIP);
        let text = format!("{} was not reached within {patience:?}", self.url);
        let mut why = Error::new(ErrorKind::Unreachable, text).on_engine(self.descriptor.scheme);
        loop {
            let open = Client::open(self.descriptor, self.url.clone());
            let opened = match patience {
                Duration::ZERO => open.await,
                // A try that is cut short knows less than the one before.
                _ => timeout_at(until, open).await.unwrap_or(Err(why)),
            };
            match opened {
                Err(error) if error.retry() == Retry::Later && Instant::now() + PAUSE < until => why = error,
                opened => return opened,
            }
            sleep(PAUSE).await;
        }
    }
}

/// Says where a wrong URL came from.
fn blame(error: Error, by_environment: bool) -> Failure {
    match error.kind() {
        ErrorKind::Invalid | ErrorKind::Unsupported if by_environment => {
            Failure { text: format!("KILIT_ENGINE: {error}"), ..Failure::from(error) }
        }
        _ => error.into(),
    }
}

/// Whether the text of an engine's URL must be kept from the command: it holds a password, or nobody knows.
pub(crate) fn is_secret(url: &str) -> bool {
    url.parse::<EngineUrl>().map_or(true, |url| url.password().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(url: &str) -> Result<Choice> {
        Choice::new(&args::Engine { url: Some(url.to_owned()) })
    }

    #[test]
    fn the_default_is_the_file_engine() {
        assert_eq!(choose("").unwrap().descriptor.scheme, "file");
        assert_eq!(Choice::new(&args::Engine { url: None }).unwrap().descriptor.scheme, "file");
    }

    #[test]
    fn an_unknown_engine_is_wrong_usage() {
        let text = choose("nosuch://u:s3cret@h").unwrap_err().to_string();
        assert!(text.contains("`nosuch:`") && text.contains("file") && !text.contains("s3cret"), "{text}");
    }

    #[test]
    fn memory_excludes_no_process() {
        choose("file:").unwrap().must_exclude_processes().unwrap();
        assert_eq!(choose("memory:").unwrap().must_exclude_processes().unwrap_err().code.number(), 64);
    }

    #[test]
    fn urls_with_passwords_are_secret() {
        for secret in ["redis://u:p@h", "redis://:p@h", "nonsense"] {
            assert!(is_secret(secret), "{secret}");
        }
        assert!(!is_secret("file:///d") && !is_secret("redis://u@h"));
    }
}
