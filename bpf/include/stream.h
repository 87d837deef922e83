/* What the parser and the verdict of streams share: the framing of requests, and where the kernel keeps the offset
 * of the current one. The packet that both get is not advanced to it: a segment may hold many requests, and the
 * program sees the whole segment for each. */
#ifndef HD_STREAM_H
#define HD_STREAM_H

#include "hooks.h"

/* The part of the kernel's struct __sk_buff that is used. */
struct stream {
	u32 length, unused[15];
	u32 more_unused[5];
	u32 family;
	u32 remote_ip4, local_ip4, remote_ip6[4], local_ip6[4];
	u32 remote_port, local_port;
};

static long (*const load_bytes)(const void *ctx, u32 offset, void *to, u32 size) = (void *)26;
static long (*const read_kernel)(void *to, u32 size, const void *from) = (void *)113;

/* Set before the programs are loaded: the first two from the kernel's own types, the others from the framing. */
struct framing {
	u32 place;	   /* struct sk_buff: where in it the message's offset in the packet is */
	u32 message;	   /* the same for the message's length */
	u32 length_offset; /* in the message: where its length is */
	u32 length_size;   /* 1, 2, 4 or 8 */
	u32 big_endian;
	u32 added;	   /* what the number leaves out: the header's size, or 0 */
	u32 header;	   /* bytes before the payload */
	u32 most;	   /* bytes of a message, header included */
	u32 tagged;	   /* whether the verdict writes the connection's cookie into the header */
	u32 tag_offset;
};

const volatile struct framing framing HD_SECTION(".hd.hd_framing_constants") = {};

HD_INLINE u32 number_at(void *ctx, u32 offset)
{
	u32 number = 0;

	read_kernel(&number, sizeof number, (u8 *)ctx + offset);
	return number;
}

#endif
