//! From a URL to a client.

use kilit_core::{Client, Descriptor, EngineUrl, Error, Result, blocking};

use crate::engines;

/// Opens the engine that `url` names, such as `file:` or `file:///var/lib/locks`; see [`engines`] for the forms.
///
/// `file:` alone is a directory of this *user*: programs of several users exclude each other only when they name one.
///
/// # Errors
/// [`Invalid`](crate::ErrorKind::Invalid) for a URL that is not understood, before anything is sent; then the engine's
/// own.
///
/// # Cancel safety
/// As [`Client::open`].
pub async fn open(url: &str) -> Result<Client> {
    let url: EngineUrl = url.parse()?;
    Client::open(descriptor(&url)?, url).await
}

/// As [`open`], for programs without a runtime.
///
/// # Errors
/// As there.
pub fn open_blocking(url: &str) -> Result<blocking::Client> {
    let url: EngineUrl = url.parse()?;
    blocking::Client::open(descriptor(&url)?, url)
}

/// The engine that a URL means.
///
/// # Errors
/// [`Invalid`](crate::ErrorKind::Invalid) for a scheme that no engine here has, with those there are.
pub fn descriptor(url: &EngineUrl) -> Result<&'static Descriptor> {
    let scheme = url.scheme();
    let known = |engine: &&Descriptor| engine.scheme == scheme || engine.aliases.contains(&scheme);
    engines().find(known).ok_or_else(|| {
        let all: Vec<_> = engines().map(|engine| engine.scheme).collect();
        Error::invalid(format!("no engine `{scheme}:` is built in; there are: {}", all.join(", ")))
    })
}
