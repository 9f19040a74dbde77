//! A runtime that fails when it is told to: for tests of what stands on one.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use llmgw_core::id::ReplicaId;

use crate::process::{
    Exit, Leftover, ProcessError, ProcessRuntime, ProcessStart, Resident, Usage,
    identity::ProcessIdentity,
};

/// Wraps a runtime and fails, or delays, the calls that its [`Faults`] name. Without any it changes nothing.
#[derive(Debug)]
pub struct Faulty<R> {
    inner: R,
    faults: Faults,
}

/// What goes wrong next; shared between a [`Faulty`] and the test that steers it.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    next: Arc<Mutex<VecDeque<(Call, Fault)>>>,
}

/// How a call goes wrong.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fault {
    /// It fails, and has no effect.
    Fail,
    /// It has its effect, and then fails.
    LoseAnswer,
    /// It takes this much longer, on the runtime's clock, before it is begun.
    Delay(Duration),
    /// It never returns, and has no effect.
    Hang,
}

/// A method of [`ProcessRuntime`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Call {
    /// [`ProcessRuntime::start`].
    Start,
    /// [`ProcessRuntime::adopt`].
    Adopt,
    /// [`ProcessRuntime::wait`].
    Wait,
    /// [`ProcessRuntime::stop`].
    Stop,
    /// [`ProcessRuntime::usage`].
    Usage,
    /// [`ProcessRuntime::resident`].
    Resident,
    /// [`ProcessRuntime::leftovers`].
    Leftovers,
    /// [`ProcessRuntime::end`].
    End,
}

// === impl Faulty ===

impl<R: ProcessRuntime> Faulty<R> {
    /// Wraps `inner`; nothing goes wrong yet.
    #[must_use]
    pub fn new(inner: R) -> Self {
        Self {
            inner,
            faults: Faults::default(),
        }
    }

    /// What steers it; a clone steers it too.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    async fn pass<T: Send>(
        &self,
        call: Call,
        work: impl Future<Output = Result<T, ProcessError>> + Send,
    ) -> Result<T, ProcessError> {
        match self.faults.meet(call) {
            None => work.await,
            Some(Fault::Fail) => Err(scripted()),
            Some(Fault::LoseAnswer) => {
                work.await?;
                Err(scripted())
            }
            Some(Fault::Delay(time)) => {
                tokio::time::sleep(time).await;
                work.await
            }
            Some(Fault::Hang) => std::future::pending().await,
        }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<R: ProcessRuntime> ProcessRuntime for Faulty<R> {
    async fn start(&self, start: &ProcessStart) -> Result<ProcessIdentity, ProcessError> {
        self.pass(Call::Start, self.inner.start(start)).await
    }

    async fn adopt(
        &self,
        replica: ReplicaId,
        identity: &ProcessIdentity,
    ) -> Result<(), ProcessError> {
        self.pass(Call::Adopt, self.inner.adopt(replica, identity))
            .await
    }

    async fn wait(&self, replica: ReplicaId) -> Result<Exit, ProcessError> {
        self.pass(Call::Wait, self.inner.wait(replica)).await
    }

    async fn stop(&self, replica: ReplicaId, grace: Duration) -> Result<(), ProcessError> {
        self.pass(Call::Stop, self.inner.stop(replica, grace)).await
    }

    async fn usage(&self) -> Result<BTreeMap<ReplicaId, Usage>, ProcessError> {
        self.pass(Call::Usage, self.inner.usage()).await
    }

    async fn resident(&self, replica: ReplicaId) -> Result<Option<Resident>, ProcessError> {
        self.pass(Call::Resident, self.inner.resident(replica))
            .await
    }

    async fn leftovers(&self) -> Result<Vec<Leftover>, ProcessError> {
        self.pass(Call::Leftovers, self.inner.leftovers()).await
    }

    async fn end(&self, leftovers: &[Leftover], grace: Duration) -> Result<(), ProcessError> {
        self.pass(Call::End, self.inner.end(leftovers, grace)).await
    }

    async fn release(&self) {
        self.inner.release().await;
    }
}

// === impl Faults ===

impl Faults {
    /// Lets the next call of this method, after those that are spoken for, go wrong.
    pub fn next(&self, call: Call, fault: Fault) {
        self.queue().push_back((call, fault));
    }

    fn meet(&self, call: Call) -> Option<Fault> {
        let mut queue = self.queue();
        let position = queue.iter().position(|(next, _)| *next == call)?;
        queue.remove(position).map(|(_, fault)| fault)
    }

    fn queue(&self) -> std::sync::MutexGuard<'_, VecDeque<(Call, Fault)>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn scripted() -> ProcessError {
    ProcessError::File {
        path: "/proc".into(),
        source: io::Error::other("a fault that a test asked for"),
    }
}
