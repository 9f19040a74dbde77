//! NVIDIA's library itself, by the crate `nvml-wrapper`.
//!
//! Nothing is judged here and little decided, for hardly a line of it runs on a machine without such a card.

use std::{
    fmt,
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use llmgw_core::{
    cluster::node::{MajorMinor, MigInstance},
    units::Bytes,
};
use nvml_wrapper::{
    Device as Handle, Nvml as Library,
    enum_wrappers::device::{EccCounter, MemoryError},
    enums::device::{SampleValue, UsedGpuMemory},
    error::NvmlError as LibraryError,
    structs::device::FieldId,
    sys_exports::field_id,
};

use super::{
    Device, DeviceLink, DeviceMemory, DeviceProcess, Nvml, NvmlError, Reading, Unreachable,
};

/// The library of the running system.
///
/// It is loaded at the first question and kept, for loading it makes the driver wake its cards. It is let go of
/// when it does not work, as after an upgrade of the driver, and while a card waits for a reset.
#[derive(Default)]
pub struct LiveNvml {
    /// Where the library is; absent for the one that the system's loader finds.
    path: Option<PathBuf>,
    library: Mutex<Option<Library>>,
}

// === impl LiveNvml ===

impl LiveNvml {
    /// The library at this place.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self {
            path: Some(path.into()),
            library: Mutex::default(),
        }
    }

    fn load(&self) -> Result<Library, LibraryError> {
        match &self.path {
            Some(path) => Library::builder().lib_path(path.as_os_str()).init(),
            None => Library::init(),
        }
    }
}

impl Nvml for LiveNvml {
    fn read(&self) -> Result<Reading, NvmlError> {
        let mut kept = self.library.lock().unwrap_or_else(PoisonError::into_inner);
        let library = match kept.take() {
            Some(library) => library,
            None => self.load().map_err(trouble)?,
        };
        let count = library.device_count().map_err(trouble)?;
        let reading = Reading {
            driver: library.sys_driver_version().ok(),
            cuda: library.sys_cuda_driver_version().ok().and_then(cuda),
            gpus: (0..count.min(MOST_CARDS))
                .map(|index| device(&library, index))
                .collect(),
        };
        if !reading.gpus.iter().any(Device::awaits_reset) {
            *kept = Some(library);
        }
        Ok(reading)
    }

    fn used(&self, uuid: &str) -> Option<Bytes> {
        let mut kept = self.library.lock().unwrap_or_else(PoisonError::into_inner);
        let library = match kept.take() {
            Some(library) => library,
            None => self.load().ok()?,
        };
        let memory = library
            .device_by_uuid(uuid)
            .ok()
            .and_then(|handle| memory(&handle));
        *kept = Some(library);
        memory.map(|memory| memory.used + memory.reserved)
    }
}

impl fmt::Debug for LiveNvml {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveNvml").finish_non_exhaustive()
    }
}

fn trouble(error: LibraryError) -> NvmlError {
    match error {
        LibraryError::LibloadingError(_) | LibraryError::LibraryNotFound => NvmlError::Absent,
        LibraryError::LibRmVersionMismatch => NvmlError::Mismatch,
        LibraryError::NoPermission => NvmlError::Denied,
        other => NvmlError::Other(other.to_string()),
    }
}

/// CUDA counts 12.8 as 12080.
fn cuda(version: i32) -> Option<MajorMinor> {
    let version = u32::try_from(version).ok()?;
    Some(MajorMinor {
        major: version / 1000,
        minor: version % 1000 / 10,
    })
}

