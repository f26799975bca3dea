use std::{sync::Arc, time::Duration};

use kilit_core::{
    Answer, Claim, Client, Clock, Effect, Engine, ErrorKind, Mode, Released, Renewal, Share, Target,
    family::{Lease, LeaseEngine, Take},
};
use kilit_testlease::{Fault, Link, Node, Op, TestLease};

use crate::{TTL, claim, name};

/// A clock that the test moves, one node, and a client.
fn setup() -> (Clock, Arc<Node>, LeaseEngine<TestLease>, Arc<Link>) {
    let clock = Clock::manual();
    let node = Arc::new(Node::new(clock.clone()));
    let lease = TestLease::new(&node);
    let link = lease.link();
    (clock, node, LeaseEngine::new(lease), link)
}

async fn try_claim(engine: &impl Engine, claim: &Claim) -> Option<u64> {
    match engine.claim(claim, Duration::ZERO).await.unwrap() {
        Answer::Granted(grant) => Some(grant.token.map_or(0, |token| token.value().get())),
        Answer::Waiting { .. } => None,
    }
}

#[tokio::test]
async fn an_answer_that_was_lost_is_found_out() {
    let (_, node, engine, link) = setup();
    let mine = claim("x", Share::EXCLUSIVE);
    link.inject(Op::Take, Fault::AnswerLost);
    assert_eq!(try_claim(&engine, &mine).await, Some(1), "the second take found the first one's token");
    assert_eq!(engine.release(&mine).await.unwrap(), Released::Done);
    assert!(node.inspect(None).is_empty());
}

#[tokio::test]
async fn an_outcome_that_stays_unknown_is_unknown() {
    let (_, _, engine, link) = setup();
    let mine = claim("x", Share::EXCLUSIVE);
    link.inject(Op::Take, Fault::AnswerLost);
    link.inject(Op::Take, Fault::Unreachable);
    let error = engine.claim(&mine, Duration::ZERO).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unknown, Effect::Unknown));
    link.inject(Op::Take, Fault::Unreachable);
    let error = engine.claim(&mine, Duration::ZERO).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unreachable, Effect::None));
}

#[tokio::test]
async fn a_take_that_comes_after_the_release_gets_nothing() {
    for fault in [Fault::Late, Fault::Stall] {
        let (_, node, engine, link) = setup();
        let mine = claim("x", Share::EXCLUSIVE);
        link.always(Some(fault));
        {
            let taking = engine.claim(&mine, Duration::ZERO);
            tokio::select! {
                biased;
                result = taking => assert_eq!(result.unwrap_err().kind(), ErrorKind::Unknown),
                () = async { while link.in_flight() == 0 { tokio::task::yield_now().await } } => {}
            }
        }
        link.always(None);
        assert_eq!(engine.release(&mine).await.unwrap(), Released::WasNotHeld);
        assert!(link.deliver() > 0);
        assert!(node.inspect(None).is_empty(), "{fault:?}: a late take was granted");
        let next = claim("x", Share::EXCLUSIVE);
        assert_eq!(try_claim(&engine, &next).await, Some(1));
    }
}

/// However far a take has come when its future is dropped, a release leaves nothing behind.
#[tokio::test]
async fn dropped_at_every_await() {
    let mut points = 0;
    loop {
        let (_, node, engine, _) = setup();
        let mine = claim("x", Share::EXCLUSIVE);
        let mut taking = engine.claim(&mine, Duration::ZERO);
        let mut ready = false;
        for _ in 0..points {
            ready |= futures_poll(&mut taking).await;
        }
        drop(taking);
        engine.release(&mine).await.unwrap();
        assert!(node.inspect(None).is_empty(), "after {points} polls");
        if ready {
            break;
        }
        points += 1;
    }
    assert!(points >= 3, "before the effect, after it, and at the end");
}

/// Polls once.
async fn futures_poll<F: Future + Unpin>(future: &mut F) -> bool {
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(context).is_ready())
    })
    .await
}

