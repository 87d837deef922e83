/* What the XDP hooks share: from a packet to an input. */
#ifndef HD_XDP_H
#define HD_XDP_H

#include "packet.h"

static long (*const redirect_map)(void *map, u64 key, u64 flags) = (void *)51;
static long (*const load_bytes)(struct xdp_md *ctx, u32 offset, void *to, u32 size) = (void *)189;

/* XDP has no flow hash, so it is computed here. The seed is random, so that no outsider can send flows that all
 * meet at one executor. */
const volatile struct {
	u64 value;
} hd_seed HD_SECTION(".hd.hd_seed_constants") = {};

HD_INLINE u32 hd_flow(const struct hd_packet *packet)
{
	u64 ports = (u64)packet->source_port << 32 | (u32)packet->destination_port << 16 | packet->protocol;
	u64 hash = hd_seed.value ^ ports;

	hash = (hash ^ packet->source[0]) * 0xff51afd7ed558ccdull;
	hash ^= hash >> 32;
	hash = (hash ^ packet->source[1]) * 0xc4ceb9fe1a85ec53ull;
	hash ^= hash >> 32;
	hash = (hash ^ packet->destination[0]) * 0xff51afd7ed558ccdull;
	hash ^= hash >> 32;
	return hd_mix(hash ^ packet->destination[1]);
}

/* Fills in the policy's input from a parsed frame. */
HD_INLINE void hd_describe(struct xdp_md *ctx, const struct hd_packet *packet, struct hd_in *in)
{
	in->length = packet->length;
	in->hash = hd_flow(packet);
	in->source_port = packet->source_port;
	in->destination_port = packet->destination_port;
	in->protocol = packet->protocol;
	in->family = packet->family;
	u32 seen = HD_MIN(packet->length, HD_WINDOW);
	if (seen > 0 && seen <= HD_WINDOW && !load_bytes(ctx, packet->payload, in->window, seen))
		in->seen = seen;
}

/* The same from the frame; 0 if it does not parse, which the root has checked. */
HD_INLINE int hd_input(struct xdp_md *ctx, struct hd_in *in)
{
	struct hd_packet packet = {};

	if (!hd_parse(ctx, &packet))
		return 0;
	hd_describe(ctx, &packet, in);
	return 1;
}

/* A socket takes only frames of its own receive queue. So an executor is one socket per queue, at entry executor *
 * HD_MAX_QUEUES + queue, and the policy does not choose among them. */
#define HD_MAX_QUEUES 128

/* Enforces the choice: the frame goes to entry `key` of `executors`, or passes. */
#define HD_REDIRECT(executors, choice, key)                                                       \
	({                                                                                        \
		long verdict_ = redirect_map(&(executors), (key), XDP_PASS);                      \
		hd_enforced((choice), verdict_ == XDP_REDIRECT);                                  \
		verdict_;                                                                         \
	})

#endif
