//! A timeout that counts from the last byte.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::{Instant, Sleep};

/// Fires when nothing happened for a while. What happens often only takes the time; the timer itself is set
/// again when it fires too early.
#[derive(Debug)]
pub(super) struct Idle {
    sleep: Pin<Box<Sleep>>,
    last: Instant,
    limit: Duration,
}

impl Idle {
    /// Counts from now.
    pub(super) fn new(limit: Duration) -> Self {
        let last = Instant::now();
        Self {
            sleep: Box::pin(tokio::time::sleep_until(last + limit)),
            last,
            limit,
        }
    }

    /// Something happened.
    pub(super) fn touch(&mut self) {
        self.last = Instant::now();
    }

    /// Counts from now, to another limit.
    pub(super) fn restart(&mut self, limit: Duration) {
        self.touch();
        self.limit = limit;
        self.sleep.as_mut().reset(self.last + limit);
    }

    /// Ready when nothing happened for the whole time.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.sleep.as_mut().poll(cx));
            let due = self.last + self.limit;
            if due <= Instant::now() {
                return Poll::Ready(());
            }
            self.sleep.as_mut().reset(due);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_time_counts_from_the_last_touch() {
        let start = Instant::now();
        let mut idle = Idle::new(Duration::from_secs(10));
        tokio::time::advance(Duration::from_secs(7)).await;
        idle.touch();
        poll_fn(|cx| idle.poll(cx)).await;
        assert_eq!(start.elapsed().as_secs(), 17);
        idle.restart(Duration::from_secs(1));
        poll_fn(|cx| idle.poll(cx)).await;
        assert_eq!(start.elapsed().as_secs(), 18);
    }
}
