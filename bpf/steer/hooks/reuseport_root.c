/* The program attached to a reuseport group: it jumps to the present policy. While there is none, the kernel
 * chooses. So a policy is replaced or removed by one store, without a socket. */
#include "hooks.h"

static long (*const tail_call)(void *ctx, void *programs, u32 index) = (void *)12;

HD_OWN_MAP(hd_slot, HD_KIND_PROGRAMS, 4, 4, 1);

HD_SECTION("main") int hd_main(void *ctx)
{
	tail_call(ctx, &hd_slot, 0);
	return 1; /* SK_PASS */
}