#[tokio::test]
async fn a_lease_ends_on_the_nodes_clock_and_is_not_brought_back() {
    let (clock, _, engine, _) = setup();
    let [mine] = &[Arc::new(claim("x", Share::EXCLUSIVE))];
    try_claim(&engine, mine).await.unwrap();
    clock.advance(TTL - Duration::from_nanos(1));
    assert!(matches!(engine.renew(std::slice::from_ref(mine)).await.unwrap()[..], [Renewal::Kept(_)]));
    clock.advance(TTL);
    assert!(matches!(engine.renew(std::slice::from_ref(mine)).await.unwrap()[..], [Renewal::Gone(_)]));
    let next = claim("x", Share::EXCLUSIVE);
    assert_eq!(try_claim(&engine, &next).await, Some(2));
    assert_eq!(engine.release(mine).await.unwrap(), Released::WasNotHeld);
    assert!(engine.inspect(Some(&next.name)).await.unwrap()[0].is_held());
}

#[tokio::test]
async fn a_release_wakes_the_next_one_in_line() {
    let (clock, _, engine, _) = setup();
    let engine = Arc::new(engine);
    let (first, second) = (claim("x", Share::EXCLUSIVE), claim("x", Share::EXCLUSIVE));
    try_claim(&*engine, &first).await.unwrap();
    let waiting = tokio::spawn({
        let (engine, second) = (engine.clone(), second.clone());
        async move { engine.claim(&second, Duration::MAX).await.unwrap() }
    });
    while engine.inspect(Some(&first.name)).await.unwrap()[0].queue.as_ref().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(try_claim(&*engine, &claim("x", Share::EXCLUSIVE)).await, None);
    engine.release(&first).await.unwrap();
    // The clock stands still: nothing but the push can wake it.
    let now = clock.now();
    assert!(matches!(waiting.await.unwrap(), Answer::Granted(_)));
    assert_eq!(clock.now(), now);
}

#[tokio::test]
async fn without_push_a_waiter_looks_by_itself() {
    let (clock, _, engine, link) = setup();
    link.set_push(false);
    let (first, second) = (claim("x", Share::EXCLUSIVE), claim("x", Share::EXCLUSIVE));
    try_claim(&engine, &first).await.unwrap();
    try_claim(&engine, &second).await;
    engine.release(&first).await.unwrap();
    let until = clock.now() + Duration::from_millis(500);
    let hint = engine.get_ref().hint(&second, until);
    tokio::pin!(hint);
    assert!(!futures_poll(&mut hint).await, "it was told although push is off");
    clock.advance(Duration::from_millis(500));
    hint.await;
    assert!(matches!(engine.get_ref().take(&second).await.unwrap(), Take::Taken { .. }));
}

#[tokio::test]
async fn a_waiter_that_goes_on_looking_keeps_its_place() {
    let (clock, _, engine, _) = setup();
    let claims = [0; 3].map(|_| claim("x", Share::EXCLUSIVE));
    for claim in &claims {
        try_claim(&engine, claim).await;
    }
    // The second looks, the third is dead.
    for _ in 0..10 {
        clock.advance(Duration::from_secs(1));
        engine.renew(&[Arc::new(claims[0].clone())]).await.unwrap();
        assert_eq!(try_claim(&engine, &claims[1]).await, None);
    }
    let status = engine.inspect(Some(&claims[0].name)).await.unwrap().remove(0);
    let owners: Vec<_> = status.queue.unwrap().into_iter().map(|waiter| waiter.owner.unwrap()).collect();
    assert_eq!(owners, [claims[1].owner.to_string()]);
}

