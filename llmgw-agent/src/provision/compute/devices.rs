//! Where llama.cpp says that it computes.
//!
//! That all layers were "offloaded to GPU" says nothing: a build with GPU code says it on a machine without one.
//! What counts is where the weights lie (`load_tensors: CUDA0 model buffer size = 1.13 MiB`), and that this is no
//! program that plays a device (`using device Vulkan0 (llvmpipe …)`). Both lines are llama.cpp's own, and have
//! been there since 2024.

use std::collections::BTreeMap;

/// What was heard of devices so far.
#[derive(Debug, Default)]
pub(super) struct Devices {
    /// Names by device: `CUDA0`, `NVIDIA H200`.
    named: BTreeMap<String, String>,
    /// Where weights lie, in the order in which that was said.
    weights: Vec<String>,
}

impl Devices {
    /// Takes a line of the log.
    pub(super) fn hear(&mut self, line: &str) {
        if self.weights.len() >= MOST || self.named.len() >= MOST {
            return;
        }
        if let Some(device) = holder(line) {
            self.weights.push(device.to_owned());
        } else if let Some((device, name)) = used(line) {
            self.named.insert(device.to_owned(), name.to_owned());
        }
    }

    /// Whether weights lie on a GPU.
    ///
    /// # Errors
    /// What was said instead.
    pub(super) fn on_gpu(&self) -> Result<(), String> {
        let mut played = None;
        for device in &self.weights {
            if is_processor(device) {
                continue;
            }
            match self.named.get(device).filter(|name| is_played(name)) {
                None => return Ok(()),
                Some(name) => played = Some(format!("{device} is {name}, which is a program")),
            }
        }
        Err(played.unwrap_or_else(|| match self.weights.first() {
            Some(device) => format!("the weights lie in {device}"),
            None => "it said nothing of where the weights lie".to_owned(),
        }))
    }
}

/// `CUDA0` of `load_tensors:        CUDA0 model buffer size =     1.13 MiB`, unless it is empty.
fn holder(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("load_tensors:")?;
    let (before, size) = rest.split_once("buffer size =")?;
    let empty = size.trim_start().starts_with("0.00 ");
    before.split_whitespace().next().filter(|_| !empty)
}

/// `CUDA0` and what it is, of `using device CUDA0 (NVIDIA H200) (0000:01:00.0) - 142620 MiB free`.
fn used(line: &str) -> Option<(&str, &str)> {
    let (_, rest) = line.split_once("using device ")?;
    let (device, rest) = rest.split_once(' ')?;
    let (name, _) = rest.strip_prefix('(')?.rsplit_once(") - ")?;
    // Newer builds say its place on the bus too.
    let name = name.split_once(") (").map_or(name, |(name, _)| name);
    Some((device, name))
}

/// Buffers of the processor: `CPU`, `CPU_Mapped`, `CPU_REPACK`, `CUDA_Host`, `AMX`, `BLAS`.
fn is_processor(device: &str) -> bool {
    device.starts_with("CPU")
        || device.ends_with("Host")
        || matches!(device, "AMX" | "BLAS" | "KleidiAI")
}

/// Drivers that compute on the processor.
fn is_played(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["llvmpipe", "lavapipe", "swiftshader", "softpipe"]
        .iter()
        .any(|played| name.contains(played))
}

/// Machines have fewer devices; a log may say anything.
const MOST: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn said(log: &str) -> Result<(), String> {
        let mut devices = Devices::default();
        log.lines().for_each(|line| devices.hear(line));
        devices.on_gpu()
    }

    #[test]
    fn a_build_with_gpu_code_on_a_machine_without_one_is_seen_through() {
        let log = include_str!("logs/vulkan_without_gpu.txt");
        assert!(log.contains("offloaded 2/2 layers to GPU"));
        assert_eq!(said(log).unwrap_err(), "the weights lie in CPU_Mapped");
    }

    #[test]
    fn weights_on_a_gpu_are_seen() {
        assert_eq!(said(include_str!("logs/cuda.txt")), Ok(()));
    }

    #[test]
    fn a_driver_that_plays_a_gpu_is_seen_through() {
        let error = said(include_str!("logs/vulkan_played.txt")).unwrap_err();
        assert!(error.starts_with("Vulkan0 is llvmpipe"), "{error}");
    }

    #[test]
    fn the_lines_of_older_builds_are_understood() {
        let log = "llm_load_tensors:        CPU buffer size =   297.00 MiB\n\
                   llm_load_tensors:      CUDA0 buffer size =  7317.71 MiB\n";
        assert_eq!(said(log), Ok(()));
    }

    #[test]
    fn silence_is_no_gpu() {
        let error = said("llama_server: model loaded\n").unwrap_err();
        assert_eq!(error, "it said nothing of where the weights lie");
        let empty = said("load_tensors:  CUDA0 model buffer size =     0.00 MiB").unwrap_err();
        assert_eq!(empty, "it said nothing of where the weights lie");
    }

    #[test]
    fn endless_lists_are_cut() {
        let mut devices = Devices::default();
        for number in 0..10_000 {
            devices.hear(&format!("using device CUDA{number} (x) - 1 MiB free"));
            devices.hear(&format!(
                "load_tensors: CUDA{number} model buffer size = 1.00 MiB"
            ));
        }
        assert_eq!(devices.named.len(), MOST);
        assert!(devices.weights.len() <= MOST);
    }
}
