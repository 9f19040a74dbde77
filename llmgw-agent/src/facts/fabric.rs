//! Networks that shards may span: InfiniBand, RDMA over Ethernet, and fast Ethernet (kernel documentation,
//! ABI/stable/sysfs-class-infiniband and ABI/testing/sysfs-class-net).
//!
//! A network is named so that two nodes on it give it the same name: an InfiniBand subnet by its prefix, an
//! Ethernet by its IP subnet. InfiniBand subnets that were left at the standard prefix can't be told from each
//! other and all have the one name `infiniband`; a site with several gives its nodes the label
//! `fabric.infiniband`, which goes before.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, Ipv6Addr},
};

use llmgw_core::cluster::node::{Fabric, NodeFacts, Warning};

use super::{Probe, Root, Scene, warn};

/// Looks at fast networks.
#[derive(Clone, Copy, Debug)]
pub struct FabricProbe;

impl Probe for FabricProbe {
    fn name(&self) -> &'static str {
        "fabric"
    }

    fn look(&self, scene: &Scene, facts: &mut NodeFacts) {
        let root = &scene.root;
        let Some(interfaces) = root.names("sys/class/net", |_| true) else {
            return;
        };
        let mut subnets = None;
        let mut subnets = |root: &Root| -> BTreeMap<String, String> {
            subnets.get_or_insert_with(|| read_subnets(root)).clone()
        };
        let mut fabrics = Vec::new();
        let mut taken = Vec::new();
        for device in root
            .names("sys/class/infiniband", |_| true)
            .unwrap_or_default()
        {
            let ports = format!("sys/class/infiniband/{device}/ports");
            for number in root.names(&ports, |_| true).unwrap_or_default() {
                let port = Port::read(root, &format!("{ports}/{number}"));
                let title = format!("{device}/{number}");
                if let Some(state) = port.waits() {
                    let text = format!(
                        "{title} has a link that its network does not use (state {state}): is a subnet manager \
                         running?"
                    );
                    warn(facts, Warning::FABRIC_NOT_ACTIVE, text);
                }
                let Some(kind) = port.kind else {
                    continue;
                };
                let name = match kind {
                    Fabric::INFINIBAND => port.prefix.as_deref().map(subnet_name),
                    _ => port
                        .interface
                        .as_ref()
                        .and_then(|interface| subnets(root).get(interface).cloned())
                        .map(|subnet| format!("{kind}-{subnet}")),
                };
                fabrics.push(Fabric {
                    kind: kind.to_owned(),
                    name,
                    port: title,
                    gbps: port.gbps,
                    up: port.state.as_deref() == Some("ACTIVE"),
                });
                taken.extend(port.interface);
            }
        }
        for interface in interfaces {
            let dir = format!("sys/class/net/{interface}");
            if taken.contains(&interface) || !is_ethernet(root, &dir) {
                continue;
            }
            // An interface that is down has no speed, or -1.
            let Some(mbps) = root
                .number(format!("{dir}/speed"))
                .filter(|mbps| (FAST..=FASTEST).contains(mbps))
            else {
                continue;
            };
            let subnet = subnets(root).get(&interface).cloned();
            fabrics.push(Fabric {
                kind: Fabric::ETHERNET.to_owned(),
                name: subnet.map(|subnet| format!("{}-{subnet}", Fabric::ETHERNET)),
                up: root.line(format!("{dir}/operstate")).as_deref() == Some("up"),
                port: interface,
                gbps: u32::try_from(mbps / 1000).ok(),
            });
        }
        facts.fabrics = Some(fabrics);
    }
}

/// A port of an RDMA device.
#[derive(Debug, Default)]
struct Port {
    /// `None` for what is neither InfiniBand nor RDMA over Ethernet.
    kind: Option<&'static str>,
    state: Option<String>,
    gbps: Option<u32>,
    /// Of an InfiniBand subnet: the first half of the port's address.
    prefix: Option<String>,
    /// Of RDMA over Ethernet: the interface that carries it.
    interface: Option<String>,
}

impl Port {
    fn read(root: &Root, dir: &str) -> Self {
        let after_colon = |name: &str| {
            let line = root.line(format!("{dir}/{name}"))?;
            Some(line.split_once(": ")?.1.to_owned())
        };
        let state = after_colon("state");
        // `400 Gb/sec (4X NDR)`, and `2.5 Gb/sec (1X SDR)` where there is no link.
        let gbps = root.line(format!("{dir}/rate")).and_then(|rate| {
            let whole = rate.split(['.', ' ']).next()?;
            whole.parse().ok()
        });
        match root.line(format!("{dir}/link_layer")).as_deref() {
            Some("InfiniBand") => Self {
                kind: Some(Fabric::INFINIBAND),
                state,
                gbps,
                prefix: root
                    .line(format!("{dir}/gids/0"))
                    .and_then(|gid| Some(gid.get(..19)?.replace(':', "")))
                    .filter(|prefix| prefix.len() == 16),
                interface: None,
            },
            Some("Ethernet") => {
                let is_roce = root
                    .line(format!("{dir}/gid_attrs/types/0"))
                    .is_some_and(|kind| kind.contains("RoCE"));
                Self {
                    kind: is_roce.then_some(Fabric::ROCE),
                    state,
                    gbps,
                    prefix: None,
                    interface: root
                        .line(format!("{dir}/gid_attrs/ndevs/0"))
                        .filter(|_| is_roce),
                }
            }
            _ => Self::default(),
        }
    }

