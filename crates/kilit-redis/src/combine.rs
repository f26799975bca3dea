//! Many steps of one script in one call: what one script costs the server beyond its steps, and one request the client,
//! is then shared.
//!
//! While few calls are under way a step leaves at once and alone. From then on steps gather, and leave together as soon
//! as a call is answered: the more is asked, the more is shared.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use redis::{Cmd, Value};
use tokio::{runtime::Handle, sync::oneshot};

use crate::{
    connection::Connection,
    failure::{Failure, Redirect, Refusal},
    script::Script,
};

/// How many calls are under way before steps gather.
const CALLS: usize = 4;

/// How many steps one call has at most: it must not hold up the server for long.
const STEPS: usize = 64;

/// How long steps gather while no call leaves. A call ends when its caller is polled, which may be never.
const STUCK: Duration = Duration::from_millis(5);

type Answer = Result<Value, Failure>;
type Gathered = (Vec<Cmd>, Vec<oneshot::Sender<Answer>>);

/// The steps of one script on one connection.
#[derive(Debug)]
pub(crate) struct Combiner {
    script: &'static Script,
    state: Mutex<State>,
    /// Where calls are sent that are nobody's alone.
    runtime: Handle,
}

#[derive(Debug, Default)]
struct State {
    under_way: usize,
    gathered: Vec<(Cmd, oneshot::Sender<Answer>)>,
    /// How often gathered steps have left.
    left: u64,
    /// Whether somebody sees to it that they do.
    watched: bool,
}

/// What becomes of one step.
enum Leaves {
    Alone(Cmd),
    WithOthers(oneshot::Receiver<Answer>),
}

impl Combiner {
    /// Of a script that answers each step.
    pub(crate) fn new(script: &'static Script, runtime: Handle) -> Arc<Self> {
        Arc::new(Self { script, state: Mutex::default(), runtime })
    }

    /// Whose steps it combines.
    pub(crate) fn script(&self) -> &'static Script {
        self.script
    }

    /// One step, on its own or with others, and its answer. A step whose caller gives up may be taken all the same.
    pub(crate) async fn step(self: &Arc<Self>, connection: &Connection, step: Cmd) -> Answer {
        match self.enter(connection, step) {
            Leaves::Alone(step) => {
                let _turn = Turn { combiner: self, connection };
                self.call(connection, &[step]).await.pop().unwrap_or_else(ended)
            }
            Leaves::WithOthers(answer) => answer.await.unwrap_or_else(|_| ended()),
        }
    }

    fn enter(self: &Arc<Self>, connection: &Connection, step: Cmd) -> Leaves {
        let mut state = self.state();
        if state.under_way < CALLS {
            state.under_way += 1;
            return Leaves::Alone(step);
        }
        let (sender, receiver) = oneshot::channel();
        state.gathered.push((step, sender));
        if !std::mem::replace(&mut state.watched, true) {
            self.runtime.spawn(self.clone().watch(connection.clone()));
        }
        Leaves::WithOthers(receiver)
    }

    /// What has gathered, or the end of a turn.
    fn next(&self) -> Option<Gathered> {
        let mut state = self.state();
        if state.gathered.is_empty() {
            state.under_way -= 1;
            return None;
        }
        Some(state.leave())
    }

    /// Sends what has gathered and does not leave, until nothing gathers.
    async fn watch(self: Arc<Self>, connection: Connection) {
        let mut before = None;
        loop {
            tokio::time::sleep(STUCK).await;
            let stuck = {
                let mut state = self.state();
                if state.gathered.is_empty() {
                    state.watched = false;
                    return;
                }
                let stuck = before.replace(state.left) == Some(state.left);
                stuck.then(|| {
                    state.under_way += 1;
                    state.leave()
                })
            };
            if stuck.is_some() {
                self.clone().send_gathered(connection.clone(), stuck).await;
            }
        }
    }

    /// Sends what has gathered, until nothing has.
    async fn send_gathered(self: Arc<Self>, connection: Connection, mut next: Option<Gathered>) {
        while let Some((steps, senders)) = next {
            for (sender, answer) in senders.into_iter().zip(self.call(&connection, &steps).await) {
                // Who has given up by now has said so.
                let _ = sender.send(answer);
            }
            next = self.next();
        }
    }

    /// One call of the script, and the answer to each step.
    async fn call(&self, connection: &Connection, steps: &[Cmd]) -> Vec<Answer> {
        let mut answer = connection.send(&self.script.command(false, steps)).await;
        if let Err(Failure::Refused(why)) = &answer
            && why.redirect() == Some(Redirect::SendWhole)
        {
            answer = connection.send(&self.script.command(true, steps)).await;
        }
        match answer {
            Ok(Value::Array(answers)) if answers.len() == steps.len() => {
                answers.into_iter().map(Refusal::of).collect()
            }
            Ok(value) => steps.iter().map(|_| Ok(value.clone())).collect(),
            // Refused as a whole, for what only one of them may have asked: nothing was done.
            Err(Failure::Refused(_)) if steps.len() > 1 => {
                let mut answers = Vec::with_capacity(steps.len());
                for step in steps {
                    answers.extend(Box::pin(self.call(connection, std::slice::from_ref(step))).await);
                }
                answers
            }
            Err(failure) => steps.iter().map(|_| Err(failure.clone())).collect(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn leave(&mut self) -> Gathered {
        self.left += 1;
        let count = self.gathered.len().min(STEPS);
        self.gathered.drain(..count).unzip()
    }
}

/// A call that is under way. When it is over, whatever has gathered leaves.
struct Turn<'a> {
    combiner: &'a Arc<Combiner>,
    connection: &'a Connection,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(next) = self.combiner.next() {
            let sending = self.combiner.clone().send_gathered(self.connection.clone(), Some(next));
            self.combiner.runtime.spawn(sending);
        }
    }
}

fn ended() -> Answer {
    Err(Failure::Silence("the connection ended".into()))
}
