#include <heddle.h>

static u32 schedule(struct hd_in *in)
{
	volatile u32 k;

	return k;
}
