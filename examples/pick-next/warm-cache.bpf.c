/* Takes the first thread that ran on this CPU last, whose data may still be in the cache. If there is none, or if the
 * first thread has waited for longer than `wait` microseconds, takes the first. */
#include <heddle/pick_next.h>

HD_PARAM(wait, 1000, 0, 1000000, "how many microseconds the first thread may be passed over");

static u32 pick_next(struct hd_offers *offers)
{
	if (offers->offer[0].waited > hd_param(wait) * 1000)
		return HD_IN_ORDER;
	for (u32 i = 0; i < HD_OFFERS && i < offers->count; i++)
		if (offers->offer[i].cpu == offers->cpu)
			return i;
	return HD_IN_ORDER;
}