#[tokio::test]
async fn status_says_who_and_how() {
    let (clock, _, engine, _) = setup();
    let (holder, waiter) = (claim("x", Share::EXCLUSIVE), claim("x", Share::SHARED));
    try_claim(&engine, &holder).await;
    try_claim(&engine, &waiter).await;
    clock.advance(Duration::from_secs(1));
    let status = engine.inspect(Some(&name("x"))).await.unwrap().remove(0);
    assert_eq!((status.mode, status.capacity), (Some(Mode::Exclusive), None));
    let seen = &status.holders[0];
    assert_eq!(seen.owner, Some(holder.owner.to_string()));
    assert_eq!(seen.token.as_ref().unwrap().value().get(), 1);
    assert_eq!(seen.expires_in, Some(TTL - Duration::from_secs(1)));
    assert_eq!(status.queue.unwrap().len(), 1);
    let free = engine.inspect(Some(&name("free"))).await.unwrap().remove(0);
    assert!(!free.is_held());
    assert_eq!(engine.inspect(None).await.unwrap().len(), 1);
    let evicted = engine.evict(&name("x"), Target::Owner(holder.owner.to_string()), false).await.unwrap();
    assert_eq!(evicted, kilit_core::Evicted::Ended);
    assert_eq!(try_claim(&engine, &waiter).await, Some(0));
}

/// A client of a node, and its link, for tests of the whole path.
fn client(node: &Arc<Node>) -> (Client, Arc<Link>) {
    let lease = TestLease::new(node);
    let link = lease.link();
    (Client::new(lease.into_engine()).unwrap(), link)
}

#[tokio::test]
async fn nothing_touches_the_key_after_the_release() {
    let clock = Clock::manual();
    let (client, link) = client(&Arc::new(Node::new(clock.clone())));
    let guard = client.mutex(name("x")).acquire().await.unwrap();
    let deadline = guard.deadline();
    clock.advance(Duration::from_secs(10));
    // The default TTL is 30 s: the renewal is due.
    while guard.deadline() == deadline {
        tokio::task::yield_now().await;
    }
    guard.release().await.unwrap();
    for _ in 0..10 {
        clock.advance(Duration::from_secs(30));
        tokio::task::yield_now().await;
    }
    client.shutdown().await.unwrap();
    let ops: Vec<_> = link.records().into_iter().map(|record| record.op).collect();
    assert_eq!(ops, [Op::Take, Op::Extend, Op::Cancel]);
}

#[tokio::test]
async fn a_holder_that_is_cut_off_knows_before_the_next_one_holds() {
    let clock = Clock::manual();
    let node = Arc::new(Node::new(clock.clone()));
    let ((cut_off, link), (other, _)) = (client(&node), client(&node));
    let guard = cut_off.mutex(name("x")).acquire().await.unwrap();
    link.cut();
    let next = tokio::spawn(async move { other.mutex(name("x")).acquire().await.unwrap() });
    // Small steps, so that the order of the two can be seen.
    while guard.check().is_ok() {
        assert!(!next.is_finished(), "two holders");
        clock.advance(Duration::from_millis(5));
        tokio::task::yield_now().await;
    }
    guard.lost().cancelled().await;
    clock.advance(Duration::from_secs(2));
    assert_eq!(next.await.unwrap().token().unwrap().value().get(), 2);
    link.heal();
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
}

#[tokio::test]
async fn random_faults_never_make_two_holders_and_leave_nothing() {
    const SEED: u64 = 4711;
    let node = Arc::new(Node::new(Clock::system()));
    let (client, link) = client(&node);
    link.random(SEED, 40);
    let mutex = client.mutex(name("x"));
    let inside = Arc::new(tokio::sync::Mutex::new(0_u64));
    let work = (0..4).map(|_| {
        let (mutex, inside) = (mutex.clone(), inside.clone());
        tokio::spawn(async move {
            let mut held = 0;
            for _ in 0..50 {
                let Ok(guard) = mutex.acquire_within(Duration::from_secs(5)).await else { continue };
                let mut last = inside.try_lock().unwrap_or_else(|_| panic!("two holders; seed {SEED}"));
                let token = guard.token().unwrap().value().get();
                assert!(token > *last, "token {token} after {last}; seed {SEED}");
                *last = token;
                tokio::task::yield_now().await;
                drop(last);
                let _ = guard.release().await;
                held += 1;
            }
            held
        })
    });
    let mut held = 0;
    for worker in work.collect::<Vec<_>>() {
        held += worker.await.unwrap();
    }
    assert!(held > 100, "{held} of 200; seed {SEED}");
    link.heal();
    let _ = client.shutdown().await;
    assert_eq!(node.inspect(None), [], "seed {SEED}");
}
