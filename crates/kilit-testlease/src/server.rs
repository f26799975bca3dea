//! The machine served over TCP.

use std::{io, sync::Arc, time::Duration};

use kilit_core::{Claim, Target, TokenValue};
use tokio::net::{TcpListener, TcpStream};

use crate::{
    engine::LOOK,
    node::Node,
    wire::{Hello, Lines, Reply, Request, VERSION, WireKey, WireName, WireTarget},
};

/// Serves `node` to everyone who connects. Never returns; cancel safe.
pub async fn serve(listener: TcpListener, node: Arc<Node>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let node = node.clone();
                tokio::spawn(async move {
                    // What was sent is done; how a connection ends is the client's business.
                    let _ = connection(stream, &node).await;
                });
            }
            // Out of descriptors, say: those that are in use come back.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

async fn connection(stream: TcpStream, node: &Node) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut lines = Lines::new(stream);
    let hello = lines.read::<Hello>().await;
    // The answer says our version, so that the other side can say what is wrong.
    lines.write(&Hello { testlease: VERSION, source: Some(node.source().to_string()) }).await?;
    if hello?.is_none_or(|hello| hello.testlease != VERSION) {
        return Ok(());
    }
    while let Some(request) = lines.read().await? {
        let reply = answer(request, node).await?;
        lines.write(&reply).await?;
    }
    Ok(())
}

async fn answer(request: Request, node: &Node) -> io::Result<Reply> {
    let invalid = |error: kilit_core::Error| io::Error::new(io::ErrorKind::InvalidData, error);
    Ok(match request {
        Request::Take(claim) => Reply::Take(node.take(&Claim::try_from(claim).map_err(invalid)?)),
        Request::Extend(leases) => {
            let extend =
                |lease: &crate::wire::WireLease| node.extend(&lease.key.name, lease.key.owner, lease.ttl);
            Reply::Extend(leases.iter().map(extend).collect())
        }
        Request::Cancel(WireKey { name, owner }) => Reply::Cancel(node.cancel(&name, owner)),
        Request::Wait(WireKey { name, owner }, time) => {
            let until = node.clock().now() + time.min(LOOK);
            node.clock().timeout_at(until, node.ready(&name, owner)).await;
            Reply::Wait
        }
        Request::Inspect(name) => Reply::Inspect(node.inspect(name.as_ref().map(|WireName(name)| name))),
        Request::Evict(WireName(name), target) => {
            let target = match target {
                WireTarget::Token(value) => Target::Token(TokenValue::new(value).map_err(invalid)?),
                WireTarget::Owner(owner) => Target::Owner(owner),
            };
            Reply::Evict(node.evict(&name, &target))
        }
    })
}
