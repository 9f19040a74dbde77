//! Libraries that are missing, from the beginning or since.

use llmgw_agent::provision::{BuildProblem, ProvisionError};
use llmgw_core::{
    cluster::engine::{EngineSource, WantedEngine},
    error::Coded as _,
};

use crate::{
    archives::{engine, engine_that_needs, engine_with_program},
    choice::{CPU, published},
    github::Github,
    site::{Site, sigill, wanted},
};

const LIBGOMP: &str = "usr/lib64/libgomp.so.1";

#[tokio::test]
async fn a_missing_library_is_installed_from_the_systems_own_packages() {
    let github = Github::of(published(&[(
        CPU,
        engine_that_needs(10_991, "libgomp.so.1"),
    )]))
    .await;
    let site = Site::new().with_packages("libgomp1", LIBGOMP);
    let provisioner = site.provisioner(Some(&github));
    let wish = wanted(EngineSource::Github);
    site.converge(&provisioner, &wish).await.unwrap();
    assert!(site.asked_of_packages().contains("install -y libgomp1"));
    let words = site.words();
    let installing = "installing what is missing: libgomp.so.1";
    assert!(
        words.iter().any(|words| words.contains(installing)),
        "{words:?}"
    );

    // All is well: nobody asks the package manager.
    std::fs::remove_file(site.path("apt-asked")).unwrap();
    provisioner.check(&wish).await.unwrap();
    assert_eq!(site.asked_of_packages(), "");

    // An unrelated upgrade takes it away: noticed, and mended without fetching anything.
    site.remove_from_system(LIBGOMP);
    let error = provisioner.check(&wish).await.unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("libgomp.so.1 is missing") && text.contains("libthing.so"),
        "{text}"
    );
    assert_eq!(site.asked_of_packages(), "", "a check mends nothing");
    site.converge(&provisioner, &wish).await.unwrap();
    provisioner.check(&wish).await.unwrap();
    assert_eq!(github.downloads(), 1);
    // Something it needs has changed: it has computed again.
    assert_eq!(site.prover.asked.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn the_newer_name_of_a_package_is_tried_too_after_a_look_for_news() {
    let github = Github::of(published(&[(
        CPU,
        engine_that_needs(10_991, "libssl.so.3"),
    )]))
    .await;
    let site = Site::new().with_packages("libssl3t64", "usr/lib64/libssl.so.3");
    site.converge(
        &site.provisioner(Some(&github)),
        &wanted(EngineSource::Github),
    )
    .await
    .unwrap();
    let asked = site.asked_of_packages();
    assert!(asked.contains("install -y libssl3\n"), "{asked}");
    assert!(asked.contains("install -y libssl3t64\n"), "{asked}");
}

#[tokio::test]
async fn who_may_not_install_packages_is_told_which_are_missing() {
    let github = Github::of(published(&[(
        CPU,
        engine_that_needs(10_991, "libgomp.so.1"),
    )]))
    .await;
    let site = Site::new();
    let provisioner = site.provisioner(Some(&github));
    let wish = wanted(EngineSource::Github);
    let error = site.converge(&provisioner, &wish).await.unwrap_err();
    let ProvisionError::Build { problems, .. } = &error else {
        panic!("{error:?}");
    };
    assert!(
        matches!(problems[0], BuildProblem::Packages(_)),
        "{problems:?}"
    );
    assert!(
        matches!(&problems[1], BuildProblem::Library { library, .. } if library == "libgomp.so.1")
    );
    assert!(error.to_string().contains("the agent does not run as root"));
    assert!(error.hint().unwrap().contains("libgomp1"));
    // The person who installs it does not wait for another download.
    site.system(LIBGOMP);
    site.converge(&provisioner, &wish).await.unwrap();
    assert_eq!(github.downloads(), 1);
}

#[tokio::test]
async fn a_library_that_no_package_has_is_missing_by_its_name() {
    let github = Github::of(published(&[(
        CPU,
        engine_that_needs(10_991, "libsecret-sauce.so.2"),
    )]))
    .await;
    let site = Site::new().with_packages("nothing", "usr/lib64/nothing");
    let error = site
        .converge(
            &site.provisioner(Some(&github)),
            &wanted(EngineSource::Github),
        )
        .await
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("libsecret-sauce.so.2 is missing, needed by libthing.so")
    );
    assert_eq!(site.asked_of_packages(), "");
}

#[tokio::test]
async fn an_object_that_this_machine_cannot_load_is_refused_by_its_name() {
    let narrow = [("libold.so", "\x7fELF\x01\x01\x01")];
    let github = Github::of(published(&[(CPU, engine(10_991, &narrow))])).await;
    let site = Site::new();
    let error = site
        .converge(
            &site.provisioner(Some(&github)),
            &wanted(EngineSource::Github),
        )
        .await
        .unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("libold.so") && text.contains("32-bit"),
        "{text}"
    );
    assert!(site.prover.asked.lock().unwrap().is_empty());
    let left = site.left();
    assert!(
        !left.iter().any(|file| file.starts_with("llamacpp")),
        "{left:?}"
    );
}

