/* Classify: the class of a request is in a map before the thread of its executor wakes, so that thread scheduling can
 * go by it (heddle agent run --class-map ID:work). No short request is put behind one of a type that takes long. */
#include <heddle.h>

HD_PARAM(type_offset, 2, 0, 127, "which byte of a request is its type");
HD_PARAM(scan, 3, 0, 255, "the type of the long requests");
HD_PARAM(spared, 1, 1, 63, "how many executors get no long requests");

enum { IDLE, SHORT, LONG };

/* What each executor works on, or is about to. The program stores a class when it begins a request, IDLE after it. */
HD_MAP(work, u32, HD_MAX_EXECUTORS);

static u32 next_short, next_long;

static u32 schedule(struct hd_in *in)
{
	u32 n = hd_executors(), spared = hd_param(spared), class, first;
	u8 type;

	if (hd_load(in, hd_param(type_offset), &type))
		return HD_PASS;
	if (n <= spared)
		return next_short++ % n;
	class = type == hd_param(scan) ? LONG : SHORT;
	first = class == LONG ? spared : 0;
	for (u32 k = first; k < HD_MAX_EXECUTORS && k < n; k++) {
		u32 *at = hd_at(work, k);

		/* Claimed: two CPUs never give an idle executor to two requests. */
		if (at && *at == IDLE && __sync_val_compare_and_swap(at, IDLE, class) == IDLE)
			return k;
	}
	return class == LONG ? spared + next_long++ % (n - spared) : next_short++ % spared;
}
