/* The program attached to the connections: it jumps to the present policy. While there is none, requests stay with
 * their own connection. */
#include "hooks.h"

static long (*const tail_call)(void *ctx, void *programs, u32 index) = (void *)12;

HD_OWN_MAP(hd_slot, HD_KIND_PROGRAMS, 4, 4, 1);

HD_SECTION("main") int hd_main(void *ctx)
{
	tail_call(ctx, &hd_slot, 0);
	return 1; /* SK_PASS */
}
