#include <heddle.h>

static u32 schedule(struct hd_in *in)
{
	u32 k = in->hash;

	while (hd_random() != k)
		k += hd_random();
	return k;
}
