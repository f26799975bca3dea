//! One holder at a time, judged at the resource.

use std::{collections::VecDeque, fs, sync::Arc, thread, time::Duration};

use kilit_core::{Clock, ErrorKind, blocking};
use kilit_testbed::{overlap::Judge, tempdir, wait_until};
use tokio::task::JoinSet;

use crate::{Party, Resource, Subject};

/// Tasks of one client.
pub async fn many_tasks(subject: &Subject) {
    let party = subject.party().await;
    contend(subject, vec![party], 8, 25).await;
}

/// Tasks of several clients.
pub async fn many_clients(subject: &Subject) {
    let mut parties = Vec::new();
    for _ in 0..4 {
        parties.push(subject.party().await);
    }
    contend(subject, parties, 2, 25).await;
}

async fn contend(subject: &Subject, parties: Vec<Party>, tasks: u64, rounds: u64) {
    let resource = Arc::new(Resource::default());
    let mut all = JoinSet::new();
    for party in &parties {
        for _ in 0..tasks {
            let (mutex, resource) = (subject.mutex(party, "contended"), resource.clone());
            all.spawn(async move {
                for round in 0..rounds {
                    let guard = mutex.acquire().await.expect("everyone is served");
                    resource.visit(guard.token()).await;
                    match round % 2 {
                        0 => guard.release().await.expect("it was held"),
                        _ => drop(guard),
                    }
                }
            });
        }
    }
    subject.within("everyone was served", all.join_all()).await;
    resource.expect_exclusive(parties.len() as u64 * tasks * rounds);
    subject.expect_nothing_left("contended").await;
}

/// Processes, judged by the log that their work writes and by a file that they count in.
pub async fn many_processes(subject: &Subject) {
    const PROCESSES: usize = 8;
    const ROUNDS: usize = 12;
    let dir = tempdir().expect("a temporary directory");
    let (log, counter) = (dir.path().join("log"), dir.path().join("counter"));
    let contend =
        || subject.agent("contend", "contended").arg(&log).arg(&counter).rounds(ROUNDS).spawn();
    let mut agents: Vec<_> = (0..PROCESSES).map(|_| contend()).collect();
    agents.iter_mut().for_each(|agent| agent.end_well());
    let verdict = judge(subject, &log).await.expect_clean();
    assert_eq!(verdict.visits, PROCESSES * ROUNDS);
    let counted = fs::read_to_string(&counter).expect("the counter");
    assert_eq!(counted.parse(), Ok(PROCESSES * ROUNDS), "updates were lost");
    subject.expect_nothing_left("contended").await;
}

/// As above, while some are killed and others stand still for a moment: never for a whole TTL, since a lease alone
/// cannot exclude then.
pub async fn killed_and_stopped_processes(subject: &Subject) {
    const STEPS: usize = 12;
    let dir = tempdir().expect("a temporary directory");
    let log = dir.path().join("log");
    let contend = || {
        let counter = dir.path().join("counter");
        subject.agent("contend", "contended").arg(&log).arg(&counter).ttl(Duration::from_secs(1)).spawn()
    };
    let written = || fs::metadata(&log).map_or(0, |log| log.len());
    let mut agents: VecDeque<_> = (0..5).map(|_| contend()).collect();
    let mut killed = Vec::new();
    for step in 0..STEPS {
        let before = written();
        wait_until("the work goes on", subject.patience, || written() > before + 200);
        let mut agent = agents.pop_front().expect("there are five");
        if step % 3 == 0 {
            agent.kill();
            killed.push((agent.pid().to_string(), Clock::system().now()));
            agents.push_back(contend());
        } else {
            agent.stop();
            thread::sleep(Duration::from_millis(20));
            agent.resume();
            agents.push_back(agent);
        }
    }
    agents.iter_mut().for_each(|agent| agent.end_well());
    let judge = killed.into_iter().fold(judge(subject, &log).await, |judge, (id, at)| judge.killed(id, at));
    let verdict = judge.expect_clean();
    assert!(verdict.visits > STEPS, "{verdict:?}");
    subject.expect_nothing_left("contended").await;
}

async fn judge(subject: &Subject, log: &std::path::Path) -> Judge {
    let judge = Judge::read(log);
    match subject.assurance().await.token {
        kilit_core::TokenStrength::None => judge.without_tokens(),
        _ => judge,
    }
}

/// Two holds of one client, and of one handle, exclude each other.
pub async fn no_reentrance(subject: &Subject) {
    let party = subject.party().await;
    let mutex = subject.mutex(&party, "once");
    let guard = mutex.try_acquire().await.expect("it is free");
    assert_eq!(mutex.try_acquire().await.expect_err("held by this handle").kind(), ErrorKind::Busy);
    let other = subject.mutex(&party, "once");
    assert_eq!(other.try_acquire().await.expect_err("held by this client").kind(), ErrorKind::Busy);
    guard.check().expect("the tries changed nothing");
    guard.release().await.expect("it was held");
    subject.expect_nothing_left("once").await;
}

/// Threads that never saw a runtime.
pub async fn blocking_threads(subject: &Subject) {
    let resource = Arc::new(Resource::default());
    let mut threads = Vec::new();
    for _ in 0..3 {
        let client = blocking::Client::from(subject.party().await.client);
        let (resource, terms) = (resource.clone(), subject.terms());
        threads.push(thread::spawn(move || {
            let mutex = client.mutex("threads".parse().expect("a name")).with(terms).expect("in range");
            for _ in 0..10 {
                let guard = mutex.acquire().expect("everyone is served");
                resource.visit_blocking(guard.token());
                guard.release().expect("it was held");
            }
        }));
    }
    threads.into_iter().for_each(|thread| thread.join().expect("the thread is well"));
    resource.expect_exclusive(30);
}
