//! Which cards an engine sees.

use std::ffi::OsString;

use llmgw_core::cluster::node::Gpu;

/// The variables that show an engine these cards of the machine alone; with none named it sees what there is.
///
/// Cards are named, not numbered: CUDA counts by speed, or by the bus if it is asked to, and leaves out cards that
/// are lost; a name stays. A card without a name is shown by its number among its maker's.
#[must_use]
pub fn visible(gpus: &[Gpu], indices: &[u32]) -> Vec<(OsString, OsString)> {
    if indices.is_empty() {
        return Vec::new();
    }
    let chosen: Vec<&Gpu> = indices
        .iter()
        .filter_map(|index| gpus.iter().find(|gpu| gpu.index == *index))
        .collect();
    if chosen.len() < indices.len() {
        // What the machine has is not known yet, or has changed: the numbers are those of the bus.
        return nvidia(numbers(indices));
    }
    let of = |vendor: &str| -> Vec<&Gpu> {
        chosen
            .iter()
            .copied()
            .filter(|gpu| gpu.vendor == vendor)
            .collect()
    };
    let mut variables = Vec::new();
    let (cuda, rocm) = (of("nvidia"), of("amd"));
    if !cuda.is_empty() {
        variables.extend(nvidia(names(&cuda, gpus)));
    }
    if !rocm.is_empty() {
        variables.push(("ROCR_VISIBLE_DEVICES".into(), names(&rocm, gpus).into()));
    }
    if !cuda.is_empty() && rocm.is_empty() && gpus.iter().any(|gpu| gpu.vendor == "amd") {
        // Of the other maker's cards it sees none.
        variables.push(("ROCR_VISIBLE_DEVICES".into(), "-1".into()));
    }
    if cuda.is_empty() && !rocm.is_empty() && gpus.iter().any(|gpu| gpu.vendor == "nvidia") {
        variables.push(("CUDA_VISIBLE_DEVICES".into(), "-1".into()));
    }
    variables
}

/// The names of cards of one maker, or their numbers among all of that maker's when one has no name.
fn names(chosen: &[&Gpu], all: &[Gpu]) -> String {
    let named: Option<Vec<&str>> = chosen.iter().map(|gpu| gpu.uuid.as_deref()).collect();
    if let Some(named) = named {
        return named.join(",");
    }
    let place = |gpu: &Gpu| {
        let before = all
            .iter()
            .filter(|other| other.vendor == gpu.vendor && other.index < gpu.index);
        u32::try_from(before.count()).unwrap_or(u32::MAX)
    };
    let places: Vec<u32> = chosen.iter().map(|gpu| place(gpu)).collect();
    numbers(&places)
}

fn numbers(numbers: &[u32]) -> String {
    let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    numbers.join(",")
}

fn nvidia(devices: String) -> Vec<(OsString, OsString)> {
    vec![
        ("CUDA_VISIBLE_DEVICES".into(), devices.into()),
        // CUDA's own order is by speed; the numbers of an agent are those of the bus.
        ("CUDA_DEVICE_ORDER".into(), "PCI_BUS_ID".into()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(index: u32, vendor: &str, uuid: Option<&str>) -> Gpu {
        Gpu {
            index,
            vendor: vendor.to_owned(),
            uuid: uuid.map(str::to_owned),
            ..Gpu::default()
        }
    }

    fn shown(gpus: &[Gpu], indices: &[u32]) -> Vec<(String, String)> {
        visible(gpus, indices)
            .into_iter()
            .map(|(name, value)| (name.into_string().unwrap(), value.into_string().unwrap()))
            .collect()
    }

    #[test]
    fn an_engine_sees_its_cards_by_name() {
        let gpus = [
            gpu(0, "nvidia", Some("GPU-a")),
            gpu(1, "nvidia", Some("GPU-b")),
            gpu(2, "nvidia", Some("GPU-c")),
        ];
        assert_eq!(
            shown(&gpus, &[2, 0])[0],
            ("CUDA_VISIBLE_DEVICES".to_owned(), "GPU-c,GPU-a".to_owned())
        );
        assert_eq!(shown(&gpus, &[]), []);
    }

    #[test]
    fn a_card_without_a_name_is_counted_among_its_maker_s() {
        let gpus = [
            gpu(0, "nvidia", Some("GPU-a")),
            gpu(1, "amd", None),
            gpu(2, "amd", None),
        ];
        assert_eq!(
            shown(&gpus, &[2]),
            [
                ("ROCR_VISIBLE_DEVICES".to_owned(), "1".to_owned()),
                ("CUDA_VISIBLE_DEVICES".to_owned(), "-1".to_owned()),
            ]
        );
    }

    #[test]
    fn an_engine_on_one_maker_s_cards_sees_none_of_the_other_s() {
        let gpus = [
            gpu(0, "nvidia", Some("GPU-a")),
            gpu(1, "amd", Some("GPU-b")),
        ];
        let hidden = |name: &str| (name.to_owned(), "-1".to_owned());
        assert!(shown(&gpus, &[0]).contains(&hidden("ROCR_VISIBLE_DEVICES")));
        assert!(shown(&gpus, &[1]).contains(&hidden("CUDA_VISIBLE_DEVICES")));
    }

    #[test]
    fn cards_that_are_not_known_are_numbered_by_the_bus() {
        assert_eq!(
            shown(&[], &[1, 3]),
            [
                ("CUDA_VISIBLE_DEVICES".to_owned(), "1,3".to_owned()),
                ("CUDA_DEVICE_ORDER".to_owned(), "PCI_BUS_ID".to_owned()),
            ]
        );
    }
}
