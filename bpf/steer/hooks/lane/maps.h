/* What user space tells the lanes' program, and what it counts. */
#ifndef HD_LANE_MAPS_H
#define HD_LANE_MAPS_H

#include "claim.h"
#include "xdp.h"

HD_OWN_MAP(hd_executor, HD_KIND_XSKS, 4, 4, HD_FEW * HD_MAX_QUEUES);

/* Set before the program is loaded. */
const volatile struct {
	u32 by_hash; /* the policy's answer is always the flow's home, so connections need no memory */
	u32 allow;   /* only the sources in hd_allow4 and hd_allow6 reach a claim */
} hd_lanes HD_SECTION(".hd.hd_lanes_constants") = {};

/* What the process has at each local port. So a packet of others costs one read of an array, and no hash. */
#define HD_TCP_CLAIMED 1
#define HD_UDP_CLAIMED 2
#define HD_TCP_OUTGOING 4
HD_OWN_MAP(hd_ports, HD_KIND_ARRAY, 4, 65536, 1);

/* The sockets that prove a claim, one bit for each of its entries in hd_proofs. No bit: it needs no proof. */
#define HD_MAX_PROOFS 64
HD_OWN_MAP(hd_claims, HD_KIND_GROWING, sizeof(struct hd_claim), 8, 16384);
HD_OWN_MAP(hd_proofs, HD_KIND_SOCKETS_BY_KEY, sizeof(struct hd_claim), 8, 16384);

/* The machine's addresses: what a claim for any address means. */
struct hd_address {
	u64 address[2];
	u64 family;
};
HD_OWN_MAP(hd_local, HD_KIND_GROWING, sizeof(struct hd_address), 4, 4096);

/* A connection, from this machine's side. */
struct hd_tuple {
	u64 local[2], remote[2];
	u16 local_port, remote_port;
	u32 family;
};

/* The lanes of connections that the process opened. */
HD_OWN_MAP(hd_outgoing, HD_KIND_GROWING, sizeof(struct hd_tuple), 4, 65536);

/* The lanes of accepted connections, or HD_PASS. The least recently used entry makes room for a new one, and an entry
 * that was looked up outlives those that never were. So a flood of SYNs evicts its own entries first. A connection
 * whose entry is lost goes to its home, whose lane asks the directory in user space for the owner. */
HD_OWN_MAP(hd_flows, HD_KIND_LRU, sizeof(struct hd_tuple), 4, 65536);

struct hd_prefix4 {
	u32 bits, address;
};
struct hd_prefix6 {
	u32 bits, address[4];
};
HD_OWN_MAP(hd_allow4, HD_KIND_PREFIXES, sizeof(struct hd_prefix4), 4, 1024);
HD_OWN_MAP(hd_allow6, HD_KIND_PREFIXES, sizeof(struct hd_prefix6), 4, 1024);

/* Packets, in the order of `struct Counts` in lane/counts.rs. */
struct hd_lane_count {
	u64 outgoing;   /* of the process's own connections */
	u64 errors;     /* ICMP errors about what a lane sent */
	u64 fragments;  /* of TCP, dropped */
	u64 denied;     /* from sources that are not allowed, dropped */
	u64 unproven;   /* of claims without a socket that proves them, passed */
	u64 flows;      /* SYNs whose lane was recorded */
	u64 flows_full; /* SYNs whose lane could not be recorded: they went home */
};
HD_OWN_MAP(hd_lane_counts, HD_KIND_PER_CPU, 4, sizeof(struct hd_lane_count), 1);
typedef struct hd_lane_count hd_lane_counts_value;

#define HD_LANE_COUNT(field)                                                                      \
	({                                                                                        \
		struct hd_lane_count *count_ = hd_at(hd_lane_counts, 0);                          \
		if (count_)                                                                       \
			count_->field++;                                                          \
	})

#endif
