//! What `heddle doctor` and the runtime say about an interface that lanes are wanted on.

#[path = "common/net.rs"]
mod common;

use common::{near, network};
use heddle_netns::{NEAR, Pair};
use heddle_steer::hook::xdp::Root;
use heddle_steer::lane::{Deployment, Options};
use heddle_steer::probe::{Lanes, Probe, State, lanes};

fn asked(net: &Pair, name: &str) -> Lanes {
    net.near.run(|| lanes(name, 2))
}

fn row<'a>(lanes: &'a Lanes, id: &str) -> &'a Probe {
    lanes.rows.iter().find(|row| row.id == id).unwrap_or_else(|| panic!("no {id}: {lanes:?}"))
}

#[test]
fn a_veth_can_have_lanes() {
    let Some(net) = network(3) else { return };
    let found = asked(&net, NEAR);
    assert_eq!(found.refusal(), None);
    assert!(row(&found, "kind").found.contains("veth"), "{found:?}");
    assert!(row(&found, "mode").found.contains("native"), "{found:?}");
    assert!(row(&found, "queues").found.starts_with("3 "), "{found:?}");
}

#[test]
fn a_program_that_is_there_is_named() {
    let Some(net) = network(1) else { return };
    let refused = |name: &str, advice: &str| {
        let found = asked(&net, NEAR);
        assert_eq!((found.state(), row(&found, "program").state), (State::No, State::No));
        let refusal = found.refusal().unwrap();
        assert!(refusal.contains(name) && refusal.contains(advice), "{refusal}");
    };
    let deployment = Deployment::attach(near(&net), &Options::new(1)).unwrap();
    refused("hd_lanes", "another program has its lanes there");
    drop(deployment);
    common::until("an interface without a program", || asked(&net, NEAR).refusal().is_none());
    let root = Root::attach(&near(&net), None).unwrap();
    refused("hd_root", "heddle steer ls");
    drop(root);
}

#[test]
fn an_interface_that_cannot_have_lanes_is_refused_with_the_reason() {
    let Some(net) = network(1) else { return };
    net.near.ip(&format!("link add link {NEAR} name upper type macvlan")).unwrap();
    for (name, why) in [("upper", "a macvlan"), ("lo", "no Ethernet"), ("missing", "ip link")] {
        let refusal = asked(&net, name).refusal().unwrap();
        assert!(refusal.contains(why), "{refusal}");
    }
}

/// The other half of the test below, in a process that sees the namespace's /sys.
#[test]
#[ignore = "a part of another test"]
fn prints_the_refusal_of_a_macvlan() {
    println!("refusal: {}", lanes("upper", 1).refusal().unwrap());
}

#[test]
fn the_interface_below_is_named() {
    let Some(net) = network(1) else { return };
    net.near.ip(&format!("link add link {NEAR} name upper type macvlan")).unwrap();
    let own = std::env::current_exe().unwrap();
    let mut command = net.near.command(own.to_str().unwrap());
    command.args(["--exact", "--ignored", "--nocapture", "prints_the_refusal_of_a_macvlan"]);
    let output = String::from_utf8(command.output().unwrap().stdout).unwrap();
    assert!(output.contains("upper is a macvlan"), "{output}");
    assert!(output.contains(&format!("name {NEAR},")), "{output}");
}
