//! What `doctor` finds.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
};

use kilit_core::{Engine, Level};

use crate::{
    helper::Helper,
    support::{Dir, NOW, claim, cycle, take, until_waiting},
};

async fn findings(engine: &dyn Engine) -> Vec<(&'static str, Level)> {
    let findings = engine.diagnose().await.unwrap();
    assert!(
        findings.iter().all(|finding| (finding.level == Level::Info) == finding.fix.is_empty()),
        "{findings:?}"
    );
    findings.iter().map(|finding| (finding.id, finding.level)).collect()
}

#[tokio::test]
async fn a_sound_directory_is_no_danger() {
    let dir = Dir::new();
    let engine = dir.engine().await;
    assert!(findings(&*engine).await.contains(&("directory-missing", Level::Info)));
    cycle(&*engine, "x").await;
    let found = findings(&*engine).await;
    assert!(found.iter().all(|(_, level)| *level < Level::Danger), "{found:?}");
    assert!(found.contains(&("lock-files", Level::Info)));
}

#[tokio::test]
async fn what_endangers_locks_is_named() {
    let dir = Dir::new();
    let engine = dir.engine().await;
    take(&*engine, &claim("x"), NOW).await.unwrap();
    fs::remove_file(dir.lock("x")).unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
    fs::write(dir.path().join("counter"), "").unwrap();
    let found = findings(&*engine).await;
    for id in ["unlinked-lock-file", "directory-open", "counter"] {
        assert!(found.contains(&(id, Level::Danger)), "{id} in {found:?}");
    }
}

#[tokio::test]
async fn what_the_dead_left_behind_is_counted() {
    let dir = Dir::new();
    let engine = dir.engine().await;
    take(&*engine, &claim("x"), NOW).await.unwrap();
    let mut other = Helper::hold(&dir, "x");
    until_waiting(&*engine, "x", 1).await;
    other.0.kill();
    assert!(findings(&*engine).await.contains(&("dead-places", Level::Info)));
}
