/* Locality: an executor on the CPU at which the input arrived, whose cache holds the data; if there is none, the
 * flow's own executor. */
#include <heddle.h>

static u32 schedule(struct hd_in *in)
{
	u32 n = hd_executors(), cpu = hd_cpu();
	u32 first = hd_mix(hd_hash(in)) % n;

	for (u32 i = 0; i < HD_MAX_EXECUTORS && i < n; i++) {
		u32 k = (first + i) % n;
		struct hd_line *line = hd_line(k);
		if (line && line->cpu == cpu + 1)
			return k;
	}
	return first;
}
