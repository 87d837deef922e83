/* Join the shortest queue: the executor with the least waiting, including its present work if the program marks
 * that in its line. */
#include <heddle.h>

static u32 schedule(struct hd_in *in)
{
	u32 n = hd_executors();
	u32 first = hd_random() % n;
	u32 best = first, least = HD_PASS;

	for (u32 i = 0; i < HD_MAX_EXECUTORS && i < n && least > 0; i++) {
		u32 k = (first + i) % n;
		struct hd_line *line = hd_line(k);
		u32 length = hd_qlen(k) + (line && line->class != 0);
		if (length < least) {
			least = length;
			best = k;
		}
	}
	return best;
}
