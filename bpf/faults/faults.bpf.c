/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* Losses and duplicates at an interface, for tests: two programs at tc, one for each direction.
 *
 * What happens to a packet depends on its number and a seed only, so the same traffic meets the same faults. Only TCP
 * and UDP count: a lost ARP or neighbour discovery would make every test wait a second. */
#include "../sched/include/bpf.h"

struct __sk_buff {
	__u32 len;
	__u32 pkt_type;
	__u32 mark;
	__u32 queue_mapping;
	__u32 protocol;
	__u32 vlan_present;
	__u32 vlan_tci;
	__u32 vlan_proto;
	__u32 priority;
	__u32 ingress_ifindex;
	__u32 ifindex;
};

static long (*const bpf_clone_redirect)(struct __sk_buff *skb, __u32 interface, __u64 flags) = HELPER(13);
static long (*const bpf_skb_load_bytes)(const void *skb, __u32 offset, void *to, __u32 len) = HELPER(26);

#define TC_NEXT -1
#define TC_DROP 2
#define INGRESS 1

#define BE16(x) __builtin_bswap16(x)
#define IPV4 BE16(0x0800)
#define IPV6 BE16(0x86dd)
#define TCP 6
#define UDP 17

/* A copy meets the program once more, and passes by its mark. */
#define COPY 0x68656464

/* Chances are of 2^32. User space writes the first three words, and reads the others. */
struct direction {
	__u64 seed;
	__u64 loss;
	__u64 duplicates;
	__u64 packets;
	__u64 lost;
	__u64 duplicated;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct direction);
} directions SEC(".maps");

/* The SplitMix64 generator's output for this state: Steele, Lea and Flood, OOPSLA 2014. */
static __always_inline __u64 mix(__u64 x)
{
	x += 0x9e3779b97f4a7c15ULL;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

static __always_inline bool counts(const struct __sk_buff *skb)
{
	__u32 offset = skb->protocol == IPV4 ? 14 + 9 : 14 + 6;
	__u8 next = 0;

	if (skb->protocol != IPV4 && skb->protocol != IPV6)
		return false;
	return bpf_skb_load_bytes(skb, offset, &next, 1) == 0 && (next == TCP || next == UDP);
}

static __always_inline int pass(struct __sk_buff *skb, __u32 index, __u64 flags)
{
	struct direction *direction = bpf_map_lookup_elem(&directions, &index);
	__u64 number, chance;

	if (!direction || skb->mark == COPY || !counts(skb))
		return TC_NEXT;
	number = __sync_fetch_and_add(&direction->packets, 1);
	chance = mix(direction->seed + number * 0x9e3779b97f4a7c15ULL);
	if ((__u32)chance < direction->loss) {
		__sync_fetch_and_add(&direction->lost, 1);
		return TC_DROP;
	}
	if (chance >> 32 < direction->duplicates) {
		__u32 mark = skb->mark;

		skb->mark = COPY;
		if (bpf_clone_redirect(skb, skb->ifindex, flags) == 0)
			__sync_fetch_and_add(&direction->duplicated, 1);
		skb->mark = mark;
	}
	return TC_NEXT;
}

SEC("tc")
int incoming(struct __sk_buff *skb)
{
	return pass(skb, 0, INGRESS);
}

SEC("tc")
int outgoing(struct __sk_buff *skb)
{
	return pass(skb, 1, 0);
}
