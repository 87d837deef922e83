/* Finds the end of the current request of a stream. */
#include "stream.h"

#define MORE 0
#define EPROTO 71
#define EMSGSIZE 90

HD_INLINE u64 number(const u8 *bytes)
{
	u64 value = 0;

	for (u32 i = 0; i < 8; i++) {
		if (i >= framing.length_size)
			break;
		if (framing.big_endian)
			value = value << 8 | bytes[i];
		else
			value |= (u64)bytes[i] << (8 * i);
	}
	return value;
}

/* Returns the length of the message, 0 to be called again with more data, or an error, which ends the connection. */
HD_SECTION("main") int hd_main(struct stream *ctx)
{
	u32 at = number_at(ctx, framing.place);
	u32 size = framing.length_size;
	u8 bytes[8] = {};

	if (size < 1 || size > 8 || at > ctx->length)
		return -EPROTO;
	if (ctx->length - at < framing.length_offset + size)
		return MORE;
	if (load_bytes(ctx, at + framing.length_offset, bytes, size))
		return -EPROTO;
	u64 length = number(bytes);
	/* Compared before the addition, so that it cannot wrap around. */
	if (length > framing.most || length + framing.added > framing.most)
		return -EMSGSIZE;
	if (length + framing.added < framing.header)
		return -EPROTO;
	return (int)(length + framing.added);
}
