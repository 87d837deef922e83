/* Takes the thread that has waited for the longest time, whatever the policy's order. */
#include <heddle/pick_next.h>

static u32 pick_next(struct hd_offers *offers)
{
	u32 longest = 0;
	u64 waited = 0;

	for (u32 i = 0; i < HD_OFFERS && i < offers->count; i++) {
		if (offers->offer[i].waited > waited) {
			longest = i;
			waited = offers->offer[i].waited;
		}
	}
	return longest;
}
