//! The files of the trace: nodes, pods, and the orders of the published runs.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::Read as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, anyhow, bail};
use flate2::read::GzDecoder;
use llmgw_core::{
    cluster::{
        catalog::{GpuNeed, Needs, Profile},
        engine::ProvisionState,
    },
    id::NodeId,
    units::{Bytes, Cores, Tokens},
};
use llmgw_sched::fleet::{Fleet, FleetGpu, FleetNode};

use crate::random::Draws;

/// A directory with a trace.
#[derive(Debug)]
pub(crate) struct Trace {
    data: PathBuf,
    pub(crate) fleet: Fleet,
}

/// A pod of a workload.
#[derive(Clone, Debug)]
pub(crate) struct Pod {
    /// As a profile of the planner; a thousandth of a GPU is a byte.
    pub(crate) profile: Profile,
    /// Thousandths of GPUs in all.
    pub(crate) demand: u64,
    /// Thousandths of each GPU.
    pub(crate) each: u64,
    name: String,
    class: String,
}

/// How the pods of one run arrive, and how ties between nodes are broken.
#[derive(Debug)]
pub(crate) struct Order {
    /// Row numbers of the pod list.
    pub(crate) pods: Vec<usize>,
    /// The rank of each node.
    pub(crate) ranks: Vec<u64>,
    /// Whether it is that of a published run.
    pub(crate) given: bool,
}

impl Trace {
    pub(crate) fn open(data: &Path) -> anyhow::Result<Self> {
        let path = data.join("openb_node_list_gpu_node.csv");
        let installed = ProvisionState::Installed {
            version: String::new(),
            variant: String::new(),
        };
        let mut nodes = Vec::new();
        for (row, line) in Table::read(&path)?.rows().enumerate() {
            let number = u128::try_from(row)? + 1;
            let gpus = (0..line.number("gpu")?).map(|index| {
                Ok(FleetGpu {
                    index: u32::try_from(index)?,
                    class: Some(line.text("model").to_owned()),
                    memory: Some(Bytes(WHOLE)),
                    in_use: false,
                    fault: None,
                })
            });
            nodes.push(FleetNode {
                cpu: Some(Cores(line.number("cpu_milli")?)),
                memory_allocatable: Some(Bytes::mib(line.number("memory_mib")?)),
                gpus: Some(gpus.collect::<anyhow::Result<_>>()?),
                engines: BTreeMap::from([("llamacpp".parse()?, installed.clone())]),
                ..FleetNode::named(
                    NodeId::from_uuid(uuid::Uuid::from_u128(number)),
                    line.text("sn").to_owned(),
                )
            });
        }
        Ok(Self {
            data: data.to_owned(),
            fleet: Fleet {
                nodes,
                ..Fleet::default()
            },
        })
    }

    pub(crate) fn nodes(&self) -> usize {
        self.fleet.nodes.len()
    }

    /// The workloads that there are, by name.
    pub(crate) fn workloads(&self) -> anyhow::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.data)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let workload = name
                .strip_prefix(PODS)
                .and_then(|name| name.strip_suffix(".csv"));
            names.extend(workload.map(ToOwned::to_owned));
        }
        names.sort();
        if names.is_empty() {
            bail!("{}: there is no {PODS}*.csv", self.data.display());
        }
        Ok(names)
    }

    pub(crate) fn pods(&self, workload: &str) -> anyhow::Result<Vec<Pod>> {
        let path = self.data.join(format!("{PODS}{workload}.csv"));
        Table::read(&path)?
            .rows()
            .map(|line| Pod::of(&line))
            .collect()
    }

    /// The order of a published run, or one of our own where there is none.
    pub(crate) fn order(&self, workload: &str, seed: u64, pods: &[Pod]) -> anyhow::Result<Order> {
        let path = self
            .data
            .join("orders")
            .join(format!("{workload}_{seed}.txt.gz"));
        if path.exists() {
            let order = read_order(&path).with_context(|| path.display().to_string())?;
            if order.ranks.len() != self.nodes() || order.pods.iter().any(|row| *row >= pods.len())
            {
                bail!("{}: it is of another trace", path.display());
            }
            return Ok(order);
        }
        let draws = Draws::seeded(seed);
        let capacity: usize = self
            .fleet
            .nodes
            .iter()
            .map(|node| node.gpus.iter().flatten().count())
            .sum();
        let target = u64::try_from(capacity)? * WHOLE * 13 / 10;
        let pods = arrivals(pods, target, &draws);
        let mut ranks: Vec<u64> = (0..).take(self.nodes()).collect();
        draws.shuffle(&mut ranks);
        Ok(Order {
            pods,
            ranks,
            given: false,
        })
    }
}

