/* SITA */
#include <heddle.h>
#define SCAN 2
static u32 next;

static u32 schedule(struct hd_in *in)
{
	u8 type;
	u32 n = hd_executors();

	hd_load(in, 0, &type);
	if (type == SCAN || n < 2)
		return 0;
	return 1 + next++ % (n - 1);
}
