/* Every executor in its turn. */
#include <heddle.h>

static u32 next;

static u32 schedule(struct hd_in *in)
{
	/* Two CPUs may read the same number: then one executor gets two inputs, which harms nobody. */
	return next++ % hd_executors();
}
