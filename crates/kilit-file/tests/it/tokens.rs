//! Tokens of one name rise over everything that can happen to its file.

use std::fs;

use kilit_core::ErrorKind;

use crate::{
    helper::Helper,
    support::{Dir, NOW, claim, cycle, release, shared, take, try_take},
};

#[tokio::test]
async fn they_rise_by_one_and_cost_a_flush_a_block() {
    let dir = Dir::new();
    let engine = dir.engine().await;
    let first = cycle(&*engine, "x").await;
    for n in 1..3 * 32_768 {
        assert_eq!(cycle(&*engine, "x").await, first + n);
    }
    assert_eq!(dir.blocks(), 3, "a flush for each 32,768");
}

#[tokio::test]
async fn two_names_never_share_one() {
    let dir = Dir::new();
    let engine = dir.engine().await;
    let (x, y) = (cycle(&*engine, "x").await, cycle(&*engine, "y").await);
    assert_eq!((x, y), (1, 32_769));
    assert_eq!((cycle(&*engine, "x").await, cycle(&*engine, "y").await), (2, 32_770));
}

#[tokio::test]
async fn shared_holders_draw_none() {
    let dir = Dir::new();
    let engine = dir.engine().await;
    let reader = shared("x");
    take(&*engine, &reader, NOW).await.unwrap();
    release(&*engine, &reader).await;
    assert!(!dir.path().join("counter").exists());
    let token = cycle(&*engine, "x").await;
    take(&*engine, &reader, NOW).await.unwrap();
    release(&*engine, &reader).await;
    assert_eq!(cycle(&*engine, "x").await, token + 1);
}

#[tokio::test]
async fn they_rise_whatever_becomes_of_the_lock_file() {
    let dir = Dir::new();
    let engine = dir.engine().await;
    let mut last = 0;
    let mut rises = async |what: &str| {
        let token = cycle(&*engine, "x").await;
        assert!(token > last, "{what}: {token} after {last}");
        last = token;
    };
    rises("new").await;
    let copy = fs::read(dir.lock("x")).unwrap();
    rises("again").await;
    fs::remove_file(dir.lock("x")).unwrap();
    rises("removed").await;
    fs::remove_file(dir.lock("x")).unwrap();
    fs::write(dir.lock("x"), &copy).unwrap();
    rises("an old copy").await;
    fs::write(dir.lock("z"), &copy).unwrap();
    fs::rename(dir.lock("z"), dir.lock("x")).unwrap();
    rises("an old copy, moved over it").await;
    fs::write(dir.lock("x"), "").unwrap();
    rises("emptied, as `9>x.lock` does").await;
    let mut damaged = fs::read(dir.lock("x")).unwrap();
    damaged[150] ^= 1;
    fs::write(dir.lock("x"), damaged).unwrap();
    rises("damaged").await;
    fs::remove_dir_all(dir.path().join("locks")).unwrap();
    rises("the directory removed").await;
    let mut other = Helper::hold(&dir, "x");
    let killed = other.held();
    other.0.kill();
    rises("killed").await;
    assert!(last > killed);
}

#[tokio::test]
async fn a_lost_counter_is_a_new_source() {
    let dir = Dir::new();
    let engine = dir.engine().await;
    let source = async |lock: &str| {
        let claim = claim(lock);
        take(&*engine, &claim, NOW).await.unwrap();
        let token = engine.inspect(Some(&claim.name)).await.unwrap()[0].holders[0].token.clone();
        release(&*engine, &claim).await;
        token.unwrap().source().clone()
    };
    let old = source("x").await;
    assert_eq!(source("y").await, old);
    fs::remove_file(dir.path().join("counter")).unwrap();
    assert_ne!(source("z").await, old);
    assert_eq!(source("x").await, old, "the rest of its block is still good");
    fs::remove_dir_all(dir.path()).unwrap();
    assert_ne!(source("x").await, old);
}

#[tokio::test]
async fn a_damaged_counter_grants_nothing() {
    let dir = Dir::new();
    let engine = dir.engine().await;
    cycle(&*engine, "x").await;
    let mut bytes = fs::read(dir.path().join("counter")).unwrap();
    (bytes[513], bytes[1025]) = (1, 1);
    fs::write(dir.path().join("counter"), bytes).unwrap();
    let new = claim("y");
    let error = try_take(&*engine, &new, NOW).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    assert_eq!(
        try_take(&*engine, &new, NOW).await.unwrap_err().kind(),
        ErrorKind::Incompatible,
        "and stays free"
    );
    cycle(&*engine, "x").await;
}
