//! Many steps of one script in one call: what one script costs the server beyond its steps, and one request the client,
//! is then shared.
//!
//! A step leaves at once and alone where nothing else is under way. Otherwise it gathers with others, and they leave
//! together as soon as a call of theirs is answered: the more is asked, the more is shared.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::{Cmd, Value};
use tokio::{runtime::Handle, sync::oneshot};

use crate::{
    connection::Connection,
    failure::{Failure, Redirect, Refusal},
    script::Script,
};

/// How many calls of gathered steps are under way: while the server is at one, the next gathers. None waits for a step
/// that is alone: its caller may be polled never again, and so never end it.
const CALLS: usize = 2;

/// How many steps one call has at most: it must not hold up the server for long.
const STEPS: usize = 64;

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
    alone: bool,
    calls: usize,
    gathered: Vec<(Cmd, oneshot::Sender<Answer>)>,
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

    /// One step, and its answer. A step whose caller gives up may be taken all the same.
    pub(crate) async fn step(self: &Arc<Self>, connection: &Connection, step: Cmd) -> Answer {
        if let Some(_alone) = Alone::enter(self) {
            return self.call(connection, &[step]).await.pop().unwrap_or_else(ended);
        }
        let (sender, answer) = oneshot::channel();
        if self.gather(step, sender) {
            self.runtime.spawn(Sending::of(self.clone()).send_gathered(connection.clone()));
        }
        answer.await.unwrap_or_else(|_| ended())
    }

    /// Whether there is room for one more call.
    fn gather(&self, step: Cmd, sender: oneshot::Sender<Answer>) -> bool {
        let mut state = self.state();
        state.gathered.push((step, sender));
        let room = state.calls < CALLS;
        state.calls += usize::from(room);
        room
    }

    /// What has gathered; where nothing has, one call fewer is under way.
    fn next(&self) -> Option<Gathered> {
        let mut state = self.state();
        if state.gathered.is_empty() {
            state.calls -= 1;
            return None;
        }
        let count = state.gathered.len().min(STEPS);
        Some(state.gathered.drain(..count).unzip())
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

/// Who sends what has gathered. When its runtime ends first, what is left ends too.
struct Sending {
    combiner: Arc<Combiner>,
    over: bool,
}

impl Sending {
    fn of(combiner: Arc<Combiner>) -> Self {
        Self { combiner, over: false }
    }

    /// Until nothing has.
    async fn send_gathered(mut self, connection: Connection) {
        while let Some((steps, senders)) = self.combiner.next() {
            for (sender, answer) in senders.into_iter().zip(self.combiner.call(&connection, &steps).await) {
                // Who has given up by now has said so.
                let _ = sender.send(answer);
            }
        }
        self.over = true;
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if !self.over {
            let mut state = self.combiner.state();
            state.calls -= 1;
            state.gathered.clear();
        }
    }
}

/// A step that is under way alone.
struct Alone<'a>(&'a Combiner);

impl<'a> Alone<'a> {
    fn enter(combiner: &'a Combiner) -> Option<Self> {
        let mut state = combiner.state();
        let room = !state.alone && state.calls == 0;
        state.alone |= room;
        room.then(|| Self(combiner))
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.state().alone = false;
    }
}

fn ended() -> Answer {
    Err(Failure::Silence("the connection ended".into()))
}
