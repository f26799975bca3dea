//! What is measured of each engine.

use std::{error::Error, path::Path, slice, time::Duration};

use kilit_testbed::server::{Redis, Server, redis::RedisCluster};

use crate::{
    Args, Engine, Part,
    contended::{self, Kind},
    crowd::Lock,
    leases,
    report::Report,
    uncontended,
};

/// What the file engine is to reach of the bare system calls.
const FILE_GOAL: f64 = 0.5;

/// How many times as long as a bare token the Redis engine may take to serve 64 tasks, and 64 processes.
const TASKS_GOAL: f64 = 4.0;
const PROCESSES_GOAL: f64 = 8.0;

/// How much is done of everything.
pub(crate) struct Plan<'a> {
    report: Report,
    parts: &'a [Part],
    pairs: usize,
    time: Duration,
    crowds: &'static [usize],
    leases: &'static [usize],
}

impl<'a> Plan<'a> {
    pub(crate) fn new(args: &'a Args) -> Self {
        let (pairs, time) = if args.smoke { (1, Duration::from_millis(50)) } else { (args.pairs, args.time) };
        Self {
            report: Report::new(pairs, time),
            parts: &args.part,
            pairs,
            time,
            crowds: if args.smoke { &[2, 3] } else { &[2, 3, 16, 64] },
            leases: if args.smoke { &[1000] } else { &[10_000, 100_000] },
        }
    }

    /// Measures all of it.
    pub(crate) async fn run(mut self, engines: &[Engine]) -> Result<Report, Box<dyn Error>> {
        let scratch = tempfile::tempdir()?;
        for engine in engines {
            match engine {
                Engine::File => self.file(scratch.path()).await?,
                Engine::Memory => self.memory(scratch.path()).await?,
                Engine::Redis => self.redis().await?,
            }
        }
        Ok(self.report)
    }

    fn has(&self, part: Part) -> bool {
        self.parts.contains(&part)
    }

    async fn file(&mut self, scratch: &Path) -> Result<(), Box<dyn Error>> {
        let url = format!("file://{}", scratch.join("file").display());
        if self.has(Part::Uncontended) {
            let bout = uncontended::Bout::with_flock(&url, scratch, Some(FILE_GOAL)).await?;
            bout.run(&mut self.report, self.pairs, self.time).await?;
        }
        let locks = [Lock::kilit(&url).await?, Lock::flock(scratch)];
        self.contend(&locks, Kind::Processes, None, None).await?;
        self.contend(&locks[..1], Kind::Tasks, None, None).await
    }

    async fn memory(&mut self, scratch: &Path) -> Result<(), Box<dyn Error>> {
        if self.has(Part::Uncontended) {
            let bout = uncontended::Bout::with_flock("memory:", scratch, None).await?;
            bout.run(&mut self.report, self.pairs, self.time).await?;
        }
        self.contend(&[Lock::kilit("memory:").await?], Kind::Tasks, None, None).await
    }

    async fn redis(&mut self) -> Result<(), Box<dyn Error>> {
        let server = Redis::start();
        let url = server.url();
        if self.has(Part::Uncontended) {
            let bout = uncontended::Bout::with_redis(&server).await?;
            bout.run(&mut self.report, self.pairs, self.time).await?;
        }
        let locks = [Lock::kilit(&url).await?, Lock::token(&url).await?];
        self.contend(&locks, Kind::Tasks, Some(TASKS_GOAL), Some(&server)).await?;
        self.contend(&locks, Kind::Processes, Some(PROCESSES_GOAL), Some(&server)).await?;
        if self.has(Part::Contended) {
            let waiters = self.crowds.iter().copied().max().unwrap_or(0);
            contended::peers(&mut self.report, &server, waiters, self.pairs.min(5)).await?;
        }
        if self.has(Part::Leases) {
            let (ttl, time) = (self.time * 15, self.time * 30);
            for &count in self.leases {
                let servers = slice::from_ref(&server);
                leases::run(&mut self.report, "on one server", servers, &url, count, ttl, time).await?;
            }
            let cluster = RedisCluster::start();
            for &count in self.leases {
                let (servers, url) = (&cluster.nodes, cluster.url());
                leases::run(&mut self.report, "on a cluster of 3", servers, &url, count, ttl, time).await?;
            }
        }
        Ok(())
    }

    /// All that a crowd does, of every size.
    async fn contend(
        &mut self,
        locks: &[Lock],
        kind: Kind,
        goal: Option<f64>,
        server: Option<&Server<Redis>>,
    ) -> Result<(), Box<dyn Error>> {
        if !self.has(Part::Contended) {
            return Ok(());
        }
        let bout = contended::Bout { locks, kind, goal, server };
        for &waiters in self.crowds {
            bout.once_each(&mut self.report, waiters, self.pairs).await?;
            bout.again(&mut self.report, waiters, self.time, Duration::ZERO).await?;
        }
        // How many commands it takes depends on how long the lock is held.
        let ours = contended::Bout { locks: &locks[..1], kind, goal, server };
        for &waiters in self.crowds.iter().filter(|waiters| server.is_some() && matches!(waiters, 2 | 64)) {
            for hold in [1, 10].map(Duration::from_millis) {
                ours.again(&mut self.report, waiters, 3 * self.time, hold).await?;
            }
        }
        Ok(())
    }
}
