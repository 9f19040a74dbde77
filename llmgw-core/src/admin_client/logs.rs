//! Logs over HTTP, a part for each question.

use std::time::Duration;

use async_trait::async_trait;
use reqwest::Method;

use super::AdminClient;
use crate::{
    api::log::{LogFrom, LogPart},
    control::{ControlError, LONGEST_WAIT, Logs},
    id::ReplicaId,
    units::Span,
};

#[async_trait]
impl Logs for AdminClient {
    async fn read_log(
        &self,
        replica: ReplicaId,
        from: LogFrom,
        wait: Duration,
    ) -> Result<LogPart, ControlError> {
        let mut url = self.route(&["replicas", &replica.to_string(), "log"]);
        let (name, number) = match from {
            LogFrom::Last(lines) => ("lines", u64::from(lines)),
            LogFrom::After(cursor) => ("after", cursor),
        };
        url.query_pairs_mut()
            .append_pair(name, &number.to_string())
            .append_pair("wait", &Span(wait.min(LONGEST_WAIT)).to_string());
        self.ask(Method::GET, url, None).await
    }
}
