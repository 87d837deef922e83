#include <heddle.h>

static u32 schedule(struct hd_in *in)
{
	return in->window[in->length];
}
