//! One holder at a time, whatever is done to the files and by whom.

use std::{
    fs,
    process::{Command, Stdio},
};

use kilit_core::{ErrorKind, LossReason, Released, Renewal};
use kilit_testbed::{Process, overlap::Judge};

use crate::{
    helper::Helper,
    support::{
        Dir, LONG, NOW, claim, cycle, open, release, renew, shared, status, take, try_take, until_waiting,
    },
};

#[tokio::test]
async fn two_claims_exclude_each_other_within_a_process_and_between_engines() {
    let dir = Dir::new();
    let (one, other) = (dir.engine().await, dir.engine().await);
    let first = claim("x");
    assert!(take(&*one, &first, NOW).await.is_some());
    for engine in [&one, &other] {
        assert_eq!(take(&**engine, &claim("x"), NOW).await, None);
        assert_eq!(take(&**engine, &shared("x"), NOW).await, None);
        cycle(&**engine, "y").await;
    }
    assert_eq!(release(&*one, &first).await, Released::Done);
    assert_eq!(release(&*one, &first).await, Released::WasNotHeld);
    cycle(&*other, "x").await;
}

#[tokio::test]
async fn shared_holders_exclude_exclusive_ones_only() {
    let dir = Dir::new();
    let engine = dir.engine().await;
    let (a, b) = (shared("x"), shared("x"));
    assert_eq!(take(&*engine, &a, NOW).await, Some(0));
    assert_eq!(take(&*engine, &b, NOW).await, Some(0));
    assert_eq!(take(&*engine, &claim("x"), NOW).await, None);
    release(&*engine, &a).await;
    assert_eq!(take(&*engine, &claim("x"), NOW).await, None);
    release(&*engine, &b).await;
    cycle(&*engine, "x").await;
    assert_eq!(dir.places("x"), 0);
}

#[tokio::test]
async fn nobody_overlaps_in_eight_processes() {
    let dir = Dir::new();
    let log = dir.path().with_file_name("log");
    let role = format!("visit x {} 1250", log.display());
    let mut visitors: Vec<_> = (0..8).map(|_| Helper::start(&dir, &role)).collect();
    for visitor in &mut visitors {
        visitor.0.wait(LONG * 3).expect_code(0);
    }
    assert_eq!(Judge::read(&log).expect_clean().visits, 10_000);
    assert_eq!(dir.places("x"), 0);
    assert_eq!(dir.blocks(), 1, "a flush for each 32,768");
}

#[tokio::test]
async fn many_who_start_at_once_agree_on_one_source() {
    let dir = Dir::new();
    let mut all: Vec<_> = (0..8).map(|n| Helper::start(&dir, &format!("hold n{n} exclusive 0"))).collect();
    all.iter_mut().for_each(|one| assert!(one.held() > 0));
    let engine = dir.engine().await;
    let locks = engine.inspect(None).await.unwrap();
    let sources: std::collections::HashSet<_> =
        locks.iter().map(|lock| lock.holders[0].token.clone().unwrap().source().clone()).collect();
    assert_eq!((locks.len(), sources.len()), (8, 1));
    let drafts =
        fs::read_dir(dir.path()).unwrap().filter(|e| e.as_ref().unwrap().path().extension().is_some());
    assert_eq!(drafts.count(), 0);
}

#[tokio::test]
async fn a_file_that_stays_open_between_holds_is_not_trusted() {
    let dir = Dir::new();
    let (one, other) = (dir.engine().await, dir.engine().await);
    cycle(&*one, "x").await;
    fs::rename(dir.lock("x"), dir.lock("elsewhere")).unwrap();
    let holder = claim("x");
    take(&*other, &holder, NOW).await.expect("a new file");
    assert!(one.claim_at_once(&claim("x")).is_none());
    assert_eq!(take(&*one, &claim("x"), NOW).await, None);
    release(&*other, &holder).await;
    cycle(&*one, "x").await;
}

#[tokio::test]
async fn few_files_stay_open_between_holds() {
    let dir = Dir::new();
    let engine = dir.engine().await;
    for n in 0..300 {
        cycle(&*engine, &format!("n{n}")).await;
    }
    let link = |fd: std::io::Result<fs::DirEntry>| fs::read_link(fd.unwrap().path()).ok();
    let open = fs::read_dir("/proc/self/fd").unwrap().filter_map(link);
    let ours = open.filter(|file| file.starts_with(dir.path())).count();
    assert!((1..=256).contains(&ours), "{ours}");
}

