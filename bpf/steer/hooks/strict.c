/* A frame that is never attached: a policy in it is verified by the rules for those who may not read the kernel's memory.
 * Its input is whatever was in the map, which the verifier knows nothing about; so what it proves holds in any frame. */
#include "hooks.h"

HD_SECTION("main") int hd_main(void *ctx)
{
	struct hd_in *in = hd_blank();

	return in && hd_policy(in, 0, 0, 0, 0) < HD_MAX_EXECUTORS;
}
