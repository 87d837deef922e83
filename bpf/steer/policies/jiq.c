/* Join the idle queue: an executor whose thread sleeps and whose queue is empty; if there is none, the one with the
 * shortest queue. The kernel sees both, so the server needs no change. */
#include <heddle.h>

static u32 schedule(struct hd_in *in)
{
	u32 n = hd_executors();
	u32 first = hd_random() % n;
	u32 best = first, least = HD_PASS;

	for (u32 i = 0; i < HD_MAX_EXECUTORS && i < n; i++) {
		u32 k = (first + i) % n;
		if (hd_idle(k))
			return k;
		u32 length = hd_qlen(k);
		if (length < least) {
			least = length;
			best = k;
		}
	}
	return best;
}
