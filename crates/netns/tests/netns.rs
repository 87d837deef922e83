//! Networks are created as described and removed.

use std::net::UdpSocket;

use heddle_netns::{FAR4, FAR6, NEAR4, NEAR6, Namespace, Pair, missing_privilege};

macro_rules! privileged {
    () => {
        if let Some(reason) = missing_privilege() {
            eprintln!("SKIPPED: {reason}");
            return;
        }
    };
}

#[test]
fn datagrams_cross_a_pair_in_both_families() {
    privileged!();
    let net = Pair::new(2).unwrap();
    let families: [(std::net::IpAddr, std::net::IpAddr); 2] =
        [(NEAR4.into(), FAR4.into()), (NEAR6.into(), FAR6.into())];
    for (near, far) in families {
        let server = net.near.run(|| UdpSocket::bind((near, 8000))).unwrap();
        let client = net.far.run(|| UdpSocket::bind((far, 0))).unwrap();
        client.send_to(b"hello", (near, 8000)).unwrap();
        let mut bytes = [0; 16];
        let (length, from) = server.recv_from(&mut bytes).unwrap();
        assert_eq!((&bytes[..length], from), (&b"hello"[..], client.local_addr().unwrap()));
    }
}

#[test]
fn a_namespace_is_removed_with_its_owner_even_in_a_panic() {
    privileged!();
    let namespace = Namespace::new().unwrap();
    let path = namespace.path();
    assert!(path.exists());
    drop(namespace);
    assert!(!path.exists());

    let panicked = std::panic::catch_unwind(|| {
        let namespace = Namespace::new().unwrap();
        std::panic::panic_any(namespace.path());
    });
    let path = panicked.unwrap_err().downcast::<std::path::PathBuf>().unwrap();
    assert!(!path.exists());
}
