/* Classify: the class of a request is in a map before the thread of its executor wakes, so that thread scheduling can
 * go by it (heddle agent run --class-map ID:work). No short request is put behind one of a type that takes long. */
#include <heddle.h>

HD_PARAM(type_offset, 2, 0, 127, "which byte of a request is its type");
HD_PARAM(scan, 3, 0, 255, "the type of the long requests");
HD_PARAM(spared, 1, 1, 1023, "how many executors get no long requests");

enum { IDLE, SHORT, LONG };

/* What each executor works on, or is about to. The program stores a class when it begins a request, IDLE after it. */
HD_MAP(work, u32, HD_MAX_EXECUTORS);

static u32 next_short, next_long;

/* Always 0, but any number to the verifier: it then need not follow each executor's way to the end. */
static u32 zero;

/* Returns the first idle executor from `first` on, n if there is none. */
static u32 idle_from(u32 first, u32 n)
{
	for (u32 i = 0; i < HD_MAX_EXECUTORS && i < n - first; i++) {
		u32 k = first + (zero + i) % (n - first);
		u32 *at = hd_at(work, k);

		if (at && *at == IDLE)
			return k;
	}
	return n;
}

static u32 schedule(struct hd_in *in)
{
	u32 n = hd_executors(), spared = hd_param(spared), class, k, *at;
	u8 type;

	if (hd_load(in, hd_param(type_offset), &type))
		return HD_PASS;
	if (n <= spared)
		return next_short++ % n;
	class = type == hd_param(scan) ? LONG : SHORT;
	k = idle_from(class == LONG ? spared : 0, n);
	at = hd_at(work, k);
	/* Two CPUs never give an idle executor to two requests: the loser goes on as if none were idle. */
	if (k < n && at && __sync_val_compare_and_swap(at, IDLE, class) == IDLE)
		return k;
	return class == LONG ? spared + next_long++ % (n - spared) : next_short++ % spared;
}
