//! What NVIDIA's library is asked, and how its answers are taken: a library that stands in for it is built with the
//! system's C compiler and loaded as the real one is.

#![expect(clippy::panic, reason = "a test that can't set itself up fails")]

use std::{path::Path, process::Command};

use llmgw_agent::facts::gpu::nvml::{
    Device, DeviceLink, DeviceMemory, DeviceProcess, LiveNvml, Nvml as _, NvmlError, Reading,
    Unreachable,
};
use llmgw_core::units::Bytes;
use tempfile::TempDir;

#[test]
fn everything_that_the_library_answers_is_taken_and_what_it_does_not_is_absent() {
    let dir = tempfile::tempdir().unwrap();
    let nvml = LiveNvml::at(build(&dir));
    let Reading { driver, cuda, gpus } = nvml.read().unwrap();
    assert_eq!(driver.as_deref(), Some("570.158.01"));
    assert_eq!(cuda, "12.8".parse().ok());
    let well = Device {
        index: 0,
        name: Some("NVIDIA H200".to_owned()),
        uuid: Some("GPU-a".to_owned()),
        bus: Some("00000000:19:00.0".to_owned()),
        compute: "9.0".parse().ok(),
        memory: Some(DeviceMemory {
            total: Bytes(1000),
            used: Bytes(500),
            reserved: Bytes(60),
        }),
        processes: Some(vec![
            DeviceProcess {
                pid: 11,
                memory: Some(Bytes(400)),
            },
            DeviceProcess {
                pid: 12,
                memory: None,
            },
        ]),
        uncorrected: Some(2),
        remap_pending: Some(true),
        remap_failed: Some(false),
        slowed: Some(0x48),
        links: vec![
            DeviceLink {
                active: true,
                remote: Some("00000000:07:00.0".to_owned()),
            },
            DeviceLink {
                active: false,
                remote: None,
            },
        ],
        ..Device::default()
    };
    let fallen = Device {
        index: 1,
        unreachable: Some(Unreachable::Lost),
        name: Some("NVIDIA H200".to_owned()),
        uuid: Some("GPU-b".to_owned()),
        bus: Some("00000000:3B:00.0".to_owned()),
        ..Device::default()
    };
    let closed = Device {
        index: 2,
        unreachable: Some(Unreachable::Lost),
        ..Device::default()
    };
    assert_eq!(gpus, [well, fallen, closed]);
    // A second time, after it was let go of.
    assert_eq!(nvml.read().unwrap().gpus, gpus);
}

#[test]
fn used_memory_is_asked_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let nvml = LiveNvml::at(build(&dir));
    assert_eq!(nvml.used("GPU-a"), Some(Bytes(560)));
    assert_eq!(nvml.used("GPU-z"), None);
}

#[test]
fn no_library_is_told_as_such() {
    let nvml = LiveNvml::at("/nowhere/libnvidia-ml.so.1");
    assert_eq!(nvml.read(), Err(NvmlError::Absent));
    assert_eq!(nvml.used("GPU-a"), None);
}

fn build(dir: &TempDir) -> std::path::PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nvml/library.c");
    let library = dir.path().join("libnvidia-ml.so.1");
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-Wall", "-Werror", "-o"])
        .arg(&library)
        .arg(source)
        .output();
    match built {
        Ok(output) if output.status.success() => library,
        other => panic!("this test needs the C compiler cc: {other:?}"),
    }
}
