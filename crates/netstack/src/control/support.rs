//! Which interfaces are supported: Ethernet devices whose frames are their own.

use super::ControlError;
use super::netlink::LinkRecord;

const ETHERNET: u16 = 1;
const LOOPBACK: u16 = 772;

/// Finds the interface of this name and checks that it is supported.
pub(super) fn find(interface: &str, links: &[LinkRecord]) -> Result<LinkRecord, ControlError> {
    let Some(link) = links.iter().find(|link| link.name == interface) else {
        let existing = names(links.iter());
        return Err(ControlError::NoInterface { interface: interface.to_owned(), existing });
    };
    match obstacle(link, links) {
        None => Ok(link.clone()),
        Some((kind, advice)) => {
            Err(ControlError::Unsupported { interface: interface.to_owned(), kind, advice })
        }
    }
}

/// Returns what the interface is and what to use instead, if it is not supported.
fn obstacle(link: &LinkRecord, links: &[LinkRecord]) -> Option<(String, String)> {
    if link.hardware == LOOPBACK {
        return Some((
            "the loopback interface".into(),
            "the kernel serves it without any device".into(),
        ));
    }
    if let Some(master) = link.master {
        let master = links.iter().find(|other| other.index == master);
        let (kind, name) = master.map_or(("device", "?"), |master| (&master.kind, &master.name));
        let advice = format!("take it out by `ip link set {} nomaster`", link.name);
        return Some((format!("a port of the {kind} {name}, which owns its packets"), advice));
    }
    let (kind, advice) = match link.kind.as_str() {
        "vlan" => ("a VLAN", below(link, links)),
        "macvlan" | "macvtap" => ("a macvlan", below(link, links)),
        "ipvlan" | "ipvtap" => ("an ipvlan", below(link, links)),
        "bond" => ("a bond", ports(link, links)),
        "team" => ("a team", ports(link, links)),
        "bridge" => ("a bridge", ports(link, links)),
        "vrf" => ("a VRF", ports(link, links)),
        "tun" if link.hardware != ETHERNET => ("a tun device, without Ethernet", ethernet(links)),
        "vxlan" | "geneve" | "gretap" | "ip6gretap" => ("a tunnel", below(link, links)),
        _ if link.hardware != ETHERNET => ("not an Ethernet device", ethernet(links)),
        _ => return None,
    };
    Some((kind.into(), advice))
}

fn below(link: &LinkRecord, links: &[LinkRecord]) -> String {
    let lower = link.lower.and_then(|index| links.iter().find(|other| other.index == index));
    match lower {
        Some(lower) => format!("use its lower device {}", lower.name),
        None => "its lower device is in another network namespace, or it has none".into(),
    }
}

fn ports(link: &LinkRecord, links: &[LinkRecord]) -> String {
    let ports = names(links.iter().filter(|other| other.master == Some(link.index)));
    match ports.is_empty() {
        true => "it has no lower device".into(),
        false => format!("its lower devices are {ports}: take one out of it and use that"),
    }
}

fn ethernet(links: &[LinkRecord]) -> String {
    let usable = links.iter().filter(|other| obstacle_free(other));
    match names(usable) {
        none if none.is_empty() => "this network namespace has no Ethernet device".into(),
        names => format!("the Ethernet devices here are {names}"),
    }
}

fn obstacle_free(link: &LinkRecord) -> bool {
    link.hardware == ETHERNET && link.master.is_none() && obstacle(link, &[]).is_none()
}

fn names<'a>(links: impl Iterator<Item = &'a LinkRecord>) -> String {
    links.map(|link| link.name.as_str()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(index: u32, name: &str, kind: &str) -> LinkRecord {
        let (name, kind) = (name.to_owned(), kind.to_owned());
        LinkRecord { index, name, kind, hardware: ETHERNET, ..LinkRecord::default() }
    }

    fn refusal(interface: &str, links: &[LinkRecord]) -> String {
        find(interface, links).unwrap_err().to_string()
    }

    #[test]
    fn cards_veth_and_tap_are_supported() {
        let links = [link(1, "eth0", ""), link(2, "veth0", "veth"), link(3, "tap0", "tun")];
        for name in ["eth0", "veth0", "tap0"] {
            assert_eq!(find(name, &links).unwrap().name, name);
        }
    }

    #[test]
    fn what_lies_over_another_device_names_it() {
        let vlan = LinkRecord { lower: Some(1), ..link(2, "eth0.5", "vlan") };
        let message = refusal("eth0.5", &[link(1, "eth0", ""), vlan]);
        assert_eq!(message, "eth0.5 is a VLAN, which is not supported; use its lower device eth0");
    }

    #[test]
    fn what_has_ports_names_them_and_ports_name_it() {
        let port = LinkRecord { master: Some(9), ..link(1, "eth0", "") };
        let links = [port, link(9, "br0", "bridge")];
        assert!(
            refusal("br0", &links).contains("its lower devices are eth0"),
            "{}",
            refusal("br0", &links)
        );
        assert!(
            refusal("eth0", &links).contains("a port of the bridge br0"),
            "{}",
            refusal("eth0", &links)
        );
    }

    #[test]
    fn devices_without_ethernet_name_those_with_it() {
        let tun = LinkRecord { hardware: 0xfffe, ..link(2, "tun0", "tun") };
        let lo = LinkRecord { hardware: LOOPBACK, ..link(3, "lo", "") };
        let links = [link(1, "eth0", ""), tun, lo];
        assert!(refusal("tun0", &links).contains("the Ethernet devices here are eth0"));
        assert!(refusal("lo", &links).contains("loopback"));
        assert!(refusal("eth9", &links).contains("has eth0, tun0, lo"));
    }
}
