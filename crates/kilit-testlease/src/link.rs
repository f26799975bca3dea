//! What can happen between a client and its server, in process: faults before and after each effect, and a record of
//! what came through.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kilit_core::{Clock, Error, ErrorKind, LockName, Moment, OwnerId, Result};
use tokio::{sync::oneshot, task::yield_now};

/// The operations of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// `take`.
    Take,
    /// `extend`, once for the whole batch.
    Extend,
    /// `cancel`.
    Cancel,
    /// `inspect`.
    Inspect,
    /// `evict`.
    Evict,
}

/// What goes wrong with one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The server is not reached: no effect, and the client knows.
    Unreachable,
    /// It is done, and the answer is lost.
    AnswerLost,
    /// The client is told at once that the answer is lost; the request arrives at the next [`Link::deliver`].
    Late,
    /// Silence: the request arrives, and is answered, at the next [`Link::deliver`]. It arrives also when the caller
    /// has given up by then, as packets do.
    Stall,
    /// It is done at once, and the answer takes this long on the client's clock.
    SlowAnswer(Duration),
}

/// One operation on one owner's claim that has come to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// When, on the client's clock.
    pub at: Moment,
    /// What.
    pub op: Op,
    /// Of which lock.
    pub name: LockName,
    /// For whom.
    pub owner: OwnerId,
}

/// The way from one client to its server. Without faults it is perfect, but each operation still has an await before
/// its effect and one after, so that a future can be dropped at either.
#[derive(Debug, Default)]
pub struct Link(Mutex<State>);

#[derive(Default)]
struct State {
    scripts: HashMap<Op, VecDeque<Fault>>,
    standing: Option<Fault>,
    random: Option<(fastrand::Rng, u8)>,
    travelling: Vec<Box<dyn FnOnce() + Send>>,
    records: Vec<Record>,
    deaf: bool,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("scripts", &self.scripts)
            .field("standing", &self.standing)
            .field("travelling", &self.travelling.len())
            .finish_non_exhaustive()
    }
}

impl Link {
    /// A link without faults.
    pub fn new() -> Self {
        Self::default()
    }

    /// The next `op` that has no fault waiting for it yet fails so.
    pub fn inject(&self, op: Op, fault: Fault) {
        self.state().scripts.entry(op).or_default().push_back(fault);
    }

    /// From now on every operation without a fault of its own fails so; `None` ends that.
    pub fn always(&self, fault: Option<Fault>) {
        self.state().standing = fault;
    }

    /// From now on `per_cent` of the operations without another fault are unreachable, lose their answer or come late,
    /// drawn from `seed`; a test prints it when it fails.
    pub fn random(&self, seed: u64, per_cent: u8) {
        self.state().random = Some((fastrand::Rng::with_seed(seed), per_cent));
    }

    /// Cuts the link: silence both ways, until [`heal`](Self::heal).
    pub fn cut(&self) {
        self.always(Some(Fault::Stall));
    }

    /// Ends every fault, and delivers what was travelling.
    pub fn heal(&self) {
        {
            let mut state = self.state();
            (state.standing, state.random) = (None, None);
            state.scripts.clear();
        }
        self.deliver();
    }

    /// Delivers what was travelling, in the order in which it was sent. How many requests those were.
    pub fn deliver(&self) -> usize {
        let travelling = std::mem::take(&mut self.state().travelling);
        let count = travelling.len();
        travelling.into_iter().for_each(|request| request());
        count
    }

    /// How many requests are travelling.
    pub fn in_flight(&self) -> usize {
        self.state().travelling.len()
    }

    /// Turns the server's push off, or on again: without it a waiter looks by itself.
    pub fn set_push(&self, on: bool) {
        self.state().deaf = !on;
    }

    /// Whether the server's push gets through.
    pub(crate) fn has_push(&self) -> bool {
        let state = self.state();
        !state.deaf && state.standing.is_none()
    }

    /// What has come to the server for the claims of this client, oldest first.
    pub fn records(&self) -> Vec<Record> {
        self.state().records.clone()
    }

    pub(crate) fn record(&self, record: Record) {
        self.state().records.push(record);
    }

    /// One operation: `effect` is what it does at the server.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        op: Op,
        clock: &Clock,
        effect: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        yield_now().await;
        let fault = self.state().fault(op);
        let answer = match fault {
            None => effect(),
            Some(Fault::Unreachable) => {
                return Err(Error::new(ErrorKind::Unreachable, "the link is down by a test's wish"));
            }
            Some(Fault::AnswerLost) => {
                effect();
                return Err(answer_lost());
            }
            Some(Fault::Late) => {
                self.state().travelling.push(Box::new(|| drop(effect())));
                return Err(answer_lost());
            }
            Some(Fault::Stall) => {
                let (answer, answered) = oneshot::channel();
                self.state().travelling.push(Box::new(|| drop(answer.send(effect()))));
                answered.await.map_err(|_| answer_lost())?
            }
            Some(Fault::SlowAnswer(time)) => {
                let answer = effect();
                clock.sleep(time).await;
                answer
            }
        };
        yield_now().await;
        Ok(answer)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn fault(&mut self, op: Op) -> Option<Fault> {
        let scripted = self.scripts.get_mut(&op).and_then(VecDeque::pop_front);
        scripted.or(self.standing).or_else(|| {
            let (random, per_cent) = self.random.as_mut()?;
            let fails = random.u8(0..100) < *per_cent;
            fails.then(|| random.choice([Fault::Unreachable, Fault::AnswerLost, Fault::Late]))?
        })
    }
}

fn answer_lost() -> Error {
    Error::new(ErrorKind::Unknown, "the answer was lost by a test's wish")
}
