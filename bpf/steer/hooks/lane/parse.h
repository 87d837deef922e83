/* From a frame to the packet in it; an ICMP error becomes the packet that it is about. */
#ifndef HD_LANE_PARSE_H
#define HD_LANE_PARSE_H

#include "packet.h"

#define HD_ICMP4 1
#define HD_ICMP6 58
#define HD_ICMP_HEADER 8

/* What a frame has for the lanes. */
#define HD_NOTHING 0
#define HD_WHOLE_PACKET 1
#define HD_FIRST_FRAGMENT 2
#define HD_ERROR 3

/* Reads the ports, which are all that is left of the transport's header in a fragment or a quotation. */
HD_INLINE int hd_read_ports(void *at, void *end, struct hd_packet *packet)
{
	u16 *ports = at;

	if ((void *)(ports + 2) > end)
		return 0;
	packet->source_port = HD_BE16(ports[0]);
	packet->destination_port = HD_BE16(ports[1]);
	return 1;
}

/* Destination unreachable, time exceeded, parameter problem; of IPv6 packet too big, too. */
HD_INLINE int hd_is_error(u8 protocol, u8 type)
{
	if (protocol == HD_ICMP4)
		return type == 3 || type == 11 || type == 12;
	return type >= 1 && type <= 4;
}

/* Replaces `packet` by what its sender would get as an answer to the packet that the ICMP error at `at` quotes: then
 * the error is found where the answer would be. */
HD_INLINE u32 hd_quoted(void *at, void *end, struct hd_packet *packet)
{
	u8 *header = at;
	u32 behind;
	u8 protocol = packet->protocol;

	if (packet->fragment || (void *)(header + HD_ICMP_HEADER) > end || !hd_is_error(protocol, header[0]))
		return HD_NOTHING;
	__builtin_memset(packet, 0, sizeof *packet);
	at = protocol == HD_ICMP4 ? hd_internet4(header + HD_ICMP_HEADER, end, packet, &behind)
				  : hd_internet6(header + HD_ICMP_HEADER, end, packet, &behind);
	if (!at || packet->fragment == HD_LATER || !hd_read_ports(at, end, packet))
		return HD_NOTHING;
	if (packet->protocol != HD_TCP && packet->protocol != HD_UDP)
		return HD_NOTHING;
	for (u32 i = 0; i < 2; i++) {
		u64 source = packet->source[i];
		packet->source[i] = packet->destination[i];
		packet->destination[i] = source;
	}
	u16 port = packet->source_port;
	packet->source_port = packet->destination_port;
	packet->destination_port = port;
	return HD_ERROR;
}

/* Fills in the packet of a frame. One with a VLAN tag is for another interface of this machine, and passes, and so do
 * fragments of UDP: the kernel reassembles them, and the process reads its socket there, too. */
HD_INLINE u32 hd_examine(struct xdp_md *ctx, struct hd_packet *packet)
{
	void *data = (void *)(u64)ctx->data, *end = (void *)(u64)ctx->data_end;
	u16 *type = (u16 *)((u8 *)data + 12);
	u32 behind = 0;
	void *at;

	if ((void *)(type + 1) > end)
		return HD_NOTHING;
	if (*type == HD_BE16(0x0800))
		at = hd_internet4(type + 1, end, packet, &behind);
	else if (*type == HD_BE16(0x86dd))
		at = hd_internet6(type + 1, end, packet, &behind);
	else
		return HD_NOTHING;
	if (!at)
		return HD_NOTHING;
	if (packet->protocol == (packet->family == 4 ? HD_ICMP4 : HD_ICMP6))
		return hd_quoted(at, end, packet);
	if (packet->fragment == HD_WHOLE)
		return hd_transport(at, data, end, packet, behind) ? HD_WHOLE_PACKET : HD_NOTHING;
	if (packet->fragment == HD_FIRST && packet->protocol == HD_TCP && hd_read_ports(at, end, packet))
		return HD_FIRST_FRAGMENT;
	return HD_NOTHING;
}

#endif
