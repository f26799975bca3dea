//! What several themes need.

use std::{future::poll_fn, sync::Arc, task::Poll, time::Duration};

use kilit_core::{Answer, Claim, Client, FencingToken, LockStatus, LossNotice, Note, OwnerId, Share};

use crate::lock;

/// Polls `future` up to `polls` times and drops it then, if it has not ended.
pub(super) async fn polled<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    let (mut future, mut left) = (Box::pin(future), polls);
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// A claim as a recipe makes it, for asking the engine itself.
pub(super) fn claim(name: &str, share: Share) -> Arc<Claim> {
    Arc::new(Claim {
        name: lock(name),
        owner: OwnerId::random(),
        share,
        ttl: Duration::from_secs(20),
        lock_delay: Duration::ZERO,
        note: Note::of_this_process(),
        notice: LossNotice::default(),
    })
}

/// Whether the claim is held now, after one try.
pub(super) async fn grip(client: &Client, claim: &Claim) -> bool {
    let answer = client.engine().claim(claim, Duration::ZERO).await;
    matches!(answer.expect("the engine is well"), Answer::Granted(_))
}

/// The status of one lock.
pub(super) async fn status(client: &Client, name: &str) -> LockStatus {
    let mut all = client.inspect(Some(&lock(name))).await.expect("the engine is well");
    assert_eq!(all.len(), 1, "one lock was asked for");
    all.remove(0)
}

/// Checks that tokens strictly rise.
#[track_caller]
pub(super) fn expect_rising(tokens: &[FencingToken]) {
    for pair in tokens.windows(2) {
        let rises = pair[1].compare(&pair[0]).is_some_and(|order| order.is_gt());
        assert!(rises, "tokens do not rise: {} came after {}", pair[1], pair[0]);
    }
}
