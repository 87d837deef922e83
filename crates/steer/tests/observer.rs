//! What policies see of the kernel's sockets. Needs root, BPF and clang; otherwise skips, and says so.

#[path = "common/engine.rs"]
mod bench;

use bench::group;
use std::os::fd::AsFd as _;

use heddle_steer::hook::observe::{self, Observed};
use heddle_steer::hook::reuseport;
use heddle_steer::policy::{Maps, compile, read};

/// Records what it sees of both sockets, and takes the first.
const SOURCE: &str = "#include <heddle.h>
HD_TABLE(seen, u64, 4);
static u32 schedule(struct hd_in *in)
{
	for (u32 k = 0; k < 2; k++) {
		u64 *length = hd_at(seen, k), *idle = hd_at(seen, 2 + k);
		if (length && idle) {
			*length = hd_qlen(k);
			*idle = hd_idle(k);
		}
	}
	return 0;
}";
/// The queue length of an absent executor: `bpf/steer/hooks/observe.c`.
const ABSENT: u64 = 0x7fff_ffff;

#[test]
fn a_policy_sees_nothing_of_a_closed_socket() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: attaching takes root");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("seen.c");
    std::fs::write(&file, SOURCE).expect("written");
    let object = read(&compile(&file).expect("it compiles")).expect("readable");
    let mut sockets = group(2, "127.0.0.1:0");
    let mut maps = Maps::new();
    let root = reuseport::load_root(&mut maps).expect("a root");
    let program = reuseport::load_policy("seen", &object, &mut maps).expect("loaded");
    for (index, socket) in (0..).zip(&sockets) {
        reuseport::put_executor(&maps, index, socket.as_fd()).expect("an executor");
        let place = [(index, socket.as_fd(), Observed::Datagrams)];
        observe::put_sockets(&mut maps, &place).expect("observed");
    }
    reuseport::put_policy(&maps, &program).expect("in place");
    root.attach_reuseport(sockets[0].as_fd()).expect("attached");
    let seen = |sockets: &[_]| {
        bench::ask(sockets, 1);
        let at = |index: u32| maps["seen"].lookup(&index.to_ne_bytes()).expect("read");
        let number =
            |index| u64::from_ne_bytes(at(index).expect("there").try_into().expect("eight"));
        [0, 1, 2, 3].map(number)
    };
    assert_eq!(seen(&sockets), [0, 0, 0, 0], "nothing waits, and no thread");
    assert_eq!(seen(&sockets), [1, 0, 0, 0]);
    drop(sockets.pop());
    // Its memory may hold anything now, and the policy's map was not updated.
    let others = group(64, "127.0.0.1:0");
    bench::ask(&others, 64);
    assert_eq!(seen(&sockets), [2, ABSENT, 0, 0]);
}
