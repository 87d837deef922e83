/* From a frame on an interface to the datagram or segment in it. */
#ifndef HD_PACKET_H
#define HD_PACKET_H

#include "hooks.h"

struct xdp_md {
	u32 data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex;
};

#define XDP_DROP 1
#define XDP_PASS 2
#define XDP_REDIRECT 4

/* What the headers say, and where the payload begins. Ports are in host byte order, addresses in network byte
 * order; an IPv4 address takes the first four bytes. */
struct hd_packet {
	u64 source[2], destination[2];
	u16 source_port, destination_port;
	u8 protocol, family;
	u16 payload;
	u32 length; /* of the payload, without the padding of short frames */
	u8 fragment;
	u8 flags; /* of TCP */
};

#define HD_TCP 6
#define HD_UDP 17

/* Values of `fragment`. Only the first one has ports. */
#define HD_WHOLE 0
#define HD_FIRST 1
#define HD_LATER 2

/* The most VLAN tags, and the most headers between IPv6's own and the transport's. */
#define HD_TAGS 2
#define HD_EXTENSIONS 4

#define HD_BE16(x) __builtin_bswap16(x)

struct hd_ipv4 {
	u8 version_and_length, service;
	u16 total;
	u16 id, fragment;
	u8 life, protocol;
	u16 sum;
	u32 source, destination;
};

struct hd_ipv6 {
	u32 version;
	u16 payload;
	u8 next, hops;
	u32 source[4], destination[4];
};

/* Returns `size` bytes at `at` if they are in the frame's first piece, where drivers put headers; else 0. */
#define HD_HEADER(type, at) ((void *)((type *)(at) + 1) > end ? 0 : (type *)(at))

/* Returns what follows the Ethernet header and its tags; 0 if it is nothing that is parsed here. */
HD_INLINE void *hd_ethernet(void *data, void *end, u16 *type)
{
	u16 *at = (u16 *)((u8 *)data + 12);

	for (u32 tag = 0; tag <= HD_TAGS; tag++) {
		if ((void *)(at + 1) > end)
			return 0;
		*type = HD_BE16(*at);
		if (*type != 0x8100 && *type != 0x88a8)
			return at + 1;
		at += 2;
	}
	return 0;
}

/* Returns the transport's header, or what a later fragment has in its place. `behind` is its length in bytes. */
HD_INLINE void *hd_internet4(void *at, void *end, struct hd_packet *packet, u32 *behind)
{
	struct hd_ipv4 *ip = HD_HEADER(struct hd_ipv4, at);

	if (!ip)
		return 0;
	u32 header = (ip->version_and_length & 15) * 4, total = HD_BE16(ip->total);
	if (header < sizeof *ip || total < header)
		return 0;
	packet->source[0] = ip->source;
	packet->destination[0] = ip->destination;
	packet->protocol = ip->protocol;
	packet->family = 4;
	if (ip->fragment & HD_BE16(0x3fff))
		packet->fragment = ip->fragment & HD_BE16(0x1fff) ? HD_LATER : HD_FIRST;
	*behind = total - header;
	return (u8 *)at + header;
}

/* The same for IPv6, after those extensions that have a length. */
HD_INLINE void *hd_internet6(void *at, void *end, struct hd_packet *packet, u32 *behind)
{
	struct hd_ipv6 *ip = HD_HEADER(struct hd_ipv6, at);

	if (!ip)
		return 0;
	u32 left = HD_BE16(ip->payload);
	u8 next = ip->next;

	packet->source[0] = (u64)ip->source[1] << 32 | ip->source[0];
	packet->source[1] = (u64)ip->source[3] << 32 | ip->source[2];
	packet->destination[0] = (u64)ip->destination[1] << 32 | ip->destination[0];
	packet->destination[1] = (u64)ip->destination[3] << 32 | ip->destination[2];
	packet->family = 6;
	u8 *header = (u8 *)(ip + 1);
	/* Hop-by-hop, routing, destination, fragment. */
	for (u32 i = 0; i < HD_EXTENSIONS && (next == 0 || next == 43 || next == 60 || next == 44); i++) {
		if ((void *)(header + 4) > end)
			return 0;
		u32 length = (header[1] + 1) * 8;
		if (next == 44) {
			length = 8;
			/* A single fragment of everything counts as one, too: few senders make them. */
			packet->fragment = (header[2] << 8 | header[3]) & 0xfff8 ? HD_LATER : HD_FIRST;
		}
		next = header[0];
		if (length > left)
			return 0;
		left -= length;
		header += length;
	}
	packet->protocol = next;
	*behind = left;
	return header;
}

/* Fills in the ports and the place of the payload; 0 if this is neither UDP nor TCP, or cut off. */
HD_INLINE int hd_transport(void *at, void *data, void *end, struct hd_packet *packet, u32 behind)
{
	u32 header = 8;
	u16 *ports = at;

	if (packet->protocol != HD_UDP && packet->protocol != HD_TCP)
		return 0;
	if ((u8 *)at + 8 > (u8 *)end)
		return 0;
	if (packet->protocol == HD_TCP) {
		if ((u8 *)at + 20 > (u8 *)end)
			return 0;
		header = (((u8 *)at)[12] >> 4) * 4;
		packet->flags = ((u8 *)at)[13];
	} else {
		behind = HD_MIN(behind, HD_BE16(ports[2]));
	}
	if (behind < header)
		return 0;
	packet->source_port = HD_BE16(ports[0]);
	packet->destination_port = HD_BE16(ports[1]);
	packet->length = behind - header;
	packet->payload = (u8 *)at - (u8 *)data + header;
	return 1;
}

/* Whether the frame of `ctx` is a whole datagram or segment; fills in what its headers say. A fragment is not, even
 * the first: an executor has no use for half a datagram, and the kernel reassembles it. */
HD_INLINE int hd_parse(struct xdp_md *ctx, struct hd_packet *packet)
{
	void *data = (void *)(u64)ctx->data, *end = (void *)(u64)ctx->data_end;
	u32 behind = 0;
	u16 type = 0;
	void *at = hd_ethernet(data, end, &type);

	if (!at)
		return 0;
	if (type == 0x0800)
		at = hd_internet4(at, end, packet, &behind);
	else if (type == 0x86dd)
		at = hd_internet6(at, end, packet, &behind);
	else
		return 0;
	return at && packet->fragment == HD_WHOLE && hd_transport(at, data, end, packet, behind);
}

#endif
