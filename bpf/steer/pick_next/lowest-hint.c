/* Takes the first of the threads with the lowest hint. Hints come from the agent: hd_enclave_describe in C,
 * Backend::describe in Rust; the policy `priority` gives the level at which a thread waits. */
#include <heddle/pick_next.h>

static u32 pick_next(struct hd_offers *offers)
{
	u32 lowest = 0;
	u64 hint = ~0ull;

	for (u32 i = 0; i < HD_OFFERS && i < offers->count; i++) {
		if (offers->offer[i].hint < hint) {
			lowest = i;
			hint = offers->offer[i].hint;
		}
	}
	return lowest;
}
