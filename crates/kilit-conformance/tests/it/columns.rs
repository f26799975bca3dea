//! How each engine is set up.

use std::{
    fs::{self, OpenOptions},
    os::unix::fs::FileExt,
    path::Path,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use kilit_conformance::{Harm, Link, Party, Subject};
use kilit_core::{Client, Clock, Engine, LockName, Moment};
use kilit_memory::Memory;
use kilit_testbed::{
    chaos::{ChaosProxy, Mode},
    server::{LeaseServer, Redis, Server, redis::RedisCluster},
    tempdir,
};
use kilit_testlease::{Fault, Node, TestLease};

/// One object that all clients share. The URL opens another one in each process.
pub(crate) async fn memory() -> Subject {
    let engine = Arc::new(Memory::new());
    let connect = move || {
        let engine = engine.clone();
        async move { Client::new(engine).expect("a thread").into() }
    };
    Subject::new(connect).url("memory:")
}

/// A directory; its lock files can be removed.
pub(crate) async fn file() -> Subject {
    let dir = tempdir().expect("a temporary directory");
    let (path, url) = (dir.path().to_owned(), format!("file://{}?check=100ms", dir.path().display()));
    let connect = {
        let url = url.clone();
        move || {
            let url = url.clone();
            async move { kilit::open(&url).await.expect("the directory is good").into() }
        }
    };
    let remove = {
        let url = url.clone();
        move |name: LockName| {
            let url = url.clone();
            async move {
                let client = kilit::open(&url).await.expect("the directory is good");
                let status = client.inspect(Some(&name)).await.expect("the engine is well").remove(0);
                fs::remove_file(status.path.expect("it is held in a file")).expect("it can be removed");
            }
        }
    };
    Subject::new(connect)
        .url(url)
        .break_hold(remove)
        .last_token(move |_, token| set_file_counter(&path, token))
        .keep(dir)
}

/// Writes both slots of the file engine's counter, which was never used before.
fn set_file_counter(dir: &Path, last: u64) {
    let counter = dir.join("counter");
    fs::write(&counter, "kilit file engine, format 1\nid 0123456789abcdef0123456789abcdef\n")
        .expect("writable");
    let file = OpenOptions::new().write(true).open(counter).expect("it is there");
    for (generation, at) in [(0_u64, 512), (1, 1024)] {
        let mut slot = [generation.to_le_bytes(), (last + 1).to_le_bytes()].concat();
        slot.extend(crc32fast::hash(&slot).to_le_bytes());
        file.write_all_at(&slot, at).expect("writable");
    }
}

/// A lease server in this process; each client has a link of its own.
pub(crate) async fn testlease() -> Subject {
    let node = TestNode::new();
    let connect = {
        let node = node.clone();
        move || {
            let node = node.clone();
            async move { node.party(|engine| Client::new(engine).expect("a thread")) }
        }
    };
    node.harm(Subject::new(connect))
}

/// The server of a test lease.
#[derive(Clone, Debug)]
pub(crate) struct TestNode(Arc<Node>);

impl TestNode {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Node::new(Clock::system())))
    }

    /// One more client, made of its engine.
    pub(crate) fn party(&self, client: impl FnOnce(Arc<dyn Engine>) -> Client) -> Party {
        let lease = TestLease::new(&self.0);
        let link = lease.link();
        let link = Link::new(move |harm| {
            link.heal();
            link.always(match harm {
                Harm::None => None,
                Harm::Cut => Some(Fault::Stall),
                Harm::LoseAnswers => Some(Fault::AnswerLost),
                Harm::Slow(time) => Some(Fault::SlowAnswer(time)),
            });
        });
        Party { client: client(lease.into_engine()), link: Some(link) }
    }

    /// What can be done to the server.
    pub(crate) fn harm(&self, subject: Subject) -> Subject {
        let [broken, jumping, counting] = [(); 3].map(|()| self.0.clone());
        // What the machine sees at a later time is over for it.
        let at = |node: &Node, name: Option<&LockName>, now| drop(node.machine().inspect(name, now));
        subject
            .break_hold(move |name| {
                at(&broken, Some(&name), Moment::FAR);
                std::future::ready(())
            })
            .jump(move |by| at(&jumping, None, jumping.clock().now() + by))
            .last_token(move |name, last| counting.machine().set_last_token(&name, last))
    }
}

/// The server in a process of its own, behind a chaos proxy for each client.
pub(crate) async fn testlease_server() -> Subject {
    let server = LeaseServer::start();
    let addr = server.addr();
    // A client outlives its party as long as it has guards and mutexes.
    let proxies: Arc<Mutex<Vec<Arc<ChaosProxy>>>> = Arc::default();
    let connect = move || {
        let proxy = Arc::new(ChaosProxy::start(addr));
        proxies.lock().expect("no test panics in it").push(proxy.clone());
        connect_through(proxy)
    };
    let server = Arc::new(Mutex::new(server));
    let restarted = server.clone();
    Subject::new(connect)
        .url(Server::<LeaseServer>::url(addr))
        .restart(move || {
            restarted.lock().expect("no test panics in it").restart();
            std::future::ready(())
        })
        .keep(server)
}

