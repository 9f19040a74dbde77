//! The async runtime: owned here, made at the first use, ended before the interpreter ends.
//!
//! A thread of the runtime that is inside Python while the interpreter is torn down crashes the process. The
//! Python package therefore calls [`shutdown`] at exit: pending work is dropped and all threads are joined while
//! Python still stands.
//!
//! A fork copies the memory of a runtime and none of its threads, so whatever a child asked of it would wait
//! for ever; the pid of the owner is kept, and a child is told.

use std::{
    pin::pin,
    sync::{OnceLock, RwLock},
    time::Duration,
};

use llmgw_core::error::Code;
use pyo3::{IntoPyObjectExt as _, intern, prelude::*};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    sync::watch,
    task::{self, AbortHandle, JoinSet},
};

use crate::error::Error;

/// Runs `work` to its end and gives back its result; other Python threads run meanwhile, and Ctrl-C ends it.
pub(crate) fn block<T: Send>(
    py: Python<'_>,
    work: impl Future<Output = Result<T, Error>> + Send,
) -> PyResult<T> {
    let owned = Owned::of_this_process()?;
    // Not `read`: it would wait with the interpreter held for a shutdown that waits for the interpreter.
    let guard = owned.runtime.try_read().map_err(|_| Error::closed())?;
    let runtime = guard.as_ref().ok_or_else(Error::closed)?;
    let mut closing = owned.closing.subscribe();
    let mut work = pin!(work);
    loop {
        let slice = py.detach(|| {
            runtime.block_on(async {
                tokio::select! {
                    result = &mut work => Some(result),
                    _ = closing.wait_for(|closing| *closing) => Some(Err(Error::closed())),
                    () = tokio::time::sleep(SLICE) => None,
                }
            })
        });
        match slice {
            Some(result) => return Ok(result?),
            None => py.check_signals()?,
        }
    }
}

/// Starts `work` and gives back an `asyncio.Future` of the running loop; cancelling that drops the work.
pub(crate) fn future<'py, T>(
    py: Python<'py>,
    work: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> PyResult<Bound<'py, PyAny>>
where
    T: for<'a> IntoPyObject<'a> + Send + 'static,
{
    let owned = Owned::of_this_process()?;
    if *owned.closing.borrow() {
        return Err(Error::closed().into());
    }
    let asyncio = py.import(intern!(py, "asyncio"))?;
    let event_loop = asyncio.call_method0(intern!(py, "get_running_loop"))?;
    let future = event_loop.call_method0(intern!(py, "create_future"))?;
    let (to_loop, to_future) = (event_loop.unbind(), future.clone().unbind());
    let started = owned.handle.spawn(async move {
        // On a task of its own, so that a panic is an answer, too; dropped with this one.
        let mut tasks = JoinSet::new();
        tasks.spawn(work);
        let result = match tasks.join_next().await {
            Some(Ok(result)) => result,
            Some(Err(error)) => Err(Error::new(Code::Internal, error.to_string())),
            None => return,
        };
        // Taking the interpreter may take a while: not on a thread that serves other futures.
        task::spawn_blocking(|| {
            Python::attach(move |py| deliver(py, &to_loop, &to_future, result));
        });
    });
    let abandon = Abandon(started.abort_handle());
    future.call_method1(intern!(py, "add_done_callback"), (abandon,))?;
    Ok(future)
}

/// Runs a computation on a thread of its own, so that the runtime's few threads stay free for I/O.
pub(crate) async fn compute<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Error> {
    let result = task::spawn_blocking(work).await;
    result.map_err(|error| Error::new(Code::Internal, error.to_string()))
}

/// Drops what is pending and joins the runtime's threads. Called at exit; afterwards every operation raises.
#[pyfunction]
#[pyo3(name = "_shutdown")]
pub(crate) fn shutdown(py: Python<'_>) {
    let Some(owned) = OWNED.get().filter(|owned| owned.is_of_this_process()) else {
        return;
    };
    owned.closing.send_replace(true);
    // Detached, because those threads and blocked callers may need the interpreter to come to their end.
    py.detach(|| {
        let runtime = owned.runtime.write().ok().and_then(|mut held| held.take());
        if let Some(runtime) = runtime {
            runtime.shutdown_timeout(DRAIN);
        }
    });
}

