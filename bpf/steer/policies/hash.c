/* Every flow to its own executor: as the kernel does, but by the executors' indices. */
#include <heddle.h>

static u32 schedule(struct hd_in *in)
{
	return hd_mix(hd_hash(in)) % hd_executors();
}