async fn connect_through(proxy: Arc<ChaosProxy>) -> Party {
    let url = Server::<LeaseServer>::url(proxy.addr()).parse().expect("a URL");
    let client = Client::open(&kilit_testlease::ENGINES[0], url).await.expect("the server answers");
    Party { client, link: Some(proxy_link(proxy)) }
}

fn proxy_link(proxy: Arc<ChaosProxy>) -> Link {
    Link::new(move |harm| {
        proxy.set(match harm {
            Harm::None => Mode::Pass,
            Harm::Cut => Mode::Blackhole,
            Harm::LoseAnswers => Mode::DropReplies,
            Harm::Slow(time) => Mode::Delay(time),
        });
    })
}

/// One Redis server whose clock can jump, behind a chaos proxy for each client.
pub(crate) async fn redis() -> Subject {
    let server = Server::start(Redis::new().clock_shim());
    let (addr, url) = (server.addr(), server.url());
    let server = Arc::new(Mutex::new(server));
    // A client outlives its party as long as it has guards and mutexes.
    let proxies: Arc<Mutex<Vec<Arc<ChaosProxy>>>> = Arc::default();
    let connect = {
        let server = server.clone();
        move || {
            let proxy = Arc::new(ChaosProxy::start(addr));
            proxies.lock().expect("no test panics in it").push(proxy.clone());
            let url = server.lock().expect("no test panics in it").url_at(proxy.addr());
            async move {
                let client = kilit::open(&format!("{url}?timeout=500ms")).await.expect("the server answers");
                Party { client, link: Some(proxy_link(proxy)) }
            }
        }
    };
    let [broken, jumping, counting, restarted] = [(); 4].map(|()| server.clone());
    let on = |server: &Mutex<Server<Redis>>, words: [&[u8]; 3]| {
        let words = words.into_iter().filter(|word| !word.is_empty());
        server.lock().expect("no test panics in it").command(words);
    };
    Subject::new(connect)
        .url(url)
        .patience(Duration::from_secs(30))
        .break_hold(move |name| {
            on(&broken, [b"DEL", &[b"lock:", name.as_bytes()].concat(), b""]);
            std::future::ready(())
        })
        .jump(move |by| {
            let by = i64::try_from(by.as_millis()).expect("a short time");
            jumping.lock().expect("no test panics in it").set_clock_offset_ms(by);
        })
        .last_token(move |_, last| {
            on(&counting, [b"SET", b"kilit1:token", last.to_string().as_bytes()]);
        })
        .restart(move || {
            restarted.lock().expect("no test panics in it").restart();
            std::future::ready(())
        })
        .keep(server)
}

/// A cluster of three whose clocks are trusted; each case has a prefix of its own there.
pub(crate) async fn redis_cluster() -> Subject {
    static CLUSTER: OnceLock<RedisCluster> = OnceLock::new();
    static CASES: AtomicU32 = AtomicU32::new(0);
    let cluster = CLUSTER.get_or_init(RedisCluster::start);
    let prefix = format!("case{}:", CASES.fetch_add(1, Ordering::Relaxed));
    let url = format!("{}?prefix={prefix}&accept=clock", cluster.url());
    let connect = {
        let url = url.clone();
        move || {
            let url = url.clone();
            async move { kilit::open(&url).await.expect("the cluster answers").into() }
        }
    };
    let keys = prefix.clone();
    let on = |slot: u16, words: &[&[u8]]| {
        let node = cluster.owner(slot).expect("every slot has an owner");
        cluster.nodes[node].command(words);
    };
    let slot_of = move |name: &LockName| cluster.slot(&[prefix.as_bytes(), name.as_bytes()].concat());
    let (broken, counted) = (slot_of.clone(), slot_of);
    Subject::new(connect)
        .url(url)
        .patience(Duration::from_secs(30))
        .break_hold(move |name| {
            on(broken(&name), &[b"DEL", &[keys.as_bytes(), name.as_bytes()].concat()]);
            std::future::ready(())
        })
        .last_token(move |name, last| {
            let slot = counted(&name);
            let tag = (0..).find(|tag: &u32| cluster.slot(tag.to_string().as_bytes()) == slot);
            let counter = format!("kilit1:token:{{{}}}", tag.expect("every slot has one"));
            // Other cases may have a lock in this slot, and come later.
            on(slot, &[b"SET", counter.as_bytes(), last.to_string().as_bytes(), b"PX", b"3000"]);
        })
}
