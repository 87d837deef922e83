#include <heddle.h>

HD_TABLE(big, u64, 4096);

static u32 schedule(struct hd_in *in)
{
	u32 best = 0;

	for (u32 i = 0; i < 2000000; i++) {
		u64 *value = hd_at(big, i % 4096);
		if (value && *value < best)
			best = *value + i;
	}
	return best;
}