#[tokio::test]
async fn a_lock_file_that_was_removed_or_replaced_is_lost_for_its_holder() {
    let dir = Dir::new();
    let engine = dir.engine().await;
    for replace in [false, true] {
        let old = claim("x");
        let token = take(&*engine, &old, NOW).await.unwrap();
        assert_eq!(renew(&*engine, &old).await, Renewal::Kept(None));
        if replace {
            fs::copy(dir.lock("x"), dir.lock("y")).unwrap();
            fs::rename(dir.lock("y"), dir.lock("x")).unwrap();
        } else {
            fs::remove_file(dir.lock("x")).unwrap();
        }
        assert_eq!(renew(&*engine, &old).await, Renewal::Gone(LossReason::Replaced));
        let new = claim("x");
        assert!(take(&*engine, &new, NOW).await.unwrap() > token, "tokens rise over that");
        // The late release of the old hold does not touch the new one.
        assert_eq!(release(&*engine, &old).await, Released::WasNotHeld);
        assert_eq!(take(&*engine, &claim("x"), NOW).await, None);
        assert_eq!(release(&*engine, &new).await, Released::Done);
    }
}

#[tokio::test]
async fn waiters_follow_when_the_lock_file_is_removed() {
    let dir = Dir::new();
    let engine = dir.engine().await;
    let old = claim("x");
    let token = take(&*engine, &old, NOW).await.unwrap();
    let mut waiters = [Helper::hold(&dir, "x"), Helper::hold(&dir, "x")];
    until_waiting(&*engine, "x", 2).await;
    fs::remove_file(dir.lock("x")).unwrap();
    kilit_testbed::wait_until("one of them has it", LONG, || waiters.iter().any(Helper::has_held));
    // Exactly one: the other waits for the same file.
    let held = waiters.iter().position(Helper::has_held).unwrap();
    assert!(waiters[held].held() > token);
    until_waiting(&*engine, "x", 1).await;
    assert!(!waiters[1 - held].has_held());
    let [a, b] = waiters;
    let (first, mut second) = if held == 0 { (a, b) } else { (b, a) };
    first.release();
    second.held();
}

#[tokio::test]
async fn flock_and_kilit_exclude_each_other() {
    let dir = Dir::new();
    let engine = dir.engine().await;
    cycle(&*engine, "x").await;
    let flock = |command: &[&str]| {
        let mut flock = Command::new("flock");
        flock.arg(command[0]).arg(dir.lock("x")).args(&command[1..]);
        flock
    };
    let own = claim("x");
    take(&*engine, &own, NOW).await.unwrap();
    Process::run(&mut flock(&["-n", "true"]), LONG).expect_code(1);
    Process::run(&mut flock(&["-sn", "true"]), LONG).expect_code(1);
    release(&*engine, &own).await;

    let mut other =
        Process::spawn_with_stdin(&mut flock(&["-x", "sh", "-c", "echo in; cat"]), Stdio::piped());
    other.wait_for_stdout(LONG, |text| text.contains("in").then_some(()));
    assert_eq!(take(&*engine, &claim("x"), NOW).await, None);
    let waiter = claim("x");
    let waiting = take(&*engine, &waiter, LONG);
    let ending = async {
        until_waiting(&*engine, "x", 1).await;
        drop(other.take_stdin());
    };
    assert!(tokio::join!(waiting, ending).0.is_some());
    // And a waiting flock(1) comes in when we let go.
    let mut other = Process::spawn(&mut flock(&["-x", "true"]));
    release(&*engine, &waiter).await;
    other.wait(LONG).expect_code(0);
    let reader = shared("x");
    take(&*engine, &reader, NOW).await.unwrap();
    Process::run(&mut flock(&["-sn", "true"]), LONG).expect_code(0);
    Process::run(&mut flock(&["-xn", "true"]), LONG).expect_code(1);
}

#[tokio::test]
async fn children_do_not_inherit_the_lock() {
    let dir = Dir::new();
    let engine = dir.engine().await;
    let own = claim("x");
    take(&*engine, &own, NOW).await.unwrap();
    let mut child =
        Process::spawn_with_stdin(Command::new("sh").args(["-c", "echo up; cat"]), Stdio::piped());
    child.wait_for_stdout(LONG, |text| text.contains("up").then_some(()));
    let fds = fs::read_dir(format!("/proc/{}/fd", child.pid())).unwrap();
    let open: Vec<_> = fds.filter_map(|fd| fs::read_link(fd.unwrap().path()).ok()).collect();
    assert!(!open.is_empty() && open.iter().all(|path| !path.starts_with(dir.path())), "{open:?}");
    release(&*engine, &own).await;
    cycle(&*engine, "x").await;
}

#[tokio::test]
async fn a_duplicate_keeps_the_lock_until_it_is_released_in_order() {
    let dir = Dir::new();
    let engine = dir.engine().await;
    let own = claim("x");
    take(&*engine, &own, NOW).await.unwrap();
    let duplicate = engine.duplicate(own.owner).unwrap().expect("a descriptor");
    let waiter = claim("x");
    let waiting = take(&*engine, &waiter, LONG);
    let ending = async {
        until_waiting(&*engine, "x", 1).await;
        release(&*engine, &own).await;
    };
    let start = std::time::Instant::now();
    assert!(tokio::join!(waiting, ending).0.is_some());
    drop(duplicate);
    assert!(start.elapsed() < LONG);

    // Without a release, it is the hold of whoever has it.
    let duplicate = engine.duplicate(waiter.owner).unwrap().unwrap();
    drop(engine);
    let engine = dir.engine().await;
    assert_eq!(take(&*engine, &claim("x"), NOW).await, None);
    drop(duplicate);
    cycle(&*engine, "x").await;
}

