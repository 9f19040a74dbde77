use std::{io, path::Path, time::Duration};

use reqwest::{Response, StatusCode, Url};
use sha2::{Digest, Sha256};
use tokio::{
    fs::File,
    io::{AsyncWrite, AsyncWriteExt},
    time::timeout,
};

use super::{FetchError, shown};
use crate::{cluster::weights::Sha256Digest, units::Bytes};

/// An answer whose head was read and whose body was not.
#[derive(Debug)]
pub struct Download {
    response: Response,
    url: String,
    length: Option<Bytes>,
    max: Bytes,
    stall: Duration,
}

/// What was read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Fetched {
    /// How many bytes.
    pub bytes: Bytes,
    /// Their digest.
    pub sha256: Sha256Digest,
}

impl Download {
    /// How many bytes will come, when it is known.
    #[must_use]
    pub fn length(&self) -> Option<Bytes> {
        self.length
    }

    /// The address that answered, after redirects, without query and secrets.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Reads the body into a new file and makes it durable. `progress` is told how many bytes are written.
    ///
    /// On an error, and when the future is dropped, a part of the file may be left for the caller to remove.
    ///
    /// # Errors
    /// When the file can't be written, and as [`Download::write_to`].
    pub async fn to_file(
        self,
        path: &Path,
        progress: &(dyn Fn(Bytes) + Send + Sync),
    ) -> Result<Fetched, FetchError> {
        let write_error = |source| FetchError::Write {
            to: path.display().to_string(),
            source,
        };
        let mut file = File::create_new(path).await.map_err(write_error)?;
        let fetched = self.copy(&mut file, progress, &write_error).await?;
        file.sync_all().await.map_err(write_error)?;
        Ok(fetched)
    }

    /// Reads the body into `writer` and flushes it. `progress` is told how many bytes are written.
    ///
    /// # Errors
    /// When the body breaks off, stalls, or is longer or shorter than announced or allowed.
    pub async fn write_to<W>(
        self,
        writer: &mut W,
        progress: &(dyn Fn(Bytes) + Send + Sync),
    ) -> Result<Fetched, FetchError>
    where
        W: AsyncWrite + Send + Unpin + ?Sized,
    {
        let to = self.url.clone();
        let write_error = move |source| FetchError::Write {
            to: format!("the body of {to}"),
            source,
        };
        self.copy(writer, progress, &write_error).await
    }

    /// Reads the body into memory: to be used with a small [`FetchRequest::max`](super::FetchRequest::max).
    ///
    /// # Errors
    /// As [`Download::write_to`].
    pub async fn read(self) -> Result<Vec<u8>, FetchError> {
        let mut body = Vec::new();
        self.write_to(&mut body, &|_| ()).await?;
        Ok(body)
    }

    pub(super) fn check(
        response: Response,
        url: &Url,
        size: Option<Bytes>,
        max: Bytes,
        stall: Duration,
    ) -> Result<Self, FetchError> {
        let url = shown(url);
        if response.status() != StatusCode::OK {
            return Err(FetchError::Status {
                url,
                status: response.status().as_u16(),
            });
        }
        let announced = response.content_length().map(Bytes);
        if let (Some(announced), Some(size)) = (announced, size)
            && announced != size
        {
            return Err(FetchError::Length {
                url,
                expected: size,
                got: announced,
            });
        }
        let length = announced.or(size);
        if length.is_some_and(|length| length > max) {
            return Err(FetchError::TooLarge { url, limit: max });
        }
        Ok(Self {
            response,
            url,
            length,
            max,
            stall,
        })
    }

    async fn copy<W>(
        self,
        writer: &mut W,
        progress: &(dyn Fn(Bytes) + Send + Sync),
        write_error: &(dyn Fn(io::Error) -> FetchError + Send + Sync),
    ) -> Result<Fetched, FetchError>
    where
        W: AsyncWrite + Send + Unpin + ?Sized,
    {
        let Self {
            mut response,
            url,
            length,
            max,
            stall,
        } = self;
        let mut hasher = Sha256::new();
        let mut got = Bytes::ZERO;
        loop {
            let chunk = match timeout(stall, response.chunk()).await {
                Err(_) => {
                    return Err(FetchError::Stalled {
                        url,
                        got,
                        after: stall,
                    });
                }
                Ok(Err(source)) => {
                    return Err(FetchError::Broken {
                        url,
                        got,
                        source: Box::new(source.without_url()),
                    });
                }
                Ok(Ok(None)) => break,
                Ok(Ok(Some(chunk))) => chunk,
            };
            got = got + Bytes(u64::try_from(chunk.len()).unwrap_or(u64::MAX));
            if let Some(expected) = length.filter(|length| got > *length) {
                return Err(FetchError::Length { url, expected, got });
            }
            if got > max {
                return Err(FetchError::TooLarge { url, limit: max });
            }
            hasher.update(&chunk);
            writer.write_all(&chunk).await.map_err(write_error)?;
            progress(got);
        }
        writer.flush().await.map_err(write_error)?;
        if let Some(expected) = length.filter(|length| got < *length) {
            return Err(FetchError::Length { url, expected, got });
        }
        Ok(Fetched {
            bytes: got,
            sha256: Sha256Digest(hasher.finalize().into()),
        })
    }
}
