/* What is attached to an interface: it finds who has claimed the port that a packet goes to, and jumps to his policy. All
 * else passes, and so do packets whose claimer has no policy at the moment. */
#include "packet.h"

static long (*const tail_call)(void *ctx, void *programs, u32 index) = (void *)12;

/* What a claim is found by. */
struct hd_claim {
	u8 protocol, family;
	u16 port;
	u32 zero;
	u64 address[2]; /* 0: any of the family */
};

HD_HASH(hd_claims, struct hd_claim, u32, 1024);
HD_OWN_MAP(hd_slots, HD_KIND_PROGRAMS, 4, 4, 64);

HD_SECTION("main") int hd_main(struct xdp_md *ctx)
{
	struct hd_packet packet = {};
	struct hd_claim claim = {};

	if (!hd_parse(ctx, &packet))
		return XDP_PASS;
	claim.protocol = packet.protocol;
	claim.family = packet.family;
	claim.port = packet.destination_port;
	u32 *slot = hd_helper_lookup(&hd_claims, &claim);
	if (!slot) {
		claim.address[0] = packet.destination[0];
		claim.address[1] = packet.destination[1];
		slot = hd_helper_lookup(&hd_claims, &claim);
	}
	if (slot)
		tail_call(ctx, &hd_slots, *slot);
	return XDP_PASS;
}