#[tokio::test]
async fn a_choice_that_does_not_work_any_more_is_forgotten() {
    let github = Github::of(published(&[(
        CPU,
        engine_that_needs(10_991, "libgomp.so.1"),
    )]))
    .await;
    let site = Site::new();
    site.system(LIBGOMP);
    let provisioner = site.provisioner(Some(&github));
    let wish = wanted(EngineSource::Github);
    site.converge(&provisioner, &wish).await.unwrap();
    assert!(site.left().contains(&"llamacpp.json".to_owned()));
    site.remove_from_system(LIBGOMP);
    site.converge(&provisioner, &wish).await.unwrap_err();
    assert!(!site.left().contains(&"llamacpp.json".to_owned()));
}

#[tokio::test]
async fn an_object_for_a_newer_c_library_is_refused_with_both_versions() {
    let github = Github::of(published(&[(CPU, engine_with_program(10_991))])).await;
    let site = Site::new();
    let banner = "GNU C Library (GNU libc) stable release version 2.1.\n";
    std::fs::write(site.path("root/usr/lib64/libc.so.6"), banner).unwrap();
    let wish = wanted(EngineSource::Github);
    let error = site
        .converge(&site.provisioner(Some(&github)), &wish)
        .await
        .unwrap_err();
    let text = error.to_string();
    assert!(text.contains("tool") && text.contains("2.1"), "{text}");
    assert_eq!(site.last().warnings[0].code, "glibc_too_old");
    // On the machine that the program is from, it is well.
    let banner = banner.replace("2.1", "2.99");
    std::fs::write(site.path("root/usr/lib64/libc.so.6"), banner).unwrap();
    site.converge(&site.provisioner(Some(&github)), &wish)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_build_of_the_same_name_from_other_archives_is_made_again() {
    let github = Github::of(published(&[(CPU, engine(10_991, &[("old", "")]))])).await;
    let site = Site::new();
    let wish = wanted(EngineSource::Github);
    site.converge(&site.provisioner(Some(&github)), &wish)
        .await
        .unwrap();
    // The files of a release can be replaced; who asks anew gets those that are listed now.
    let github = Github::of(published(&[(CPU, engine(10_991, &[("new", "")]))])).await;
    let provisioner = site.provisioner(Some(&github));
    let asked_anew = WantedEngine {
        version: Some("b10991".to_owned()),
        allow_missing_digest: ["another".to_owned()].into(),
        ..wish
    };
    site.converge(&provisioner, &asked_anew).await.unwrap();
    let directory = site.path("engines/llamacpp/b10991-cpu");
    assert!(directory.join("new").exists() && !directory.join("old").exists());
    provisioner.check(&asked_anew).await.unwrap();
}

#[tokio::test]
async fn a_file_that_was_removed_or_changed_is_noticed_and_the_build_is_made_again() {
    let github = Github::of(published(&[(CPU, engine(10_991, &[("libx.so", "x")]))])).await;
    let site = Site::new();
    let provisioner = site.provisioner(Some(&github));
    let wish = wanted(EngineSource::Github);
    site.converge(&provisioner, &wish).await.unwrap();
    let library = site.path("engines/llamacpp/b10991-cpu/libx.so");
    std::fs::remove_file(&library).unwrap();
    let error = provisioner.check(&wish).await.unwrap_err();
    assert!(error.to_string().contains("libx.so is gone"), "{error}");
    site.converge(&provisioner, &wish).await.unwrap();
    assert!(library.exists());
    assert_eq!(github.downloads(), 2);
    std::fs::write(&library, "y").unwrap();
    let error = provisioner.check(&wish).await.unwrap_err();
    assert!(error.to_string().contains("libx.so has changed"), "{error}");
}

#[tokio::test]
async fn an_installation_without_its_marker_is_done_again() {
    let github = Github::of(published(&[(CPU, engine(10_991, &[]))])).await;
    let site = Site::new();
    let provisioner = site.provisioner(Some(&github));
    let wish = wanted(EngineSource::Github);
    site.converge(&provisioner, &wish).await.unwrap();
    let directory = site.path("engines/llamacpp/b10991-cpu");
    std::fs::remove_file(directory.join("installed.json")).unwrap();
    std::fs::write(directory.join("stale"), "").unwrap();
    assert!(provisioner.check(&wish).await.is_err());
    site.converge(&provisioner, &wish).await.unwrap();
    assert!(!directory.join("stale").exists());
}

#[tokio::test]
async fn a_backend_that_the_processor_cannot_run_is_put_aside_when_that_cures_it() {
    let said = "load_backend: loaded CPU backend from /x/libggml-cpu-icelake.so\n";
    let files = [
        ("devices", said),
        ("libggml-cpu-icelake.so", "new"),
        ("libggml-cpu-haswell.so", "old"),
    ];
    let github = Github::of(published(&[(CPU, engine(10_991, &files))])).await;
    let site = Site::new();
    *site.prover.answers.lock().unwrap() = vec![Err(sigill()), Ok(())];
    let provisioner = site.provisioner(Some(&github));
    let wish = wanted(EngineSource::Github);
    site.converge(&provisioner, &wish).await.unwrap();
    let directory = site.path("engines/llamacpp/b10991-cpu");
    assert!(directory.join("quarantine/libggml-cpu-icelake.so").exists());
    assert!(directory.join("libggml-cpu-haswell.so").exists());
    provisioner.check(&wish).await.unwrap();
}
