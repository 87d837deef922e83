#include <heddle.h>

struct wide {
	u64 word[128];
};

HD_TABLE(big, struct wide, 10000000);

static u32 schedule(struct hd_in *in)
{
	return hd_at(big, in->hash) ? 0 : 1;
}
