//! Fencing tokens strictly rise, whatever way the lock changes hands.

use std::{sync::Arc, time::Duration};

use kilit_core::{Answer, ErrorKind, FencingToken, Guard, Share, Target, TokenStrength, TokenValue};
use tokio::{sync::Mutex, task::JoinSet};

use super::support::{claim, expect_rising, grip};
use crate::{Harm, Party, Subject, lock};

/// The lock's next holder.
async fn next(subject: &Subject, party: &Party, name: &str) -> Guard {
    let mutex = subject.mutex(party, name);
    subject.within("the lock passes on", mutex.acquire()).await.expect("it passes on")
}

fn token(guard: &Guard) -> FencingToken {
    guard.token().expect("the engine has tokens").clone()
}

/// By one client and by several.
pub async fn rise_over_release_and_drop(subject: &Subject) {
    let (a, b) = (subject.party().await, subject.party().await);
    let mut tokens = Vec::new();
    for round in 0..8 {
        let guard = next(subject, if round % 3 == 0 { &a } else { &b }, "passed").await;
        tokens.push(token(&guard));
        match round % 2 {
            0 => guard.release().await.expect("it was held"),
            _ => drop(guard),
        }
    }
    expect_rising(&tokens);
}

/// Whatever means the set-up has.
pub async fn rise_over_a_hold_taken_away(subject: &Subject) {
    let (a, b) = (subject.party().await, subject.party().await);
    let mutex = a.mutex(lock("passed")).with(subject.short()).expect("in range");
    let old = mutex.try_acquire().await.expect("it is free");
    subject.take_away(&a, &old).await;
    let new = next(subject, &b, "passed").await;
    expect_rising(&[token(&old), token(&new)]);
}

/// An operator's break.
pub async fn rise_over_eviction(subject: &Subject) {
    let (a, b) = (subject.party().await, subject.party().await);
    let mut tokens = Vec::new();
    for _ in 0..3 {
        let mutex = a.mutex(lock("passed")).with(subject.short()).expect("in range");
        let guard = subject.within("the lock passes on", mutex.acquire()).await.expect("it passes on");
        let drawn = token(&guard);
        let target = Target::Token(drawn.value());
        subject.evict(&b, guard, target).await.expect("holds can be ended");
        tokens.push(drawn);
    }
    tokens.push(token(&next(subject, &b, "passed").await));
    expect_rising(&tokens);
}

/// The holder falls silent.
pub async fn rise_over_expiry(subject: &Subject) {
    let (a, b) = (subject.party().await, subject.party().await);
    let mutex = a.mutex(lock("passed")).with(subject.short()).expect("in range");
    let old = mutex.try_acquire().await.expect("it is free");
    a.link(Harm::Cut);
    let new = next(subject, &b, "passed").await;
    expect_rising(&[token(&old), token(&new)]);
    old.check().expect_err("another has it");
}

/// `kill -9` of the holder.
pub async fn rise_over_kill(subject: &Subject) {
    let party = subject.party().await;
    let mut tokens = vec![token(&next(subject, &party, "passed").await)];
    for _ in 0..2 {
        let mut holder = subject.agent("hold", "passed").ttl(subject.short_ttl).spawn();
        tokens.push(holder.held());
        holder.kill();
        tokens.push(token(&next(subject, &party, "passed").await));
    }
    expect_rising(&tokens);
}

/// A power cut. Where tokens are durable they rise; where they are not, the source is another one, so that no fence
/// takes an old token for a new one.
pub async fn never_fall_over_a_restart(subject: &Subject) {
    let party = subject.party().await;
    let before = next(subject, &party, "passed").await;
    let old = token(&before);
    before.release().await.expect("it was held");
    (subject.restart.as_ref().expect("the case asks for it"))(()).await;
    let party = subject.party().await;
    let new = token(&next(subject, &party, "passed").await);
    if party.assurance().token >= TokenStrength::Durable || new.source() == old.source() {
        expect_rising(&[old, new]);
    }
}

/// A grant that was answered before another was asked for has the lower token; and no token comes twice.
pub async fn rise_in_the_order_of_grants(subject: &Subject) {
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    for _ in 0..3 {
        let party = subject.party().await;
        let (mutex, order) = (subject.mutex(&party, "passed"), order.clone());
        tasks.spawn(async move {
            for _ in 0..12 {
                let guard = mutex.acquire().await.expect("everyone is served");
                order.lock().await.push(token(&guard));
                guard.release().await.expect("it was held");
            }
        });
    }
    subject.within("everyone was served", tasks.join_all()).await;
    let order = order.lock().await;
    assert_eq!(order.len(), 36);
    expect_rising(&order);
}

/// Two names used in turn.
pub async fn of_two_names_rise_each(subject: &Subject) {
    let party = subject.party().await;
    let (mut one, mut two) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        let (a, b) = (next(subject, &party, "one").await, next(subject, &party, "two").await);
        one.push(token(&a));
        two.push(token(&b));
        a.release().await.expect("it was held");
        b.release().await.expect("it was held");
    }
    expect_rising(&one);
    expect_rising(&two);
    assert_eq!(one[0].source(), two[0].source(), "one engine is one source");
}

/// Doubles end there; integers do not.
pub async fn are_exact_near_two_to_the_53(subject: &Subject) {
    set_counter(subject, (1 << 53) - 2).await;
    let party = subject.party().await;
    let mut tokens = Vec::new();
    for _ in 0..5 {
        let guard = next(subject, &party, "passed").await;
        tokens.push(token(&guard));
        guard.release().await.expect("it was held");
    }
    expect_rising(&tokens);
    assert!(tokens[0].value().get() > (1 << 53) - 2, "{}", tokens[0]);
}

/// An engine whose next token would leave the range refuses the claim: an error, never a wrap, and the lock is not
/// held by anyone.
pub async fn end_before_two_to_the_63(subject: &Subject) {
    set_counter(subject, TokenValue::MAX - 1).await;
    let party = subject.party().await;
    let mutex = subject.mutex(&party, "passed");
    match mutex.try_acquire().await {
        Ok(last) => {
            assert!(last.token().expect("it has tokens").value().get() >= TokenValue::MAX - 1);
            last.release().await.expect("it was held");
        }
        // An engine that draws tokens in blocks may stop before the last.
        Err(error) => assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}"),
    }
    for _ in 0..2 {
        let error = mutex.try_acquire().await.expect_err("no token is left");
        assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
    }
    let status = party.inspect(Some(&lock("passed"))).await.expect("the engine is well");
    assert!(!status[0].is_held(), "{status:?}");
}

async fn set_counter(subject: &Subject, last: u64) {
    (subject.last_token.as_ref().expect("the case asks for it"))((lock("passed"), last)).await;
}

/// The same claim again is the same hold, with the same token.
pub async fn belong_to_the_claim(subject: &Subject) {
    let party = subject.party().await;
    let (mine, engine) = (claim("again", Share::EXCLUSIVE), party.engine());
    let mut tokens = Vec::new();
    for _ in 0..3 {
        match engine.claim(&mine, Duration::ZERO).await.expect("the engine is well") {
            Answer::Granted(grant) => tokens.push(grant.token.expect("it has tokens")),
            waiting => panic!("it holds the lock already: {waiting:?}"),
        }
    }
    assert!(tokens.iter().all(|token| *token == tokens[0]), "one hold has more than one token: {tokens:?}");
    engine.release(&mine).await.expect("the engine is well");
    let another = claim("again", Share::EXCLUSIVE);
    assert!(grip(&party, &another).await, "the first was released");
    engine.release(&another).await.expect("the engine is well");
}
