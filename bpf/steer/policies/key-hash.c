/* Every key to its home executor, which alone holds its data (MICA). */
#include <heddle.h>

HD_PARAM(key_offset, 24, 0, 127, "where the key begins");
HD_PARAM(key_size, 8, 1, 64, "how many bytes it has");

static u32 schedule(struct hd_in *in)
{
	u32 offset = hd_param(key_offset), size = hd_param(key_size);
	u64 hash = 14695981039346656037ull;

	if (offset + size > in->seen)
		return HD_PASS;
	/* FNV-1a, mixed; heddle_steer::key_hash is the same for programs. Unrolled, because the verifier's protection
	 * against speculation lets an instruction move a pointer only by one known distance. */
#pragma clang loop unroll(full)
	for (u32 i = 0; i < 64; i++)
		if (i < size)
			hash = (hash ^ in->window[(offset + i) & (HD_WINDOW - 1)]) * 1099511628211ull;
	return hd_mix(hash) % hd_executors();
}
