#include <heddle.h>

__attribute__((noinline)) static u32 down(u32 n)
{
	return n ? down(n / 2) + hd_random() * down(n / 3) : hd_random();
}

static u32 schedule(struct hd_in *in)
{
	return down(in->hash);
}
