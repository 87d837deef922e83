/* Whether a packet belongs to the process: to a claimed port, or to a connection that it opened. */
#ifndef HD_LANE_OWNER_H
#define HD_LANE_OWNER_H

#include "maps.h"

HD_INLINE void hd_tuple_of(const struct hd_packet *packet, struct hd_tuple *tuple)
{
	__builtin_memset(tuple, 0, sizeof *tuple);
	tuple->local[0] = packet->destination[0];
	tuple->local[1] = packet->destination[1];
	tuple->remote[0] = packet->source[0];
	tuple->remote[1] = packet->source[1];
	tuple->local_port = packet->destination_port;
	tuple->remote_port = packet->source_port;
	tuple->family = packet->family;
}

/* Returns what the process has at the packet's destination port, as far as it matters for its protocol. */
HD_INLINE u32 hd_uses(const struct hd_packet *packet)
{
	u32 zero = 0;
	u8 *ports = hd_helper_lookup(&hd_ports, &zero);

	if (!ports)
		return 0;
	u32 uses = ports[packet->destination_port];
	return uses & (packet->protocol == HD_TCP ? HD_TCP_CLAIMED | HD_TCP_OUTGOING : HD_UDP_CLAIMED);
}

/* Whether the packet is to this machine. Multicast and broadcast are not: the kernel knows who has joined, and gives a
 * copy to everybody, the process's own socket among them. */
HD_INLINE int hd_is_local(const struct hd_packet *packet)
{
	struct hd_address address = {{packet->destination[0], packet->destination[1]}, packet->family};

	return hd_helper_lookup(&hd_local, &address) != 0;
}

/* Whether one of the sockets that prove the claim still has its port; mostly the first one does. */
HD_INLINE int hd_is_proven(struct hd_claim *claim, u64 proofs, const struct hd_packet *packet, u32 interface)
{
	if (!proofs)
		return 1;
	for (u32 i = 0; i < HD_MAX_PROOFS; i++) {
		if (!(proofs >> i & 1))
			continue;
		claim->proof = i;
		void *socket = hd_helper_lookup(&hd_proofs, claim);
		if (socket) {
			int takes = hd_takes(socket, packet, interface);

			sk_release(socket);
			if (takes)
				return 1;
		}
	}
	HD_LANE_COUNT(unproven);
	return 0;
}

HD_INLINE int hd_is_claimed(const struct hd_packet *packet, u32 interface)
{
	struct hd_claim claim = {.protocol = packet->protocol, .family = packet->family};

	claim.port = packet->destination_port;
	u64 *proofs = hd_helper_lookup(&hd_claims, &claim);
	if (proofs && !hd_is_local(packet))
		proofs = 0;
	if (!proofs) {
		claim.address[0] = packet->destination[0];
		claim.address[1] = packet->destination[1];
		proofs = hd_helper_lookup(&hd_claims, &claim);
	}
	return proofs && hd_is_proven(&claim, *proofs, packet, interface);
}

/* Whether a claim may take packets from this source. */
HD_INLINE int hd_is_allowed(const struct hd_packet *packet)
{
	if (!hd_lanes.allow)
		return 1;
	if (packet->family == 4) {
		struct hd_prefix4 source = {32, (u32)packet->source[0]};

		return hd_helper_lookup(&hd_allow4, &source) != 0;
	}
	struct hd_prefix6 source = {128,
				    {(u32)packet->source[0], (u32)(packet->source[0] >> 32), (u32)packet->source[1],
				     (u32)(packet->source[1] >> 32)}};
	return hd_helper_lookup(&hd_allow6, &source) != 0;
}

#endif
