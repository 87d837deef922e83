#include <heddle.h>

static long (*const read_kernel)(void *to, u32 size, const void *from) = (void *)113;

static u32 schedule(struct hd_in *in)
{
	u32 x = 0;

	read_kernel(&x, sizeof x, 0);
	return x;
}