    /// The state of a port that has a link and is not yet part of its network.
    fn waits(&self) -> Option<&str> {
        let state = self.state.as_deref()?;
        (self.kind == Some(Fabric::INFINIBAND) && matches!(state, "INIT" | "ARMED"))
            .then_some(state)
    }
}

fn subnet_name(prefix: &str) -> String {
    match prefix {
        STANDARD_PREFIX => Fabric::INFINIBAND.to_owned(),
        other => format!("{}-{other}", Fabric::INFINIBAND),
    }
}

/// A card's own Ethernet port, or several that are bonded; not what is inside of the machine, nor a part of a bond.
fn is_ethernet(root: &Root, dir: &str) -> bool {
    root.number(format!("{dir}/type")) == Some(ARPHRD_ETHER)
        && (root.has(format!("{dir}/device")) || root.has(format!("{dir}/bonding")))
        && !root.has(format!("{dir}/master"))
}

/// The IP subnet of each interface, of the fourth version of IP before the sixth.
fn read_subnets(root: &Root) -> BTreeMap<String, String> {
    let mut subnets = BTreeMap::new();
    let text = root.text("proc/net/if_inet6").unwrap_or_default();
    for (interface, subnet) in text.lines().filter_map(subnet_6) {
        subnets.entry(interface).or_insert(subnet);
    }
    let text = root.text("proc/net/route").unwrap_or_default();
    let mut fourth = BTreeMap::new();
    for (interface, subnet) in text.lines().filter_map(subnet_4) {
        fourth.entry(interface).or_insert(subnet);
    }
    subnets.extend(fourth);
    subnets
}

/// A line of `/proc/net/route` that says which subnet an interface is in: without a gateway, with a mask. Numbers
/// are in the byte order of the machine.
fn subnet_4(line: &str) -> Option<(String, String)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let number = |place: usize| u32::from_str_radix(fields.get(place)?, 16).ok();
    let (destination, gateway, mask) = (number(1)?, number(2)?, number(7)?);
    if gateway != 0 || mask == 0 || destination == 0 {
        return None;
    }
    let [a, b, c, d] = destination.to_le_bytes();
    let subnet = format!("{}/{}", Ipv4Addr::new(a, b, c, d), mask.count_ones());
    // Addresses that a machine gives itself tell no network.
    if a == 169 && b == 254 {
        return None;
    }
    Some(((*fields.first()?).to_owned(), subnet))
}

/// A line of `/proc/net/if_inet6` with a global address: address, number, length of the prefix, scope, flags,
/// interface.
fn subnet_6(line: &str) -> Option<(String, String)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let number = |place: usize| u32::from_str_radix(fields.get(place)?, 16).ok();
    let address = u128::from_str_radix(fields.first()?, 16).ok()?;
    let (length, scope) = (number(2)?, number(3)?);
    if scope != 0 || length == 0 || length > 128 {
        return None;
    }
    let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
    let subnet = format!("{}/{length}", Ipv6Addr::from(address & mask));
    Some(((*fields.get(5)?).to_owned(), subnet))
}

/// `fe80::/64`, which subnets have that nobody gave another.
const STANDARD_PREFIX: &str = "fe80000000000000";

const ARPHRD_ETHER: u64 = 1;

/// Megabits a second from which shards over Ethernet make sense: less than that is slower than a disk.
const FAST: u64 = 25_000;

/// Where there is no link, some drivers say 4294967295.
const FASTEST: u64 = 10_000_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_interface_s_subnet_is_the_one_without_a_gateway() {
        let routes = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
                      eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
                      eth0\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n\
                      eth1\t0000FEA9\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n";
        let subnets: Vec<_> = routes.lines().filter_map(subnet_4).collect();
        assert_eq!(subnets, [("eth0".to_owned(), "10.0.0.0/24".to_owned())]);
        let six = "fd000012000000000000000000000005 02 40 00 80     eth0";
        assert_eq!(
            subnet_6(six),
            Some(("eth0".to_owned(), "fd00:12::/64".to_owned()))
        );
        assert_eq!(subnet_6(&six.replace(" 00 80", " 20 80")), None);
    }

    #[test]
    fn subnets_of_the_standard_prefix_share_a_name() {
        assert_eq!(subnet_name("fe80000000000000"), "infiniband");
        assert_eq!(
            subnet_name("fec0000000000007"),
            "infiniband-fec0000000000007"
        );
    }

    proptest! {
        #[test]
        fn any_line_is_read_without_a_panic(line in "\\PC{0,40}|[0-9A-Fa-f \\t]{0,80}") {
            drop(subnet_4(&line));
            drop(subnet_6(&line));
        }
    }
}
