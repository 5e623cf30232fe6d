//! Being told to end.

use tokio::signal::{
    ctrl_c,
    unix::{SignalKind, signal},
};

/// Waits for Ctrl-C or SIGTERM.
pub(crate) async fn told_to_end() {
    let terminated = async {
        match signal(SignalKind::terminate()) {
            Ok(mut terminate) => drop(terminate.recv().await),
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = ctrl_c() => {}
        () = terminated => {}
    }
}