/// All pods in any order, pruned or added to until they ask for the target.
fn arrivals(pods: &[Pod], target: u64, draws: &Draws) -> Vec<usize> {
    let mut by_name: Vec<usize> = (0..pods.len()).collect();
    by_name.sort_by_key(|row| pods.get(*row).map(|pod| &pod.name));
    let demand = |row: &usize| pods.get(*row).map_or(0, |pod| pod.demand);
    let mut order = by_name.clone();
    draws.shuffle(&mut order);
    let mut sum: u64 = order.iter().map(demand).sum();
    while sum > target {
        sum -= demand(&order.remove(draws.below(order.len())));
    }
    let pruned = order.len() < pods.len();
    while !pruned && sum < target {
        let Some(row) = by_name.get(draws.below(by_name.len())).copied() else {
            break;
        };
        if sum + pods.get(row).map_or(0, |pod| pod.each) > target {
            break;
        }
        sum += demand(&row);
        order.push(row);
    }
    order
}

fn read_order(path: &Path) -> anyhow::Result<Order> {
    let mut text = String::new();
    GzDecoder::new(File::open(path)?)
        .take(MOST_BYTES)
        .read_to_string(&mut text)?;
    let line = |name: &str| -> anyhow::Result<Vec<u64>> {
        let found = text.lines().find_map(|line| line.strip_prefix(name));
        let numbers = found.ok_or_else(|| anyhow!("there is no line {name:?}"))?;
        numbers
            .split_whitespace()
            .map(|number| Ok(number.parse()?))
            .collect()
    };
    let pods = line("pods ")?;
    Ok(Order {
        pods: pods
            .into_iter()
            .map(usize::try_from)
            .collect::<Result<_, _>>()?,
        ranks: line("rank ")?,
        given: true,
    })
}

impl Pod {
    fn of(line: &Line<'_>) -> anyhow::Result<Self> {
        let count = line.number("num_gpu")?;
        let each = match line.optional("gpu_milli") {
            _ if count == 0 => 0,
            Some(text) => text.parse::<u64>()?.min(WHOLE),
            None => WHOLE,
        };
        let class = if count == 0 {
            ""
        } else {
            line.optional("gpu_spec").unwrap_or_default()
        };
        let memory = line.optional("memory_mib").map_or(Ok(0), str::parse)?;
        let gpus = (count > 0).then(|| -> anyhow::Result<GpuNeed> {
            Ok(GpuNeed {
                count: u32::try_from(count)?,
                classes: class
                    .split('|')
                    .filter(|name| !name.is_empty())
                    .map(ToOwned::to_owned)
                    .collect(),
                memory: (each < WHOLE).then_some(Bytes(each)),
            })
        });
        let profile = Profile {
            name: "pod".parse()?,
            engine: "llamacpp".parse()?,
            memory: Bytes::mib(memory),
            context: Tokens(0),
            parallel: 1,
            needs: Needs {
                gpus: gpus.transpose()?,
                cpu: Some(Cores(line.number("cpu_milli")?)),
                ..Needs::default()
            },
        };
        Ok(Self {
            profile,
            demand: count * each,
            each,
            name: line.text("name").to_owned(),
            class: class.to_owned(),
        })
    }

    /// What makes two pods of one type, in the order in which equally common types are taken, last first.
    pub(crate) fn kind(&self) -> (u64, u64, u64, &str) {
        let cpu = self.profile.needs.cpu.unwrap_or_default().0;
        let count = self.demand.checked_div(self.each).unwrap_or(0);
        (cpu, self.each, count, &self.class)
    }
}

/// A file of values parted by commas, with a heading; nothing in these files is quoted.
#[derive(Debug)]
struct Table {
    path: PathBuf,
    text: String,
    columns: BTreeMap<String, usize>,
}

#[derive(Debug)]
struct Line<'t> {
    table: &'t Table,
    number: usize,
    values: Vec<&'t str>,
}

impl Table {
    fn read(path: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let heading = text.lines().next().unwrap_or_default().trim();
        let names = heading.split(',').map(ToOwned::to_owned).enumerate();
        Ok(Self {
            path: path.to_owned(),
            columns: names.map(|(at, name)| (name, at)).collect(),
            text,
        })
    }

    fn rows(&self) -> impl Iterator<Item = Line<'_>> {
        let lines = self.text.lines().zip(1..).skip(1);
        lines
            .filter(|(line, _)| !line.trim().is_empty())
            .map(|(line, number)| Line {
                table: self,
                number,
                values: line.trim_end().split(',').collect(),
            })
    }
}

impl Line<'_> {
    fn optional(&self, column: &str) -> Option<&str> {
        let at = self.table.columns.get(column)?;
        self.values.get(*at).copied()
    }

    fn text(&self, column: &str) -> &str {
        self.optional(column).unwrap_or_default()
    }

    fn number(&self, column: &str) -> anyhow::Result<u64> {
        let text = self.text(column);
        text.parse().with_context(|| {
            format!(
                "{}:{}: {column} is {text:?}",
                self.table.path.display(),
                self.number
            )
        })
    }
}

const PODS: &str = "openb_pod_list_";
/// A GPU of the trace has a thousand thousandths.
pub(crate) const WHOLE: u64 = 1_000;
/// An order file unpacked is some 100 KiB.
const MOST_BYTES: u64 = 16 << 20;
