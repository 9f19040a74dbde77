//! llama.cpp: one process, layers on GPUs or on the host.

mod cache;
mod compute;
mod placement;

use llmgw_core::units::Bytes;

use self::{
    cache::Cells,
    compute::Part,
    placement::{Place, Placement},
};
use super::{
    estimate::{Bound, Device, Estimate, Footprint, times},
    request::{Offload, Request},
    shape::{Kind, Layer, Shape},
};

pub(super) fn estimate(shape: &Shape, request: &Request) -> Estimate {
    let wanted = match request.offload {
        Offload::All => usize::MAX,
        Offload::Layers(layers) => layers,
    };
    let placement = Placement::new(shape.layers.len(), wanted, &request.gpus);
    let cells = Cells::of(shape, request);
    let limits = request.gpus.iter().copied();
    let gpus = limits.enumerate().map(|(index, limit)| {
        let place = Place::Gpu(index);
        let footprint = footprint(shape, request, &placement, &cells, place);
        Footprint {
            device: Device::Gpu(index),
            limit,
            overhead: gpu_overhead(&footprint),
            ..footprint
        }
    });
    let mut devices: Vec<Footprint> = gpus.collect();
    let host = footprint(shape, request, &placement, &cells, Place::Host);
    devices.push(Footprint {
        device: Device::Host,
        limit: request.host,
        overhead: Bound::new(HOST_LEAST, HOST_MOST),
        ..host
    });
    Estimate { devices }
}

/// All but the overhead, the device and its limit.
fn footprint(
    shape: &Shape,
    request: &Request,
    placement: &Placement,
    cells: &Cells,
    place: Place,
) -> Footprint {
    let mine = || {
        let layers = shape.layers.iter().enumerate();
        layers.filter_map(|(index, layer)| (placement.layer(index) == place).then_some(layer))
    };
    let has_output = placement.output() == place;
    // The layers that draft are computed with the output.
    let draft: &[Layer] = if has_output { &shape.draft } else { &[] };
    let drafting: &[Layer] = if request.draft > 0 { draft } else { &[] };
    let mut weights: Bytes = mine().chain(draft).map(|layer| layer.weights).sum();
    if has_output {
        weights = weights + shape.output;
        // Without weights of its own the output takes a copy of the input's, unless both are on the host.
        if place != Place::Host {
            weights = weights + shape.tied;
        }
    }
    if place == Place::Host {
        weights = weights + shape.input;
    }
    let cache = mine()
        .chain(drafting)
        .filter_map(|layer| layer.cache.as_ref())
        .map(|kept| cells.bytes(kept, request))
        .sum();
    let state: Bytes = mine().map(|layer| layer.state).sum();
    // Each sequence has its own, and one more for every drafted token, to go back to.
    let rows =
        u64::from(request.parallel).saturating_mul(u64::from(request.draft).saturating_add(1));
    let part = Part {
        layers: mine().count(),
        has_output,
        drafts: !drafting.is_empty(),
        host: place == Place::Host,
        alone: request.gpus.is_empty(),
        copies: placement.copies(),
        borrowed: borrowed(shape, placement, place),
    };
    let compute = match shape.kind {
        Kind::Writer => compute::of_writer(shape, request, cells, &part),
        Kind::Reader => compute::of_reader(shape, request, &part),
    };
    Footprint {
        device: Device::Host,
        limit: None,
        layers: part.layers,
        weights,
        cache,
        state: times(state, rows),
        compute,
        overhead: Bound::default(),
    }
}

/// Weights of a host layer that a GPU takes over to compute a large batch (`op_offload`): those of the largest.
fn borrowed(shape: &Shape, placement: &Placement, place: Place) -> Bytes {
    if place == Place::Host {
        return Bytes::ZERO;
    }
    let on_host = shape
        .layers
        .iter()
        .enumerate()
        .filter_map(|(index, layer)| {
            (placement.layer(index) == Place::Host).then_some(layer.weights)
        });
    on_host.max().unwrap_or(Bytes::ZERO)
}

/// What the driver and the libraries take on a GPU. Readings: 0.4 to 0.9 GiB usually, more with larger models
/// (pools for unpacked weights).
fn gpu_overhead(footprint: &Footprint) -> Bound {
    if footprint.layers == 0 && footprint.weights == Bytes::ZERO {
        return Bound::new(Bytes::ZERO, GPU_MOST);
    }
    let pools = Bytes(footprint.weights.0 / POOL_PART);
    Bound::new(GPU_LEAST, GPU_MOST + pools)
}

const GPU_LEAST: Bytes = Bytes::mib(256);
const GPU_MOST: Bytes = Bytes::mib(896);
/// One part in so many of the weights.
const POOL_PART: u64 = 20;
/// The process itself, its vocabulary and its threads.
const HOST_LEAST: Bytes = Bytes::mib(32);
const HOST_MOST: Bytes = Bytes::mib(400);