fn device(library: &Library, index: u32) -> Device {
    let handle = match library.device_by_index(index) {
        Ok(handle) => handle,
        Err(error) => {
            return Device {
                index,
                unreachable: Some(unreachable(error)),
                ..Device::default()
            };
        }
    };
    // A card that is lost answers its name and address from the driver's memory, and nothing else.
    let lost = match handle.memory_info() {
        Err(error @ (LibraryError::GpuLost | LibraryError::ResetRequired)) => {
            Some(unreachable(error))
        }
        _ => None,
    };
    let field = |id| field(&handle, id);
    Device {
        index,
        unreachable: lost,
        name: handle.name().ok(),
        uuid: handle.uuid().ok(),
        bus: handle.pci_info().ok().map(|pci| pci.bus_id),
        compute: handle
            .cuda_compute_capability()
            .ok()
            .and_then(|capability| {
                Some(MajorMinor {
                    major: u32::try_from(capability.major).ok()?,
                    minor: u32::try_from(capability.minor).ok()?,
                })
            }),
        memory: memory(&handle),
        processes: processes(&handle),
        mig: mig(&handle),
        uncorrected: handle
            .total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile)
            .ok(),
        remap_pending: field(field_id::NVML_FI_DEV_REMAPPED_PENDING).map(|flag| flag != 0),
        remap_failed: field(field_id::NVML_FI_DEV_REMAPPED_FAILURE).map(|flag| flag != 0),
        retire_pending: handle.are_pages_pending_retired().ok(),
        recovery: field(field_id::NVML_FI_DEV_GET_GPU_RECOVERY_ACTION),
        slowed: handle
            .current_throttle_reasons()
            .ok()
            .map(|reasons| reasons.bits()),
        links: links(&handle),
    }
}

fn unreachable(error: LibraryError) -> Unreachable {
    match error {
        LibraryError::GpuLost => Unreachable::Lost,
        LibraryError::ResetRequired => Unreachable::NeedsReset,
        other => Unreachable::Other(other.to_string()),
    }
}

fn memory(handle: &Handle<'_>) -> Option<DeviceMemory> {
    let memory = handle.memory_info().ok()?;
    Some(DeviceMemory {
        total: Bytes(memory.total),
        used: Bytes(memory.used),
        reserved: Bytes(memory.reserved),
    })
}

/// Those that compute and those that draw; one that does both is told in both lists.
fn processes(handle: &Handle<'_>) -> Option<Vec<DeviceProcess>> {
    let mut found: Vec<DeviceProcess> = Vec::new();
    let computing = handle.running_compute_processes().ok()?;
    let drawing = handle.running_graphics_processes().unwrap_or_default();
    for process in computing.into_iter().chain(drawing).take(MOST_PROCESSES) {
        let memory = match process.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(Bytes(bytes)),
            UsedGpuMemory::Unavailable => None,
        };
        if !found.iter().any(|known| known.pid == process.pid) {
            found.push(DeviceProcess {
                pid: process.pid,
                memory,
            });
        }
    }
    Some(found)
}

fn mig(handle: &Handle<'_>) -> Option<Vec<MigInstance>> {
    if handle.mig_mode().ok()?.current == 0 {
        return None;
    }
    let most = handle.mig_device_count().ok()?;
    let parts =
        (0..most.min(MOST_PARTS)).filter_map(|index| handle.mig_device_by_index(index).ok());
    let parts = parts.filter_map(|part| {
        Some(MigInstance {
            uuid: part.uuid().ok()?,
            memory: memory(&part).map(|memory| memory.total),
        })
    });
    Some(parts.collect())
}

fn links(handle: &Handle<'_>) -> Vec<DeviceLink> {
    let mut links = Vec::new();
    for number in 0..MOST_LINKS {
        let link = handle.link_wrapper_for(number);
        // A number that the card has no link for is an error.
        let Ok(active) = link.is_active() else {
            continue;
        };
        let remote = active.then(|| link.remote_pci_info().ok()).flatten();
        links.push(DeviceLink {
            active,
            remote: remote.map(|pci| pci.bus_id),
        });
    }
    links
}

fn field(handle: &Handle<'_>, id: u32) -> Option<u64> {
    let samples = handle.field_values_for(&[FieldId(id)]).ok()?;
    match samples.into_iter().next()?.ok()?.value.ok()? {
        SampleValue::U32(value) => Some(value.into()),
        SampleValue::U64(value) => Some(value),
        SampleValue::I64(value) => u64::try_from(value).ok(),
        SampleValue::F64(_) => None,
    }
}

/// No machine has more.
const MOST_CARDS: u32 = 64;

/// A card is divided into seven parts at most.
const MOST_PARTS: u32 = 16;

/// `NVML_NVLINK_MAX_LINKS`.
const MOST_LINKS: u32 = 18;

const MOST_PROCESSES: usize = 1024;
