/* The program attached to an interface: it finds the claim of the port that a packet goes to, and jumps to the
 * claimer's policy. Everything else passes, as do packets whose claimer has no policy at the moment, or no socket
 * of the port any more. */
#include "packet.h"

#define MAX_SLOTS 64
#define MAX_HOLDERS 64

static long (*const tail_call)(void *ctx, void *programs, u32 index) = (void *)12;
static long (*const sk_release)(void *socket) = (void *)86;

/* The key of a claim. */
struct hd_claim {
	u8 protocol, family;
	u16 port;
	u32 zero;
	u64 address[2]; /* 0: any of the family */
};

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

#define TCP_LISTEN 10

/* The part of a socket that a program sees: struct bpf_sock. */
struct socket {
	u32 bound_dev_if, family, type, protocol, mark, priority;
	u32 source4;
	u32 source6[4];
	u32 source_port; /* in the machine's order */
	u16 peer_port;
	u16 padding;
	u32 peer4;
	u32 peer6[4];
	u32 state;
};

/* Whether the kernel would give the packet to the socket: since it was given as a proof it may have stopped
 * listening, or have been connected to one peer. Then the port may be another program's. */
HD_INLINE int hd_takes(volatile const struct socket *socket, const struct hd_packet *packet, u32 interface)
{
	u32 device = socket->bound_dev_if;

	if (device && device != interface)
		return 0;
	if (socket->source_port != packet->destination_port)
		return 0;
	if (packet->protocol == HD_UDP ? socket->peer_port != 0 : socket->state != TCP_LISTEN)
		return 0;
	if (packet->family == 4) {
		u32 address = socket->source4;
		return !address || address == (u32)packet->destination[0];
	}
	u64 high = socket->source6[0] | (u64)socket->source6[1] << 32;
	u64 low = socket->source6[2] | (u64)socket->source6[3] << 32;
	return !(high | low) || (high == packet->destination[0] && low == packet->destination[1]);
}

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
