#include <heddle.h>

HD_MAP(seen, u64, 64);

static u32 schedule(struct hd_in *in)
{
	u64 *count = hd_at(seen, in->hash % 64);

	if (count)
		__sync_fetch_and_add(count, 1);
	return in->hash % hd_executors();
}
