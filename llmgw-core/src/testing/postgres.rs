//! A PostgreSQL server of one's own, for as long as a test runs.
//!
//! It listens on a socket in a directory of its own under `/tmp` and nowhere else. Its owner is a small shell
//! script that waits for the end of its standard input: the pipe closes when [`PostgresServer`] is dropped, and
//! also when the test panics, is killed, or leaves it in a static; the script then stops the server and deletes
//! the directory.

use std::{
    fs, io,
    io::{BufRead, BufReader},
    os::unix::{
        fs::{DirBuilderExt, MetadataExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    str::FromStr,
    sync::atomic::{AtomicU64, Ordering},
};

use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, PgConnection,
    postgres::{PgConnectOptions, PgDatabaseError},
};
use uuid::Uuid;

use crate::error::{Code, Coded};

/// A running server; ends when it is dropped.
#[derive(Debug)]
pub struct PostgresServer {
    directory: PathBuf,
    script: Child,
    databases: AtomicU64,
}

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostgresError {
    /// The programs are neither on the search path nor where Debian keeps them.
    #[error("PostgreSQL is not installed: initdb, pg_ctl and postgres were not found")]
    NotInstalled,
    /// The system refused something.
    #[error("{doing}")]
    System {
        /// What we were doing.
        doing: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// The server did not start.
    #[error("PostgreSQL did not start; it said:\n{log}")]
    NotStarted {
        /// The end of what it wrote.
        log: String,
    },
}

// === impl PostgresServer ===

impl PostgresServer {
    /// Makes a cluster of databases and starts a server on it; blocks until it is ready, about two seconds.
    ///
    /// PostgreSQL refuses to run as root; started by root, it runs as `postgres` or `nobody`.
    ///
    /// # Errors
    /// When PostgreSQL is not installed or does not start.
    pub fn start() -> Result<Self, PostgresError> {
        let programs = programs().ok_or(PostgresError::NotInstalled)?;
        // Not the system's temporary directory: that may lie where another user can't go, and the path of a
        // socket may have 107 bytes at most.
        let directory = Path::new("/tmp").join(format!("llmgw-pg-{}", Uuid::now_v7().simple()));
        let making = "making a directory for PostgreSQL";
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&directory)
            .map_err(system(making))?;
        let mut command = Command::new("sh");
        command
            .arg("-c")
            .arg(SCRIPT)
            .arg("sh")
            .arg(&programs)
            .arg(&directory)
            .current_dir(&directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // A test's own output must not stay open after it.
            .stderr(Stdio::null())
            // What ends the test's process group must not end the script before it has cleaned up.
            .process_group(0);
        let mine = fs::metadata(&directory).map_err(system(making))?;
        if mine.uid() == 0 {
            let (user, group) = unprivileged().map_err(system("looking for a user to run as"))?;
            chown(&directory, Some(user), Some(group)).map_err(system(making))?;
            command.uid(user).gid(group);
        }
        let mut script = command.spawn().map_err(system("starting sh"))?;
        let mut answer = String::new();
        if let Some(stdout) = script.stdout.take() {
            BufReader::new(stdout)
                .read_line(&mut answer)
                .map_err(system("waiting for PostgreSQL"))?;
        }
        let server = Self {
            directory,
            script,
            databases: AtomicU64::new(0),
        };
        if answer.trim() == "ready" {
            Ok(server)
        } else {
            let log = fs::read_to_string(server.directory.join("log")).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let tail = lines.len().saturating_sub(MAX_LOG_LINES);
            let log = lines.get(tail..).unwrap_or_default().join("\n");
            Err(PostgresError::NotStarted { log })
        }
    }

    /// Makes an empty database and gives its URL.
    ///
    /// Where the server can, it sorts text as a language does and not by bytes, as an operator's may.
    ///
    /// # Errors
    /// When the server says no.
    pub async fn database(&self) -> Result<String, sqlx::Error> {
        let name = format!("d{}", self.databases.fetch_add(1, Ordering::Relaxed));
        let options = PgConnectOptions::from_str(&self.url("postgres"))?;
        let mut connection = options.connect().await?;
        let with_language = format!(
            "CREATE DATABASE {name} TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en-US'"
        );
        let created = sqlx::raw_sql(AssertSqlSafe(with_language))
            .execute(&mut connection)
            .await;
        if let Err(error) = created {
            let database = error.as_database_error();
            let code = database
                .and_then(|error| error.try_downcast_ref::<PgDatabaseError>())
                .map(|error| error.code().to_owned());
            // Before version 15 there was no such clause; a build may be without it.
            if !matches!(code.as_deref(), Some(SYNTAX_ERROR | NOT_SUPPORTED)) {
                return Err(error);
            }
            sqlx::raw_sql(AssertSqlSafe(format!("CREATE DATABASE {name}")))
                .execute(&mut connection)
                .await?;
        }
        PgConnection::close(connection).await?;
        Ok(self.url(&name))
    }

    fn url(&self, database: &str) -> String {
        let socket = self.directory.display().to_string().replace('/', "%2F");
        format!("postgres://postgres@{socket}:{PORT}/{database}")
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        // The end of its input is what the script waits for.
        drop(self.script.stdin.take());
        // Nobody is left to be told.
        drop(self.script.wait());
    }
}

// === impl PostgresError ===

impl Coded for PostgresError {
    fn code(&self) -> Code {
        Code::Unavailable
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::NotInstalled => Some(
                "install it (Debian and Ubuntu: apt-get install postgresql), or set \
                 LLMGW_TEST_NO_POSTGRES=1 to leave the tests that need it out"
                    .to_owned(),
            ),
            Self::System { .. } | Self::NotStarted { .. } => None,
        }
    }
}

/// What stands before the names of PostgreSQL's programs: nothing when they are on the search path, else the
/// directory of the newest version.
fn programs() -> Option<PathBuf> {
    let mut places = vec![PathBuf::new()];
    let mut versions: Vec<(u32, PathBuf)> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.parse().ok()?;
            // With a slash at the end, so that a program's name can follow.
            Some((version, entry.path().join("bin").join("")))
        })
        .collect();
    versions.sort();
    places.extend(versions.into_iter().rev().map(|(_, place)| place));
    places.into_iter().find(|place| {
        ["initdb", "pg_ctl", "postgres"].iter().all(|program| {
            let mut path = place.clone().into_os_string();
            path.push(program);
            Command::new(path)
                .arg("--version")
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .is_ok_and(|status| status.success())
        })
    })
}

