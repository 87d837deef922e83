#include <heddle.h>

static int schedule(struct hd_in *in, int n)
{
	return n;
}
