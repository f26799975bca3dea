//! What goes over the wire: one JSON document a line, requests and replies in turn.

use std::{io, time::Duration};

use kilit_core::{Claim, LockName, LossNotice, Note, OwnerId, Share};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

use crate::{
    machine::{Refusal, Taken},
    text,
    view::LockView,
};

/// The version of all this. Another one is refused, never guessed at.
pub(crate) const VERSION: u32 = 1;

/// The longest line. A batch of some ten thousand renewals fits.
const LINE_MAX: u64 = 4 * 1024 * 1024;

/// The first line each way. Later versions keep these fields.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// What speaks: a line of another protocol is not taken for ours.
    pub(crate) testlease: u32,
    /// The server's token source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) source: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    Take(WireClaim),
    Extend(Vec<WireLease>),
    Cancel(WireKey),
    /// Answered when another take may succeed, or after this long.
    Wait(WireKey, Duration),
    Inspect(Option<WireName>),
    Evict(WireName, WireTarget),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    Take(Result<Taken, Refusal>),
    Extend(Vec<bool>),
    /// Whether it was held.
    Cancel(bool),
    Wait,
    Inspect(Vec<LockView>),
    /// Whether there was such a hold.
    Evict(bool),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WireName(#[serde(with = "text::name")] pub(crate) LockName);

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WireKey {
    #[serde(with = "text::name")]
    pub(crate) name: LockName,
    #[serde(with = "text::display")]
    pub(crate) owner: OwnerId,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WireLease {
    pub(crate) key: WireKey,
    pub(crate) ttl: Duration,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WireClaim {
    pub(crate) key: WireKey,
    #[serde(with = "text::share")]
    pub(crate) share: Share,
    pub(crate) ttl: Duration,
    pub(crate) lock_delay: Duration,
    pub(crate) note: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum WireTarget {
    Token(u64),
    Owner(String),
}

impl From<&Claim> for WireKey {
    fn from(claim: &Claim) -> Self {
        Self { name: claim.name.clone(), owner: claim.owner }
    }
}

impl From<&Claim> for WireLease {
    fn from(claim: &Claim) -> Self {
        Self { key: claim.into(), ttl: claim.engine_ttl() }
    }
}

impl From<&Claim> for WireClaim {
    fn from(claim: &Claim) -> Self {
        Self {
            key: claim.into(),
            share: claim.share,
            ttl: claim.ttl,
            lock_delay: claim.lock_delay,
            note: claim.note.as_str().to_owned(),
        }
    }
}

impl TryFrom<WireClaim> for Claim {
    type Error = kilit_core::Error;

    fn try_from(wire: WireClaim) -> kilit_core::Result<Self> {
        let WireClaim { key: WireKey { name, owner }, share, ttl, lock_delay, note } = wire;
        Ok(Self {
            name,
            owner,
            share,
            ttl,
            lock_delay,
            note: Note::new(note)?,
            notice: LossNotice::default(),
        })
    }
}

/// A connection that speaks in lines.
#[derive(Debug)]
pub(crate) struct Lines<S> {
    stream: BufReader<S>,
    line: Vec<u8>,
}

impl<S: AsyncReadExt + AsyncWriteExt + Unpin> Lines<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream: BufReader::new(stream), line: Vec::new() }
    }

    pub(crate) fn stream(&self) -> &S {
        self.stream.get_ref()
    }

    pub(crate) async fn write(&mut self, message: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.stream.write_all(&line).await?;
        self.stream.flush().await
    }

    /// The next message; `None` at the end of the connection.
    ///
    /// # Errors
    /// `InvalidData` for what is no such message.
    pub(crate) async fn read<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        self.line.clear();
        let read = (&mut self.stream).take(LINE_MAX).read_until(b'\n', &mut self.line).await?;
        if read == 0 {
            return Ok(None);
        }
        if self.line.last() != Some(&b'\n') {
            let why = if read as u64 == LINE_MAX {
                io::ErrorKind::InvalidData
            } else {
                io::ErrorKind::UnexpectedEof
            };
            return Err(why.into());
        }
        serde_json::from_slice(&self.line)
            .map(Some)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }
}
