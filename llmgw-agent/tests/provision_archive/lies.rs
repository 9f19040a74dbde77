//! What hosts and disks do to archives.

use llmgw_agent::provision::ProvisionError;
use llmgw_core::{
    cluster::engine::{EngineSource, WantedEngine},
    error::{Code, Coded as _},
    units::Bytes,
};

use crate::{
    archives::engine,
    choice::{CPU, published},
    github::{Github, Published},
    site::{Site, wanted},
};

#[tokio::test]
async fn one_wrong_byte_is_refused_by_name_and_nothing_is_left() {
    let whole = engine(10_991, &[]);
    let digest = format!("sha256:{}", crate::github::sha256(&whole));
    let mut corrupted = whole;
    let middle = corrupted.len() / 2;
    corrupted[middle] ^= 1;
    let github = Github::of(Published {
        digests: [(CPU.to_owned(), Some(digest))].into(),
        ..published(&[(CPU, corrupted)])
    })
    .await;
    let site = Site::new();
    let error = site
        .converge(
            &site.provisioner(Some(&github)),
            &wanted(EngineSource::Github),
        )
        .await
        .unwrap_err();
    assert!(
        matches!(&error, ProvisionError::Digest { asset, .. } if asset == CPU),
        "{error:?}"
    );
    assert_eq!(error.code(), Code::VerificationFailed);
    assert_eq!(site.left(), [""; 0]);
    assert!(site.prover.asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_file_without_a_digest_is_refused_unless_it_is_allowed_by_name() {
    let github = Github::of(Published {
        digests: [(CPU.to_owned(), None)].into(),
        ..published(&[(CPU, engine(10_991, &[]))])
    })
    .await;
    let site = Site::new();
    let provisioner = site.provisioner(Some(&github));
    let wish = wanted(EngineSource::Github);
    let error = site.converge(&provisioner, &wish).await.unwrap_err();
    assert!(error.to_string().contains("no digest is listed"), "{error}");
    assert_eq!(github.downloads(), 0);
    let allowed = WantedEngine {
        allow_missing_digest: [CPU.to_owned()].into(),
        ..wish
    };
    site.converge(&provisioner, &allowed).await.unwrap();
}

#[tokio::test]
async fn an_archive_that_is_damaged_before_it_was_digested_is_refused() {
    let mut damaged = engine(10_991, &[]);
    damaged.truncate(damaged.len() - 20);
    let github = Github::of(published(&[(CPU, damaged)])).await;
    let site = Site::new();
    let error = site
        .converge(
            &site.provisioner(Some(&github)),
            &wanted(EngineSource::Github),
        )
        .await
        .unwrap_err();
    assert!(
        matches!(&error, ProvisionError::Archive { asset, .. } if asset == CPU),
        "{error:?}"
    );
    assert!(
        !site.left().iter().any(|file| file.starts_with("llamacpp/")),
        "{:?}",
        site.left()
    );
}

#[tokio::test]
async fn a_file_that_is_gone_is_named_with_the_address() {
    let github = Github::of(published(&[(CPU, engine(10_991, &[]))])).await;
    let site = Site::new();
    let provisioner = site.provisioner(Some(&github));
    // Listed, and not there any more.
    let wish = wanted(EngineSource::Github);
    let release = {
        let mut published = github.published.lock().unwrap();
        std::mem::take(&mut published.files)
    };
    github.published.lock().unwrap().files = release.clone();
    let found = github
        .client()
        .by_tag("b10991", None, llmgw_core::clock::Timestamp(0))
        .await
        .unwrap();
    let llmgw_core::releases::Answer::Release { release: found, .. } = found else {
        panic!("an answer without a release");
    };
    github.published.lock().unwrap().files.clear();
    let wish = WantedEngine {
        release: Some(llmgw_core::cluster::release::Resolution::Found { release: found }),
        ..wish
    };
    let error = site.converge(&provisioner, &wish).await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    let text = llmgw_core::error::Chain(&error).to_string();
    assert!(
        text.contains(CPU) && text.contains("404") && !text.contains("s3cret"),
        "{text}"
    );
}

#[tokio::test]
async fn without_room_nothing_is_fetched_and_it_is_said_how_much_is_needed() {
    let archive = engine(10_991, &[]);
    let packed = u64::try_from(archive.len()).unwrap();
    let github = Github::of(published(&[(CPU, archive)])).await;
    let mut site = Site::new();
    site.reserve = Bytes(u64::MAX);
    let error = site
        .converge(
            &site.provisioner(Some(&github)),
            &wanted(EngineSource::Auto),
        )
        .await
        .unwrap_err();
    let ProvisionError::NoSpace { need, have, .. } = error else {
        panic!("{error:?}");
    };
    // The archive, and what is unpacked of it.
    assert_eq!((need, have), (Bytes(packed * 5), Bytes::ZERO));
    assert_eq!(github.downloads(), 0);
    assert_eq!(site.left(), [""; 0]);
    // What an earlier life has fetched of it needs no room any more.
    let downloads = site.path("engines/downloads/b10991");
    std::fs::create_dir_all(&downloads).unwrap();
    std::fs::write(downloads.join(format!("{CPU}.partial")), [0; 10]).unwrap();
    let error = site
        .converge(
            &site.provisioner(Some(&github)),
            &wanted(EngineSource::Auto),
        )
        .await
        .unwrap_err();
    let ProvisionError::NoSpace { need, .. } = error else {
        panic!("{error:?}");
    };
    assert_eq!(need, Bytes(packed * 5 - 10));
}

#[tokio::test]
async fn an_archive_that_lies_there_is_used_only_with_its_digest() {
    let archive = engine(10_991, &[]);
    let github = Github::of(published(&[(CPU, archive.clone())])).await;
    for (bytes, downloads) in [(&b"something else"[..], 1), (&archive, 1)] {
        let site = Site::new();
        let directory = site.path("engines/downloads/b10991");
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join(CPU), bytes).unwrap();
        let provisioner = site.provisioner(Some(&github));
        site.converge(&provisioner, &wanted(EngineSource::Github))
            .await
            .unwrap();
        assert_eq!(github.downloads(), downloads);
    }
}

#[tokio::test]
async fn what_has_no_digest_must_at_least_have_its_size() {
    let github = Github::of(published(&[(CPU, engine(10_991, &[]))])).await;
    let found = github
        .client()
        .by_tag("b10991", None, llmgw_core::clock::Timestamp(0))
        .await
        .unwrap();
    let llmgw_core::releases::Answer::Release { mut release, .. } = found else {
        panic!("an answer without a release");
    };
    let asset = &mut release.assets[0];
    asset.sha256 = None;
    asset.size = asset.size.map(|size| size + Bytes(1));
    let wish = WantedEngine {
        allow_missing_digest: [CPU.to_owned()].into(),
        release: Some(llmgw_core::cluster::release::Resolution::Found { release }),
        ..wanted(EngineSource::Github)
    };
    let site = Site::new();
    let error = site
        .converge(&site.provisioner(Some(&github)), &wish)
        .await
        .unwrap_err();
    assert!(matches!(error, ProvisionError::Fetch { .. }), "{error:?}");
    assert_eq!(site.left(), [""; 0]);
}
