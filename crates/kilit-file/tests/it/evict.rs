//! An operator's break.

use kilit_core::{Evicted, LossReason, Renewal, Target, TokenValue};

use crate::{
    helper::Helper,
    support::{Dir, LONG, NOW, claim, cycle, name, renew, shared, status, take},
};

fn token(value: u64) -> Target {
    Target::Token(TokenValue::new(value).unwrap())
}

#[tokio::test]
async fn a_holder_that_heeds_it_is_not_killed() {
    let dir = Dir::new();
    let engine = dir.engine().await;
    let mut other = Helper::start(&dir, "heed x");
    let held = other.held();
    assert_eq!(engine.evict(&name("x"), token(held), false).await.unwrap(), Evicted::Ended);
    assert_eq!(other.said("lost "), format!("{:?}", LossReason::Broken));
    other.0.wait(LONG).expect_code(0);
    assert!(cycle(&*engine, "x").await > held);
}

#[tokio::test]
async fn another_hold_is_left_alone() {
    let dir = Dir::new();
    let engine = dir.engine().await;
    let own = claim("x");
    let held = take(&*engine, &own, NOW).await.unwrap();
    for target in [token(held + 1), Target::Owner("nobody".into()), Target::Owner(String::new())] {
        for lock in ["x", "never"] {
            assert_eq!(engine.evict(&name(lock), target.clone(), true).await.unwrap(), Evicted::NoSuchHold);
        }
    }
    assert_eq!(renew(&*engine, &own).await, Renewal::Kept(None));
}

#[tokio::test]
async fn a_process_is_killed_only_when_told_so() {
    for mode in ["exclusive", "shared"] {
        let dir = Dir::new();
        let engine = dir.engine().await;
        let mut deaf = Helper::start(&dir, &format!("hold x {mode} 0"));
        deaf.held();
        let bystander = Helper::hold(&dir, if mode == "shared" { "y" } else { "x" });
        let owner = status(&*engine, "x").await.holders[0].owner.clone().unwrap();
        let target = Target::Owner(owner);
        let Evicted::NeedsForce(list) = engine.evict(&name("x"), target.clone(), false).await.unwrap() else {
            panic!("it does not heed it")
        };
        assert!(list.len() == 1 && list[0].contains(&format!("process {}", deaf.0.pid())), "{list:?}");
        assert!(!kilit_testbed::is_gone(deaf.0.pid()));
        assert_eq!(engine.evict(&name("x"), target, true).await.unwrap(), Evicted::Ended);
        deaf.0.wait(LONG).expect_code(128 + 9);
        assert!(!kilit_testbed::is_gone(bystander.0.pid()), "who waits or holds another is left alone");
    }
}

#[tokio::test]
async fn this_very_process_is_never_killed() {
    let dir = Dir::new();
    let engine = dir.engine().await;
    let own = claim("x");
    let held = take(&*engine, &own, NOW).await.unwrap();
    let error = engine.evict(&name("x"), token(held), true).await.unwrap_err();
    assert!(error.to_string().contains("this very process"), "{error}");
    assert_eq!(renew(&*engine, &own).await, Renewal::Gone(LossReason::Broken));
}

#[tokio::test]
async fn one_of_several_shared_holders() {
    let dir = Dir::new();
    let engine = dir.engine().await;
    let (a, b) = (shared("x"), shared("x"));
    take(&*engine, &a, NOW).await.unwrap();
    take(&*engine, &b, NOW).await.unwrap();
    let x = name("x");
    let breaking = engine.evict(&x, Target::Owner(a.owner.to_string()), false);
    let heeding = async {
        while renew(&*engine, &a).await == Renewal::Kept(None) {
            tokio::task::yield_now().await;
        }
        engine.release(&a).await.unwrap();
    };
    assert_eq!(tokio::join!(breaking, heeding).0.unwrap(), Evicted::Ended);
    assert_eq!(renew(&*engine, &b).await, Renewal::Kept(None));
}

#[tokio::test]
async fn whoever_has_a_duplicate_is_ended_after_the_holder() {
    let dir = Dir::new();
    let engine = dir.engine().await;
    let mut other = Helper::start(&dir, "hold-with-child x");
    let held = other.held();
    let child: u32 = other.said("child ").parse().unwrap();
    other.0.kill();
    let Evicted::NeedsForce(list) = engine.evict(&name("x"), token(held), false).await.unwrap() else {
        panic!("the child has the lock")
    };
    assert!(list.len() == 1 && list[0].contains(&format!("process {child}")), "{list:?}");
    assert_eq!(engine.evict(&name("x"), token(held), true).await.unwrap(), Evicted::Ended);
    assert!(kilit_testbed::is_gone(child));
    cycle(&*engine, "x").await;
}

#[tokio::test]
async fn a_process_of_a_container_is_found_from_outside() {
    let dir = Dir::new();
    let engine = dir.engine().await;
    let mut other = Helper::contained(&dir, "hold x exclusive 0");
    let held = other.held();
    assert_eq!(engine.evict(&name("x"), token(held), true).await.unwrap(), Evicted::Ended);
    cycle(&*engine, "x").await;
}