/// The ids of a user and a group that own nothing of ours.
fn unprivileged() -> io::Result<(u32, u32)> {
    let accounts = fs::read_to_string("/etc/passwd")?;
    ["postgres", "nobody"]
        .into_iter()
        .find_map(|wanted| {
            accounts.lines().find_map(|line| {
                let mut fields = line.split(':');
                let name = fields.next()?;
                let (user, group) = (fields.nth(1)?, fields.next()?);
                (name == wanted)
                    .then(|| Some((user.parse().ok()?, group.parse().ok()?)))
                    .flatten()
            })
        })
        .ok_or_else(|| io::Error::other("there is neither a postgres nor a nobody"))
}

fn system(doing: &'static str) -> impl FnOnce(io::Error) -> PostgresError {
    move |source| PostgresError::System { doing, source }
}

/// `$1` stands before the programs' names, `$2` is the directory. It ignores what a terminal sends to all, and
/// does its work when its input ends.
const SCRIPT: &str = r#"
trap '' INT TERM HUP
"$1initdb" -D "$2/data" -U postgres --auth=trust -E UTF8 --locale=C --no-sync >"$2/log" 2>&1 </dev/null &&
    "$1pg_ctl" start -D "$2/data" -l "$2/log" -w -t 60 -s -o "-p 5432 -c listen_addresses='' \
        -c unix_socket_directories='$2' -c fsync=off -c full_page_writes=off -c max_connections=200 \
        -c shared_buffers=16MB" </dev/null >/dev/null 2>&1 &&
    echo ready
exec >/dev/null
cat >/dev/null
"$1pg_ctl" stop -D "$2/data" -m immediate -w -t 20 -s </dev/null >/dev/null 2>&1
cd /
rm -rf "$2"
"#;

/// Part of the socket's name and nothing else: no port is opened.
const PORT: u16 = 5432;
const MAX_LOG_LINES: usize = 30;
/// Of SQLSTATE.
const SYNTAX_ERROR: &str = "42601";
const NOT_SUPPORTED: &str = "0A000";
