//! What `status` shows.

use std::{
    process::{Command, Stdio},
    time::Duration,
};

use kilit_core::{Mode, Note};
use kilit_testbed::Process;

use crate::{
    helper::Helper,
    support::{Dir, LONG, NOW, claim, cycle, open, release, shared, status, take, until_waiting},
};

#[tokio::test]
async fn a_look_makes_nothing() {
    let dir = Dir::new();
    let engine = dir.engine().await;
    assert!(engine.inspect(None).await.unwrap().is_empty());
    assert!(!status(&*engine, "x").await.is_held());
    engine.diagnose().await.unwrap();
    assert!(!dir.path().exists());
    cycle(&*engine, "y").await;
    assert!(!status(&*engine, "x").await.is_held());
    assert!(!dir.lock("x").exists());
}

#[tokio::test]
async fn holders_and_the_line_in_order() {
    let dir = Dir::new();
    let engine = dir.engine().await;
    let own = kilit_core::Claim { note: Note::new("nightly job").unwrap(), ..claim("x") };
    let token = take(&*engine, &own, NOW).await.unwrap();
    let first = Helper::hold(&dir, "x");
    until_waiting(&*engine, "x", 1).await;
    let second = Helper::hold(&dir, "x");
    until_waiting(&*engine, "x", 2).await;
    let lock = status(&*engine, "x").await;
    assert_eq!((lock.mode, lock.path.as_ref()), (Some(Mode::Exclusive), Some(&dir.lock("x"))));
    let [holder] = &lock.holders[..] else { panic!("{lock:?}") };
    assert_eq!(holder.token.as_ref().unwrap().value().get(), token);
    assert_eq!(holder.owner.as_deref(), Some(&*own.owner.to_string()));
    assert_eq!(holder.note.as_deref(), Some("nightly job"));
    assert!(holder.since.unwrap().elapsed().unwrap() < LONG && !holder.foreign);
    let queue = lock.queue.unwrap();
    for (waiter, process) in queue.iter().zip([&first, &second]) {
        assert!(waiter.note.as_ref().unwrap().ends_with(&format!("/{}", process.0.pid())));
        assert!(waiter.owner.is_some() && waiter.since.is_some());
    }
    assert_eq!(engine.inspect(None).await.unwrap().len(), 1);
}

#[tokio::test]
async fn shared_holders_are_listed_each() {
    let dir = Dir::new();
    let engine = dir.engine().await;
    let (a, b) = (shared("x"), shared("x"));
    take(&*engine, &a, NOW).await.unwrap();
    take(&*engine, &b, NOW).await.unwrap();
    let lock = status(&*engine, "x").await;
    assert_eq!(lock.mode, Some(Mode::Shared));
    let mut owners: Vec<_> = lock.holders.iter().map(|holder| holder.owner.clone().unwrap()).collect();
    owners.sort();
    let mut expected = vec![a.owner.to_string(), b.owner.to_string()];
    expected.sort();
    assert_eq!(owners, expected);
    release(&*engine, &a).await;
    assert_eq!(status(&*engine, "x").await.holders.len(), 1);
    let locks = engine.inspect(None).await.unwrap();
    assert_eq!(locks[0].name.as_str(), Some("x"), "a name that only readers used is known too");
}

#[tokio::test]
async fn the_kernel_decides_who_holds() {
    let dir = Dir::new();
    let engine = dir.engine().await;
    // A record of a holder that was killed.
    let mut other = Helper::hold(&dir, "x");
    other.held();
    assert!(status(&*engine, "x").await.is_held());
    other.0.kill();
    assert!(!status(&*engine, "x").await.is_held());
    // flock(1) has it, with that record still in the file.
    let mut flock = Command::new("flock");
    flock.arg("-x").arg(dir.lock("x")).args(["sh", "-c", "echo in; cat"]);
    let mut flock = Process::spawn_with_stdin(&mut flock, Stdio::piped());
    flock.wait_for_stdout(LONG, |text| text.contains("in").then_some(()));
    let lock = status(&*engine, "x").await;
    assert!(lock.holders.len() == 1 && lock.holders[0].foreign, "{lock:?}");
    assert!(lock.holders[0].token.is_none() && lock.holders[0].owner.is_none());
}

#[tokio::test]
async fn names_that_are_hashes_are_read_from_the_record() {
    let dir = Dir::new();
    let engine = dir.engine().await;
    let long = "é".repeat(200);
    let own = claim(&long);
    take(&*engine, &own, NOW).await.unwrap();
    let locks = engine.inspect(None).await.unwrap();
    assert_eq!(locks[0].name.as_str(), Some(&*long));
    assert!(status(&*engine, &long).await.is_held());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn looking_makes_no_claim_fail() {
    let dir = Dir::new();
    let (engine, observer) = (dir.engine().await, open(&dir.url()).await.unwrap());
    cycle(&*engine, "x").await;
    let looking = tokio::spawn(async move {
        loop {
            status(&*observer, "x").await;
            observer.inspect(None).await.unwrap();
            tokio::task::yield_now().await;
        }
    });
    for _ in 0..3000 {
        cycle(&*engine, "x").await;
    }
    looking.abort();
}

#[tokio::test]
async fn a_look_does_not_end_a_wait() {
    let dir = Dir::new();
    let engine = dir.engine().await;
    let own = claim("x");
    take(&*engine, &own, NOW).await.unwrap();
    let late = claim("x");
    let waiting = take(&*engine, &late, Duration::from_millis(300));
    let looking = async {
        for _ in 0..100 {
            assert_eq!(status(&*engine, "x").await.holders.len(), 1);
            tokio::task::yield_now().await;
        }
    };
    assert_eq!(tokio::join!(waiting, looking).0, None);
}

#[tokio::test]
async fn containers_that_share_the_directory_see_each_other() {
    let dir = Dir::new();
    let engine = dir.engine().await;
    let own = claim("x");
    take(&*engine, &own, NOW).await.unwrap();
    let saw = |role: &str| Helper::contained(&dir, role).said("saw ");
    assert_eq!(saw("look x"), format!("Some(Exclusive) [Some(\"{}\")]", own.owner));
    release(&*engine, &own).await;
    assert_eq!(saw("look x"), "None []");
    let own = shared("x");
    take(&*engine, &own, NOW).await.unwrap();
    assert_eq!(saw("look x"), format!("Some(Shared) [Some(\"{}\")]", own.owner));
    release(&*engine, &own).await;

    // Both are PID 1 of their own; the kernel tells them apart.
    let mut first = Helper::contained(&dir, "hold x exclusive 0");
    let token = first.held();
    let mut second = Helper::contained(&dir, "hold x exclusive 0");
    until_waiting(&*engine, "x", 1).await;
    assert_eq!(status(&*engine, "x").await.holders[0].token.as_ref().unwrap().value().get(), token);
    assert!(!second.has_held());
    drop(first);
    assert!(second.held() > token);
}

#[tokio::test]
async fn a_look_from_within_a_container_makes_no_claim_fail() {
    let dir = Dir::new();
    let engine = dir.engine().await;
    cycle(&*engine, "x").await;
    let mut looker = Helper::contained(&dir, "look-on x");
    looker.said("looks");
    for _ in 0..5000 {
        cycle(&*engine, "x").await;
    }
}
