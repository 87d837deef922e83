/* SCAN avoid: any executor that is not at work on a long request, according to the program's lines. */
#include <heddle.h>

HD_PARAM(class, 3, 1, 4294967295, "the class that the program marks long requests with");

/* Beyond that the remaining ones are examined in turn, so that the last free executor is found too. */
#define PROBES 8

static u32 free(u32 k)
{
	struct hd_line *line = hd_line(k);

	return line && line->class != hd_param(class);
}

static u32 schedule(struct hd_in *in)
{
	u32 n = hd_executors(), k = 0;

	for (u32 i = 0; i < PROBES; i++) {
		k = hd_random() % n;
		if (free(k))
			return k;
	}
	for (u32 i = 1; i < HD_MAX_EXECUTORS && i < n; i++)
		if (free((k + i) % n))
			return (k + i) % n;
	return k;
}