/// The one runtime of a process.
#[derive(Debug)]
struct Owned {
    pid: u32,
    /// Works after the runtime has ended, too: what is spawned then is dropped.
    handle: Handle,
    /// Read by blocked callers for as long as they block; taken at shutdown.
    runtime: RwLock<Option<Runtime>>,
    closing: watch::Sender<bool>,
}

/// Drops the work of a future that is done: cancelled by its caller, or answered by that very work.
#[pyclass(frozen)]
#[derive(Debug)]
struct Abandon(AbortHandle);

// === impl Owned ===

impl Owned {
    fn of_this_process() -> Result<&'static Self, Error> {
        let owned = match OWNED.get() {
            Some(owned) => owned,
            None => {
                let started = Self::start()?;
                OWNED.get_or_init(|| started)
            }
        };
        if owned.is_of_this_process() {
            Ok(owned)
        } else {
            Err(Error::Forked)
        }
    }

    fn start() -> Result<Self, Error> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(WORKERS)
            .max_blocking_threads(COMPUTERS)
            .thread_name("llmgw")
            .enable_all()
            .build()
            .map_err(|error| Error::new(Code::Internal, format!("starting threads: {error}")))?;
        Ok(Self {
            pid: std::process::id(),
            handle: runtime.handle().clone(),
            runtime: RwLock::new(Some(runtime)),
            closing: watch::Sender::new(false),
        })
    }

    fn is_of_this_process(&self) -> bool {
        self.pid == std::process::id()
    }
}

// === impl Abandon ===

#[pymethods]
impl Abandon {
    fn __call__(&self, _future: &Bound<'_, PyAny>) {
        self.0.abort();
    }
}

/// Hands a result to the thread of the event loop. A loop that was closed meanwhile has no one left who waits.
fn deliver<T: for<'a> IntoPyObject<'a>>(
    py: Python<'_>,
    event_loop: &Py<PyAny>,
    future: &Py<PyAny>,
    result: Result<T, Error>,
) {
    let (failed, value) = match result.map(|value| value.into_py_any(py)) {
        Ok(Ok(value)) => (false, value),
        Ok(Err(error)) => (true, error.into_value(py).into_any()),
        Err(error) => (true, PyErr::from(error).into_value(py).into_any()),
    };
    let handed = wrap_pyfunction!(settle, py).and_then(|settle| {
        let arguments = (settle, future, failed, value);
        event_loop.call_method1(py, intern!(py, "call_soon_threadsafe"), arguments)
    });
    if let Err(error) = handed {
        let closed = event_loop.call_method0(py, intern!(py, "is_closed"));
        if !closed.is_ok_and(|closed| closed.is_truthy(py).unwrap_or(false)) {
            error.write_unraisable(py, Some(future.bind(py)));
        }
    }
}

/// Sets the result of a future, on the thread of its event loop; one that was cancelled meanwhile stays so.
#[pyfunction]
fn settle(future: &Bound<'_, PyAny>, failed: bool, value: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = future.py();
    if future.call_method0(intern!(py, "done"))?.is_truthy()? {
        return Ok(());
    }
    let set = if failed {
        intern!(py, "set_exception")
    } else {
        intern!(py, "set_result")
    };
    future.call_method1(set, (value,)).map(drop)
}

static OWNED: OnceLock<Owned> = OnceLock::new();

/// How long Ctrl-C may go unnoticed.
const SLICE: Duration = Duration::from_millis(50);
/// How long a computation may hold up the end of the interpreter.
const DRAIN: Duration = Duration::from_secs(5);
/// The work is waiting for answers.
const WORKERS: usize = 2;
/// Computations, and results on their way to Python.
const COMPUTERS: usize = 16;
