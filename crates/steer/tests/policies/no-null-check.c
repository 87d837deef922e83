#include <heddle.h>

HD_MAP(seen, u64, 64);

static u32 schedule(struct hd_in *in)
{
	u64 *count = hd_at(seen, 3);

	*count += 1;
	return 0;
}
