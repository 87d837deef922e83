/* Lanes: a program's own network, past the kernel's. An executor is a lane, which has an AF_XDP socket on each receive
 * queue. This is the whole program of an interface and not a policy in a root's slot: a deployment of lanes has the
 * interface to itself. Of UDP, the policy places each datagram; of TCP, the SYN, and the connection stays there. */
#include "lane/maps.h"
#include "lane/owner.h"
#include "lane/parse.h"

#define FIN_SYN_RST_ACK 0x17
#define SYN 0x02

HD_INLINE u32 ask(struct xdp_md *ctx, const struct hd_packet *packet)
{
	struct hd_in *in = hd_blank();

	if (!in)
		return HD_PASS;
	hd_describe(ctx, packet, in);
	return hd_decide(in);
}

/* Returns the lane of a segment, or of an error about one. Those without an entry in hd_flows go to their flow's home,
 * which each CPU computes alike. The entry of a SYN decides even if it is old: then it is of the same connection, or of
 * one whose lane still has it in TIME_WAIT and must judge the new one. An answer that is the home is recorded too,
 * because a policy like round robin would answer otherwise when the SYN is repeated. */
HD_INLINE u32 choose_tcp(struct xdp_md *ctx, const struct hd_packet *packet)
{
	u32 home = hd_mix(hd_flow(packet)) % hd_executors();
	struct hd_tuple tuple;

	if (hd_lanes.by_hash)
		return home;
	hd_tuple_of(packet, &tuple);
	u32 *lane = hd_helper_lookup(&hd_flows, &tuple);
	if (lane)
		return *lane;
	if ((packet->flags & FIN_SYN_RST_ACK) != SYN)
		return home;
	u32 choice = ask(ctx, packet);
	if (choice == HD_DROP)
		return HD_DROP;
	/* The kernel's connections, too: their segments must follow the SYN that passed. */
	if (hd_helper_update(&hd_flows, &tuple, &choice, 0)) {
		HD_LANE_COUNT(flows_full);
		return home;
	}
	HD_LANE_COUNT(flows);
	return choice;
}

HD_INLINE int send_to(struct xdp_md *ctx, u32 lane)
{
	u32 queue = ctx->rx_queue_index;

	if (lane == HD_DROP)
		return XDP_DROP;
	if (lane == HD_PASS)
		return XDP_PASS;
	if (queue < HD_MAX_QUEUES)
		return HD_REDIRECT(hd_executor, lane, lane * HD_MAX_QUEUES + queue);
	hd_enforced(lane, 0);
	return XDP_PASS;
}

/* A packet that belongs to the process: of connection `outgoing`, or of a claim. */
HD_INLINE int deliver(struct xdp_md *ctx, const struct hd_packet *packet, u32 what, const u32 *outgoing)
{
	/* The lane that has the connection must judge an error about it. A datagram's socket is in every lane. */
	if (what == HD_ERROR) {
		HD_LANE_COUNT(errors);
		if (outgoing)
			return send_to(ctx, *outgoing);
		return send_to(ctx, packet->protocol == HD_TCP ? choose_tcp(ctx, packet) : 0);
	}
	/* The kernel would put the segment together, find no connection, and reset it. */
	if (what == HD_FIRST_FRAGMENT) {
		HD_LANE_COUNT(fragments);
		return XDP_DROP;
	}
	if (outgoing) {
		HD_LANE_COUNT(outgoing);
		return send_to(ctx, *outgoing);
	}
	if (!hd_is_allowed(packet)) {
		HD_LANE_COUNT(denied);
		return XDP_DROP;
	}
	return send_to(ctx, packet->protocol == HD_TCP ? choose_tcp(ctx, packet) : ask(ctx, packet));
}

HD_SECTION("main") int hd_main(struct xdp_md *ctx)
{
	struct hd_packet packet = {};
	u32 what = hd_examine(ctx, &packet), *outgoing = 0;

	if (what == HD_NOTHING)
		return XDP_PASS;
	u32 uses = hd_uses(&packet);
	if (uses & HD_TCP_OUTGOING) {
		struct hd_tuple tuple;

		hd_tuple_of(&packet, &tuple);
		outgoing = hd_helper_lookup(&hd_outgoing, &tuple);
	}
	if (!outgoing && (!(uses & ~HD_TCP_OUTGOING) || !hd_is_claimed(&packet, ctx->ingress_ifindex)))
		return XDP_PASS;
	return deliver(ctx, &packet, what, outgoing);
}