#[tokio::test]
async fn another_descriptor_of_the_same_file_frees_nothing() {
    let dir = Dir::new();
    let engine = dir.engine().await;
    take(&*engine, &claim("x"), NOW).await.unwrap();
    drop(fs::File::options().read(true).write(true).open(dir.lock("x")).unwrap());
    let mut flock = Command::new("flock");
    Process::run(flock.arg("-n").arg(dir.lock("x")).arg("true"), LONG).expect_code(1);
}

#[tokio::test]
async fn text_in_the_file_is_no_holder() {
    let dir = Dir::new();
    let engine = dir.engine().await;
    cycle(&*engine, "x").await;
    for text in ["1\n", &format!("{}\n", std::process::id()), "host/2\n", ""] {
        fs::write(dir.lock("x"), text).unwrap();
        assert!(!status(&*engine, "x").await.is_held());
        cycle(&*engine, "x").await;
    }
}

#[tokio::test]
async fn a_holder_that_was_killed_holds_nothing() {
    let dir = Dir::new();
    let engine = dir.engine().await;
    let mut other = Helper::hold(&dir, "x");
    let token = other.held();
    let waiter = claim("x");
    let waiting = take(&*engine, &waiter, LONG);
    let killing = async {
        until_waiting(&*engine, "x", 1).await;
        other.0.kill();
    };
    assert!(tokio::join!(waiting, killing).0.unwrap() > token);
}

#[tokio::test]
async fn what_is_no_lock_file_is_an_error_and_not_busy() {
    let dir = Dir::new();
    let engine = dir.engine().await;
    cycle(&*engine, "x").await;
    fs::create_dir(dir.lock("directory")).unwrap();
    std::os::unix::fs::symlink("x.lock", dir.lock("link")).unwrap();
    for lock in ["directory", "link"] {
        let error = try_take(&*engine, &claim(lock), NOW).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    }
    // As on a file system that folds case: another name's file.
    fs::copy(dir.lock("x"), dir.lock("X")).unwrap();
    let error = try_take(&*engine, &claim("X"), NOW).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
    assert!(error.to_string().contains("fold case"), "{error}");
}

#[tokio::test]
async fn a_later_format_is_refused() {
    let dir = Dir::new();
    let engine = dir.engine().await;
    cycle(&*engine, "x").await;
    let mut bytes = fs::read(dir.lock("x")).unwrap();
    bytes[71] = b'2';
    fs::write(dir.lock("x"), bytes).unwrap();
    let error = try_take(&*engine, &claim("x"), NOW).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
    fs::write(dir.path().join("counter"), "kilit file engine, format 9\nid 1\n").unwrap();
    assert_eq!(open(&dir.url()).await.unwrap_err().kind(), ErrorKind::Incompatible);
}

#[tokio::test]
async fn every_name_is_a_lock_of_its_own() {
    let dir = Dir::new();
    let engine = dir.engine().await;
    let long = "x".repeat(511);
    let names: Vec<Vec<u8>> = [
        "a/b",
        "a//b",
        "/a",
        "a/",
        ".",
        "..",
        "...",
        "a.b",
        "a",
        "A",
        "\u{1}",
        "\u{7f}",
        "\u{85}",
        "\r\nSET x 1",
        " ",
        "\t",
        "'",
        ";",
        "%2F",
        "a%2Fb",
        "*",
        "?",
        "é",
        "e\u{301}",
        "🔒",
        "{",
        "}",
        "{}",
        "counter",
        "locks",
        "--help",
        "plumless",
        "buckeroo",
    ]
    .iter()
    .map(|name| name.as_bytes().to_vec())
    .chain([vec![0], vec![0xff], vec![0xfe], format!("{long}a").into(), format!("{long}b").into()])
    .collect();
    let mut held = vec![];
    for bytes in &names {
        let claim = kilit_core::Claim { name: kilit_core::LockName::new(bytes).unwrap(), ..claim("-") };
        assert!(take(&*engine, &claim, NOW).await.is_some(), "{}", claim.name);
        held.push(claim);
    }
    for claim in &held {
        let again = kilit_core::Claim { owner: kilit_core::OwnerId::random(), ..claim.clone() };
        assert_eq!(take(&*engine, &again, NOW).await, None, "{}", claim.name);
    }
    let locks = engine.inspect(None).await.unwrap();
    assert_eq!(locks.len(), names.len());
    assert!(locks.is_sorted_by(|a, b| a.name < b.name));
    for claim in &held {
        assert_eq!(release(&*engine, claim).await, Released::Done);
    }
    assert!(engine.inspect(None).await.unwrap().is_empty());
}
