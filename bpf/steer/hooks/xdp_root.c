/* The program attached to an interface: it finds the claim of the port that a packet goes to, and jumps to the
 * claimer's policy. Everything else passes, as do packets whose claimer has no policy at the moment, or no socket
 * of the port any more. */
#include "claim.h"

#define MAX_SLOTS 64
#define MAX_HOLDERS 64

static long (*const tail_call)(void *ctx, void *programs, u32 index) = (void *)12;

/* The owner of a claim, and the sockets that prove it: one bit for each of the slot's entries in hd_holders. No
 * bit: it needs no proof. */
struct hd_claimed {
	u32 slot, zero;
	u64 holders;
};

HD_HASH(hd_claims, struct hd_claim, struct hd_claimed, 1024);
HD_OWN_MAP(hd_slots, HD_KIND_PROGRAMS, 4, 4, MAX_SLOTS);
/* The kernel removes a socket when it closes. So a claim ends with the last of its sockets, even if no process
 * looks after it. */
HD_OWN_MAP(hd_holders, HD_KIND_SOCKETS, 4, 8, MAX_SLOTS * MAX_HOLDERS);

/* Whether any socket that proves the claim still has its port; mostly the first one does. */
HD_INLINE int hd_is_held(const struct hd_claimed *claimed, const struct hd_packet *packet, u32 interface)
{
	u64 holders = claimed->holders;
	u32 first = claimed->slot * MAX_HOLDERS;

	if (!holders)
		return 1;
	for (u32 i = 0; i < MAX_HOLDERS; i++) {
		u32 at = first + i;

		if (!(holders >> i & 1))
			continue;
		void *socket = hd_helper_lookup(&hd_holders, &at);
		if (socket) {
			int takes = hd_takes(socket, packet, interface);

			sk_release(socket);
			if (takes)
				return 1;
		}
	}
	return 0;
}

HD_SECTION("main") int hd_main(struct xdp_md *ctx)
{
	struct hd_packet packet = {};
	struct hd_claim claim = {};

	if (!hd_parse(ctx, &packet))
		return XDP_PASS;
	claim.protocol = packet.protocol;
	claim.family = packet.family;
	claim.port = packet.destination_port;
	struct hd_claimed *claimed = hd_helper_lookup(&hd_claims, &claim);
	if (!claimed) {
		claim.address[0] = packet.destination[0];
		claim.address[1] = packet.destination[1];
		claimed = hd_helper_lookup(&hd_claims, &claim);
	}
	if (claimed && hd_is_held(claimed, &packet, ctx->ingress_ifindex))
		tail_call(ctx, &hd_slots, claimed->slot);
	return XDP_PASS;
}
