//! Many leases, held at once by one client: what it costs to keep them.

use std::{
    error::Error,
    fs,
    process::{Stdio, id},
    time::{Duration, Instant},
};

use kilit::{Client, Guard, Moment, Terms};
use kilit_testbed::server::{Redis, Server};
use rustix::param::page_size;
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Command,
    task::JoinSet,
    time::sleep,
};

use crate::{
    cpu,
    report::{Leases, Report},
    server,
    stats::percentile,
};

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

/// How many leases are asked for at a time.
const TASKS: usize = 256;

/// What one is to cost at most in memory, in bytes, and all of them in per cent of a core.
const BYTES_GOAL: f64 = 1024.0;
const CPU_GOAL: f64 = 10.0;
/// How long a call may hold up the server, in microseconds.
const CALL_GOAL: f64 = 2000.0;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(long)]
    engine: String,
    #[arg(long)]
    count: usize,
    #[arg(long, value_parser = kilit::duration::parse)]
    ttl: Duration,
    #[arg(long = "for", value_parser = kilit::duration::parse)]
    time: Duration,
}

/// All are held.
#[derive(Serialize, Deserialize)]
struct Acquired {
    seconds: f64,
    bytes_each: f64,
}

/// They were held for the whole time, or lost.
#[derive(Serialize, Deserialize)]
struct Held {
    /// CPU time of the client, in per cent of a core.
    cpu: f64,
    renewals: usize,
    /// How old leases were when their renewal left, in seconds.
    age_p50: f64,
    age_max: f64,
    lost: usize,
}

/// One row: `servers` are one system, and `url` leads there.
pub(crate) async fn run(
    report: &mut Report,
    what: &str,
    servers: &[Server<Redis>],
    url: &str,
    count: usize,
    ttl: Duration,
    time: Duration,
) -> Result<()> {
    for server in servers {
        // Those of the row before are held until their TTL ends.
        server::ask::<()>(server, &["FLUSHALL"]).await?;
    }
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["holder", "--engine", url, "--count", &count.to_string()]);
    command.args(["--ttl", &millis(ttl), "--for", &millis(time)]);
    // A process of its own: nothing that was measured before is in its memory.
    let mut holder = command.stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
    let mut lines = BufReader::new(holder.stdout.take().ok_or("no pipe")?).lines();
    let ended = "the holder of the leases has ended";
    let acquired: Acquired = serde_json::from_str(&lines.next_line().await?.ok_or(ended)?)?;
    for server in servers {
        let percentiles = ["CONFIG", "SET", "latency-tracking-info-percentiles", "50 99 100"];
        server::ask::<()>(server, &percentiles).await?;
        server::ask::<()>(server, &["CONFIG", "RESETSTAT"]).await?;
    }
    let used = || servers.iter().map(|server| cpu::used_by(server.pid())).sum::<Duration>();
    let (begun, before) = (Instant::now(), used());
    let held: Held = serde_json::from_str(&lines.next_line().await?.ok_or(ended)?)?;
    let seconds = begun.elapsed().as_secs_f64();
    let server_cpu = (used() - before).as_secs_f64() / seconds * 100.0;
    let (mut commands, mut median, mut p99, mut max) = (0, 0.0_f64, 0.0_f64, 0.0_f64);
    for server in servers {
        commands += server::calls(server).await?.get("evalsha").copied().unwrap_or(0);
        median = median.max(server::script_time(server, "p50").await?);
        p99 = p99.max(server::script_time(server, "p99").await?);
        max = max.max(server::script_time(server, "p100").await?);
    }
    report.add_leases(Leases {
        what: what.into(),
        count,
        ttl: ttl.as_secs_f64(),
        seconds,
        acquired_in: acquired.seconds,
        cpu: held.cpu,
        cpu_goal: CPU_GOAL,
        server_cpu,
        bytes_each: acquired.bytes_each,
        bytes_goal: BYTES_GOAL,
        renewals: held.renewals,
        commands,
        age_p50: held.age_p50,
        age_max: held.age_max,
        lost: held.lost,
        call_p50_us: median,
        call_p99_us: p99,
        call_max_us: max,
        call_goal_us: CALL_GOAL,
    });
    Ok(())
}

fn millis(time: Duration) -> String {
    format!("{}ms", time.as_millis())
}

/// The process that holds them. Says when it has them all, and after `time` how it went.
pub(crate) fn main(args: &Args) -> Result<()> {
    crate::runtime()?.block_on(async {
        let client = kilit::open(&args.engine).await?;
        let terms = Terms { ttl: args.ttl, ..Terms::default() };
        client.mutex("warm".parse()?).acquire().await?.release().await?;
        let (begun, before) = (Instant::now(), resident());
        let guards = acquire(&client, &terms, args.count).await?;
        let bytes_each = (resident() - before) / args.count as f64;
        say(&Acquired { seconds: begun.elapsed().as_secs_f64(), bytes_each })?;
        say(&hold(&guards, args.time).await)?;
        // The leases end with their process; nobody needs a hundred thousand releases.
        std::process::exit(0)
    })
}

fn say(what: &impl Serialize) -> Result<()> {
    println!("{}", serde_json::to_string(what)?);
    Ok(())
}

async fn acquire(client: &Client, terms: &Terms, count: usize) -> Result<Vec<Guard>> {
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (client, terms) = (client.clone(), terms.clone());
        tasks.spawn(async move {
            let mut guards = vec![];
            for i in (task..count).step_by(TASKS) {
                let mutex = client.mutex(format!("lease-{i}").parse()?).with(terms.clone())?;
                guards.push(mutex.acquire().await?);
            }
            Ok::<_, kilit::Error>(guards)
        });
    }
    let mut guards = Vec::with_capacity(count);
    while let Some(done) = tasks.join_next().await {
        guards.append(&mut done??);
    }
    Ok(guards)
}

/// Looks at every lease often enough to see each of its deadlines: from one to the next is the age at which it was
/// renewed.
async fn hold(guards: &[Guard], time: Duration) -> Held {
    let deadlines = || guards.iter().map(|guard| guard.deadline().unwrap_or(Moment::FAR));
    let mut last: Vec<_> = deadlines().collect();
    let mut ages = vec![];
    let (begun, before) = (Instant::now(), cpu::used_by(id()));
    let looks = 24;
    for _ in 0..looks {
        sleep(time / looks).await;
        for (last, now) in last.iter_mut().zip(deadlines()) {
            if now > *last {
                ages.push(now.since(*last).as_secs_f64());
                *last = now;
            }
        }
    }
    Held {
        cpu: (cpu::used_by(id()) - before).as_secs_f64() / begun.elapsed().as_secs_f64() * 100.0,
        renewals: ages.len(),
        age_p50: percentile(&ages, 50.0),
        age_max: percentile(&ages, 100.0),
        lost: guards.iter().filter(|guard| guard.check().is_err()).count(),
    }
}

/// The memory of this process that is in use, in bytes.
fn resident() -> f64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(f64::NAN);
    pages * page_size() as f64
}
