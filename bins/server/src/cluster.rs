//! The port that agents connect to.
//!
//! The secure session (mutual TLS) is not part of this release: until it is, this port listens on loopback only,
//! and an agent must know the secret in `agent.token`.

use llmgw_sched::controller::{Admission, ControllerHandle};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Why the port is for this machine alone.
pub const LOOPBACK_ONLY: &str = "the secure session between machines is not part of this release, so agents must be on this machine";

/// Accepts agents until `stop`.
pub async fn serve(
    listener: TcpListener,
    handle: ControllerHandle,
    admission: Admission,
    stop: CancellationToken,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return,
        };
        match accepted {
            Ok((stream, _)) => {
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "setting TCP_NODELAY for an agent");
                }
                handle.accept(stream, admission.clone());
            }
            Err(error) => {
                // Out of file descriptors, most likely: give others time to close theirs.
                tracing::warn!(%error, "accepting an agent");
                tokio::time::sleep(std::time::Duration::from_millis(200)).await;
            }
        }
    }
}
