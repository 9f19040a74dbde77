//! One piece of work for all who ask for the same at the same time.
//!
//! Nothing is spawned: those who wait drive the work together, and when the last of them has gone it is dropped
//! with them. So the work is as cancel-safe as what it does.

use std::{
    collections::BTreeMap,
    fmt,
    future::Future,
    sync::{Mutex, MutexGuard, PoisonError},
};

use futures_util::{
    FutureExt as _,
    future::{BoxFuture, Shared, WeakShared},
};
use tokio::sync::watch;

/// Work that is under way, by what it is for.
pub(crate) struct Flights<K, P, T>
where
    T: Clone,
{
    flights: Mutex<BTreeMap<K, Flight<P, T>>>,
}

/// Tells those who wait how far the work is; only the latest word counts.
#[derive(Debug)]
pub(crate) struct Progress<P>(watch::Sender<Option<P>>);

struct Flight<P, T>
where
    T: Clone,
{
    work: WeakShared<BoxFuture<'static, T>>,
    progress: watch::Receiver<Option<P>>,
}

// === impl Flights ===

impl<K, P, T> Flights<K, P, T>
where
    K: Ord,
    P: Clone + Send + Sync + 'static,
    T: Clone + Send + Sync + 'static,
{
    /// Joins the work for `key`, or begins it.
    pub(crate) async fn join<F>(
        &self,
        key: K,
        begin: impl FnOnce(Progress<P>) -> F,
        hears: &(dyn Fn(P) + Send + Sync),
    ) -> T
    where
        F: Future<Output = T> + Send + 'static,
    {
        let (mut work, mut progress) = self.enter(key, begin);
        loop {
            tokio::select! {
                biased;
                Ok(()) = progress.changed() => {
                    let latest = progress.borrow_and_update().clone();
                    if let Some(latest) = latest {
                        hears(latest);
                    }
                }
                done = &mut work => return done,
            }
        }
    }

    fn enter<F>(
        &self,
        key: K,
        begin: impl FnOnce(Progress<P>) -> F,
    ) -> (Shared<BoxFuture<'static, T>>, watch::Receiver<Option<P>>)
    where
        F: Future<Output = T> + Send + 'static,
    {
        let mut flights = self.lock();
        flights.retain(|_, flight| flight.work.upgrade().is_some());
        if let Some(flight) = flights.get(&key)
            && let Some(work) = flight.work.upgrade()
            // Who asks after the end asks anew: the answer may be another by now.
            && work.peek().is_none()
        {
            let mut progress = flight.progress.clone();
            progress.mark_changed();
            return (work, progress);
        }
        let (sender, progress) = watch::channel(None);
        let work = begin(Progress(sender)).boxed().shared();
        if let Some(weak) = work.downgrade() {
            let flight = Flight {
                work: weak,
                progress: progress.clone(),
            };
            flights.insert(key, flight);
        }
        (work, progress)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<K, Flight<P, T>>> {
        // Nothing that can panic runs under the lock but `begin`, which makes a future and does no work.
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K, P, T: Clone> Default for Flights<K, P, T> {
    fn default() -> Self {
        Self {
            flights: Mutex::default(),
        }
    }
}

impl<K, P, T: Clone> fmt::Debug for Flights<K, P, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flights").finish_non_exhaustive()
    }
}

// === impl Progress ===

impl<P> Progress<P> {
    pub(crate) fn tell(&self, word: P) {
        self.0.send_replace(Some(word));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use tokio::sync::Semaphore;

    use super::*;

    #[derive(Default)]
    struct Counts {
        begun: AtomicUsize,
        dropped: AtomicUsize,
    }

    struct Dropped(Arc<Counts>);

    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.dropped.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn work(
        counts: &Arc<Counts>,
        gate: &Arc<Semaphore>,
    ) -> impl FnOnce(Progress<u32>) -> BoxFuture<'static, usize> {
        let (counts, gate) = (Arc::clone(counts), Arc::clone(gate));
        move |progress| {
            async move {
                let _dropped = Dropped(Arc::clone(&counts));
                let number = counts.begun.fetch_add(1, Ordering::SeqCst);
                progress.tell(7);
                gate.acquire().await.unwrap().forget();
                number
            }
            .boxed()
        }
    }

    #[tokio::test]
    async fn all_who_ask_at_the_same_time_share_one_piece_of_work() {
        let flights = Flights::default();
        let (counts, gate) = (Arc::default(), Arc::new(Semaphore::new(0)));
        let heard = AtomicUsize::new(0);
        let hears = |word: u32| {
            assert_eq!(word, 7);
            // The second one hears it too, though it came later.
            if heard.fetch_add(1, Ordering::SeqCst) == 1 {
                gate.add_permits(1);
            }
        };
        let (one, two) = tokio::join!(
            flights.join("k", work(&counts, &gate), &hears),
            flights.join("k", work(&counts, &gate), &hears),
        );
        assert_eq!((one, two), (0, 0));
        gate.add_permits(1);
        let next = flights.join("k", work(&counts, &gate), &|_| ()).await;
        assert_eq!(next, 1, "who asks later gets fresh work");
    }

    #[tokio::test]
    async fn work_for_something_else_is_other_work() {
        let flights = Flights::default();
        let (counts, gate) = (Arc::default(), Arc::new(Semaphore::new(2)));
        let (one, two) = tokio::join!(
            flights.join("a", work(&counts, &gate), &|_| ()),
            flights.join("b", work(&counts, &gate), &|_| ()),
        );
        assert_eq!(one + two, 1);
    }

    #[tokio::test]
    async fn work_goes_on_without_who_began_it_and_ends_with_the_last() {
        let flights = Flights::default();
        let (counts, gate) = (Arc::<Counts>::default(), Arc::new(Semaphore::new(0)));
        let mut first = Box::pin(flights.join("k", work(&counts, &gate), &|_| ()));
        let mut second = Box::pin(flights.join("k", work(&counts, &gate), &|_| ()));
        assert!((&mut first).now_or_never().is_none());
        assert!((&mut second).now_or_never().is_none());
        drop(first);
        assert_eq!(counts.dropped.load(Ordering::SeqCst), 0);
        gate.add_permits(1);
        assert_eq!(second.await, 0);
        let mut last = Box::pin(flights.join("k", work(&counts, &gate), &|_| ()));
        assert!((&mut last).now_or_never().is_none());
        drop(last);
        assert_eq!(counts.dropped.load(Ordering::SeqCst), 2);
    }
}
