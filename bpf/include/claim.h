/* Ownership of a port, and the sockets that prove it. */
#ifndef HD_CLAIM_H
#define HD_CLAIM_H

#include "packet.h"

static long (*const sk_release)(void *socket) = (void *)86;

/* The key of a claim. */
struct hd_claim {
	u8 protocol, family;
	u16 port;
	u32 proof; /* 0, except in the key of a socket that proves the claim */
	u64 address[2]; /* 0: any of the family */
};

#define TCP_LISTEN 10
#define AF_INET6 10

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
 * listening, or have been connected to one peer. Then the port may be another program's. An IPv6 socket bound to any
 * address has no IPv4 address either, so it takes IPv4 as well: user space has seen that it does. */
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
	if (socket->family != AF_INET6)
		return 0;
	u64 high = socket->source6[0] | (u64)socket->source6[1] << 32;
	u64 low = socket->source6[2] | (u64)socket->source6[3] << 32;
	return !(high | low) || (high == packet->destination[0] && low == packet->destination[1]);
}

#endif
