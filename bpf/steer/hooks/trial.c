/* Trials: the packet is a ready-made input, and the choice is the verdict. So a policy's decisions can be examined
 * and timed without traffic. */
#include "hooks.h"

static long (*const load_bytes)(void *ctx, u32 offset, void *to, u32 size) = (void *)189;

HD_SECTION("main") int hd_main(void *ctx)
{
	struct hd_in *in = hd_blank();

	if (!in || load_bytes(ctx, 0, in, sizeof *in))
		return HD_PASS;
	if (in->seen > HD_WINDOW)
		in->seen = HD_WINDOW;
	return hd_policy(in, 0, 0, 0, 0);
}
